//! Where tasks are posted.

use std::fmt;

use serde::Deserialize;
use url::{Host, Url};

use crate::serve::text::Text;
use crate::serve::webhook::Secrets;

/// A receiver of webhooks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Endpoint {
    pub(crate) url: Address,
    /// What is posted is signed with each of them.
    pub(crate) secrets: Secrets,
}

/// A URL that this build can post to. It may have a secret in it, so it is not shown.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(try_from = "Text")]
pub(crate) struct Address(Url);

impl Address {
    pub(crate) fn url(&self) -> &Url {
        &self.0
    }

    /// None is there in no URL of HTTP.
    pub(crate) fn host(&self) -> Option<Host<&str>> {
        self.0.host()
    }
}

impl TryFrom<Text> for Address {
    type Error = &'static str;

    fn try_from(text: Text) -> Result<Self, &'static str> {
        const ALLOWED: &str = "url is not shown, as it may have a secret in it: allowed is a URL of http or https without user and \
                               password, such as https://billing.example/hooks";
        let url = Url::parse(text.reveal()).map_err(|_| ALLOWED)?;
        let is_plain = url.username().is_empty() && url.password().is_none();
        match url.scheme() {
            "http" if is_plain => Ok(Self(url)),
            "https" if is_plain && cfg!(feature = "webhook-tls") => Ok(Self(url)),
            "https" if is_plain => {
                Err("url is of https, which needs the feature webhook-tls, which this build does not have")
            }
            _ => Err(ALLOWED),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not shown, as it may have a secret in it")
    }
}
