//! Finds ports that no process listens on.

use std::net::{Ipv4Addr, TcpListener};

/// A port of the loopback that is free now.
///
/// It is below those that systems take for outgoing connections: none of these can then take the place of a server
/// that is down for a while.
pub(super) fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(10_000..20_000);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
