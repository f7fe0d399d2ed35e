//! The orderly end of a scheduler.

use tracing::warn;

use crate::{Error, Scheduler, defaults};

impl Scheduler {
    /// Sends the wake-ups that are still waiting, and closes the backends: for a process that ends in an orderly way.
    ///
    /// Not needed for safety: what was not sent is found by the sweep. Stop the worker first; verbs still work
    /// afterwards, but their wake-ups are left to the sweep. A backend that does not close within
    /// [`defaults::STOP_TIMEOUT`] is an error; the others are closed all the same.
    pub async fn close(&self) -> Result<(), Error> {
        let kernel = &self.kernel;
        // A backend that hangs must not keep a process from ending.
        if kernel
            .clock
            .timeout(defaults::STOP_TIMEOUT, kernel.sender.flush())
            .await
            .is_none()
        {
            warn!(
                "wake-ups could not be sent before the scheduler was closed, so their tasks wait for the sweep of \
                 a worker"
            );
        }
        let mut result = Ok(());
        for (_, backend) in kernel.router.backends() {
            let closed = kernel
                .clock
                .timeout(defaults::STOP_TIMEOUT, backend.close())
                .await;
            result = result.and(closed.unwrap_or_else(|| Err(not_closed(backend.name()))));
        }
        result
    }
}

fn not_closed(backend: &'static str) -> Error {
    Error::Backend {
        backend,
        transient: false,
        source: format!("not closed within {:?}", defaults::STOP_TIMEOUT).into(),
    }
}
