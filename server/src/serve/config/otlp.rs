//! Where traces and figures are sent.

use std::collections::BTreeMap;

use serde::Deserialize;
use url::Url;

use crate::serve::text::Text;

/// A collector, that speaks OTLP over HTTP.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Otlp {
    pub(crate) endpoint: Collector,
    /// The name under which this server is found there.
    #[serde(default = "usual_service")]
    pub(crate) service: String,
    #[serde(default = "usually")]
    pub(crate) traces: bool,
    #[serde(default = "usually")]
    pub(crate) metrics: bool,
    /// What each request has beside, such as an account.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Text>,
}

fn usual_service() -> String {
    "delayline".to_owned()
}

fn usually() -> bool {
    true
}

/// The address of a collector. An account goes into the headers, as an address is told where it cannot be reached.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Text")]
pub(crate) struct Collector(Url);

impl Collector {
    /// Where it takes what OTLP calls so: `traces`, or `metrics`.
    pub(crate) fn of(&self, signal: &str) -> String {
        format!("{}/v1/{signal}", self.0.as_str().trim_end_matches('/'))
    }
}

impl TryFrom<Text> for Collector {
    type Error = &'static str;

    fn try_from(text: Text) -> Result<Self, Self::Error> {
        const ALLOWED: &str = "otlp.endpoint is no address of a collector: allowed is http:// or https://, a host and a \
             port, such as http://127.0.0.1:4318, without /v1/traces and without an account, which headers may have";
        let url = Url::parse(text.reveal()).map_err(|_| ALLOWED)?;
        let has_account = !url.username().is_empty() || url.password().is_some();
        let is_plain = !has_account
            && url.query().is_none()
            && url.fragment().is_none()
            && !["/v1/traces", "/v1/metrics"]
                .iter()
                .any(|path| url.path().ends_with(path));
        match url.scheme() {
            "http" | "https" if url.has_host() && is_plain => Ok(Self(url)),
            _ => Err(ALLOWED),
        }
    }
}
