//! What spans and figures that are sent to a collector have in common.

use std::collections::HashMap;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;

use super::config::Otlp;

/// For how long a collector may take for what it is sent at once, and for all of it at the end.
pub(super) const LIMIT: Duration = Duration::from_secs(5);

/// Where what OTLP calls so is sent, `traces` or `metrics`, and how.
pub(super) fn sending_to<E: WithExportConfig + WithHttpConfig>(
    exporter: E,
    signal: &str,
    config: &Otlp,
) -> E {
    let headers = config.headers.iter();
    let headers: HashMap<_, _> = headers
        .map(|(name, value)| (name.clone(), value.reveal().to_owned()))
        .collect();
    exporter
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(config.endpoint.of(signal))
        .with_timeout(LIMIT)
        .with_headers(headers)
}

/// Whose it is.
pub(super) fn resource(config: &Otlp) -> Resource {
    Resource::builder()
        .with_service_name(config.service.clone())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}
