//! How the HTTP interface is served.

use std::num::NonZeroUsize;

use serde::Deserialize;
use toml::Spanned;

use super::base_path::BasePath;
use super::{Listen, Proxies, Token, TraceUrl};

/// The HTTP interface.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Http {
    pub(crate) listen: Spanned<Listen>,
    pub(crate) base_path: BasePath,
    pub(crate) tokens: Vec<Spanned<Token>>,
    /// Who may say in `X-Forwarded-For` where a request comes from.
    pub(crate) trusted_proxies: Proxies,
    /// Of a request, in bytes.
    pub(crate) body_limit: usize,
    /// Of all requests that are under way, in bytes.
    pub(super) memory_limit: usize,
    /// How many connections may be open at once.
    pub(crate) connection_limit: NonZeroUsize,
    /// Where the pages lead to from a task, for the trace in which it was made.
    pub(crate) trace_url: Option<TraceUrl>,
}

impl Http {
    /// How many bytes are held at once: by requests about a task, by those that bring much, by those that look at many, and
    /// by claims on their way to workers, as many each. The largest body fits.
    pub(crate) fn memory(&self) -> usize {
        self.memory_limit.max(self.body_limit)
    }
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: Spanned::new(0..0, Listen::default()),
            base_path: BasePath::default(),
            tokens: Vec::new(),
            trusted_proxies: Proxies::default(),
            // A batch of payloads of their largest.
            body_limit: 16 << 20,
            memory_limit: 128 << 20,
            connection_limit: NonZeroUsize::MIN.saturating_add(4_095),
            trace_url: None,
        }
    }
}
