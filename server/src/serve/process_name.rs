//! The name of this process, as which it holds tasks.

use std::net::SocketAddr;

/// The host and the port, which tell a server from others for people.
pub(super) fn process_name(address: SocketAddr) -> String {
    // Elsewhere than on Linux the port alone has to do.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "server",
        host => host,
    };
    format!("{host}:{}", address.port())
}
