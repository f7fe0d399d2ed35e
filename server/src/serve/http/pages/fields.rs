//! What a form or a search of a page brings.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use url::form_urlencoded;

use super::super::problem::Problem;
use crate::reason::Reason;

/// What people type, around which spaces mean nothing; around a name that a page has written they are part of it.
const TYPED: [&str; 6] = ["q", "reason", "text", "to", "token", "until"];

/// The fields that were filled in, in their order: without those that are empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    pub(super) fn parse(text: &[u8]) -> Self {
        let fields = form_urlencoded::parse(text).into_owned();
        let filled = fields.map(|(name, value)| {
            let value = match TYPED.contains(&name.as_str()) {
                true => value.trim(),
                false => &value,
            };
            // A browser sends each line break of a form as these two.
            let value = value.replace("\r\n", "\n");
            (name, value)
        });
        Self(filled.filter(|(_, value)| !value.is_empty()).collect())
    }

    /// The first value of a field.
    pub(super) fn one(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Why something is done.
    pub(super) fn reason(&self) -> Result<Option<Reason>, Problem> {
        let reason = self
            .one("reason")
            .map(|reason| Reason::try_from(reason.to_owned()));
        let reason = reason.transpose();
        reason.map_err(|detail| Problem::new(StatusCode::BAD_REQUEST, detail))
    }

    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.0.iter().filter(move |(given, _)| given == name);
        named.map(|(_, value)| value.as_str())
    }
}

/// What stands behind the question mark. What a page does not know there it leaves alone.
impl<S: Send + Sync> FromRequestParts<S> for Fields {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::parse(parts.uri.query().unwrap_or_default().as_bytes()))
    }
}
