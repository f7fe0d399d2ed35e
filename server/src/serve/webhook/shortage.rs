//! Recognises errors of which no receiver is the cause: the server itself has no more sockets, or no memory for them.

use std::error::Error;
use std::io;

/// Returns what is short, if that is why something could not be sent.
pub(super) fn shortage(error: &(dyn Error + 'static)) -> Option<io::Error> {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    let of_system = causes.find_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error());
    match of_system {
        Some(code) => Some(io::Error::from_raw_os_error(code)).filter(is_shortage),
        // Looking up a host needs files as well, and does not say why it has failed.
        None => std::fs::File::open("/dev/null").err().filter(is_shortage),
    }
}

#[cfg(unix)]
fn is_shortage(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let code = error.raw_os_error().map(Errno::from_raw);
    code.is_some_and(|code| {
        matches!(
            code,
            Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM
        )
    })
}

#[cfg(not(unix))]
fn is_shortage(_: &io::Error) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("not sent")]
    struct NotSent(#[source] io::Error);

    #[test]
    fn only_what_the_system_is_short_of_counts() {
        for (code, is_so) in [
            (Errno::EMFILE, true),
            (Errno::ENFILE, true),
            // There may be no such address here at all.
            (Errno::EADDRNOTAVAIL, false),
            (Errno::ECONNREFUSED, false),
            (Errno::ENETUNREACH, false),
        ] {
            let error = NotSent(io::Error::from_raw_os_error(code as i32));
            assert_eq!(shortage(&error).is_some(), is_so, "{code}");
        }
        assert!(shortage(&NotSent(io::Error::other("no such host"))).is_none());
    }
}
