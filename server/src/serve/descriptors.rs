//! How many files and sockets the process may have open.

/// Raises the limit as far as the system lets a process do so, and tells it; none where it is not known.
#[cfg(unix)]
pub(super) fn raise() -> Option<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    /// More than this macOS refuses, whatever it says.
    const ALWAYS_ALLOWED: u64 = 10_240;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let wanted = [hard, hard.min(ALWAYS_ALLOWED)];
    let raised = wanted
        .into_iter()
        .filter(|wanted| *wanted > soft)
        .find(|wanted| setrlimit(Resource::RLIMIT_NOFILE, *wanted, hard).is_ok());
    Some(raised.unwrap_or(soft))
}

#[cfg(not(unix))]
pub(super) fn raise() -> Option<u64> {
    None
}

/// How many connections of clients there may be: as many as are wanted, and three quarters of what may be open at the most,
/// as stores, brokers and webhooks need theirs.
pub(super) fn connections(wanted: usize, files: Option<u64>) -> usize {
    let Some(files) = files.and_then(|files| usize::try_from(files).ok()) else {
        return wanted;
    };
    let most = files - files / 4;
    if most < wanted {
        tracing::warn!(
            files,
            connections = most,
            "the system lets this process open few files, so it takes fewer connections than http.connection_limit allows: \
             raise LimitNOFILE or ulimit -n"
        );
    }
    wanted.min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_a_quarter_of_what_may_be_open() {
        assert_eq!(connections(4_096, Some(1 << 20)), 4_096);
        assert_eq!(connections(4_096, Some(1_024)), 768);
        assert_eq!(connections(4_096, None), 4_096);
    }
}
