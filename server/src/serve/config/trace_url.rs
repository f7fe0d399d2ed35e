//! Where people look at traces.

use serde::Deserialize;
use url::Url;

use crate::serve::text::Text;

/// What stands for the id of a trace.
const PLACE: &str = "{trace_id}";

/// The address of a trace in the interface in which people look at traces, with a place for its id.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Text")]
pub(crate) struct TraceUrl(String);

impl TraceUrl {
    /// That of the trace of an id.
    pub(crate) fn of(&self, trace_id: &str) -> String {
        self.0.replace(PLACE, trace_id)
    }
}

impl TryFrom<Text> for TraceUrl {
    type Error = String;

    fn try_from(text: Text) -> Result<Self, String> {
        let template = Self(text.reveal().to_owned());
        let filled = Url::parse(&template.of("4bf92f3577b34da6a3ce929d0e0e4736"));
        let is_link = |url: Url| {
            let has_account = !url.username().is_empty() || url.password().is_some();
            matches!(url.scheme(), "http" | "https") && !has_account
        };
        if filled.is_ok_and(is_link) && template.0.contains(PLACE) {
            return Ok(template);
        }
        let value = match template.0.contains('@') {
            true => "not shown, as it may have a password in it".to_owned(),
            false => format!("{:?}", template.0),
        };
        Err(format!(
            "http.trace_url is {value}: allowed is a URL of http or https without an account and with {PLACE} in it, such as \
             https://traces.example/trace/{PLACE}"
        ))
    }
}
