//! Where the server listens.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::Deserialize;

use crate::serve::text::Text;

/// An address and a port of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Text")]
pub(crate) struct Listen(pub(crate) SocketAddr);

impl Listen {
    /// Whether only this machine can reach it.
    pub(crate) fn is_loopback(self) -> bool {
        self.0.ip().to_canonical().is_loopback()
    }
}

impl Default for Listen {
    fn default() -> Self {
        Self(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7700))
    }
}

impl TryFrom<Text> for Listen {
    type Error = String;

    fn try_from(text: Text) -> Result<Self, String> {
        let text = text.reveal();
        let address = text.parse();
        address
            .map(Self)
            .map_err(|_| format!("http.listen is {text:?}: allowed are an address and a port, such as 127.0.0.1:7700 or [::1]:7700"))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
