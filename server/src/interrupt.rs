//! What ends a command before its time.

use crate::Failure;

/// Ends when a signal asks the tool to end. From the call on, no signal ends it in any other way.
#[cfg(unix)]
pub(crate) fn interrupted() -> Result<impl Future<Output = Failure>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Runtime)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Runtime)?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Failure::Interrupted
    })
}

/// Ends when a signal asks the tool to end.
#[cfg(not(unix))]
pub(crate) fn interrupted() -> Result<impl Future<Output = Failure>, Failure> {
    Ok(async {
        // If it cannot be known, it goes on to its end.
        match tokio::signal::ctrl_c().await {
            Ok(()) => Failure::Interrupted,
            Err(_) => std::future::pending().await,
        }
    })
}
