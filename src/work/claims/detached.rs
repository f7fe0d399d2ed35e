//! Work that goes on without its caller.

use std::future::Future;

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::Error;
use crate::schedule::kernel::Kernel;

/// Runs `work` to its end, also if its caller goes away meanwhile, as a client over a network may at any moment.
pub(super) async fn detached<T: Send + 'static>(
    kernel: &Kernel,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let (answer, answered) = oneshot::channel();
    start(kernel, async move {
        // A caller that does not wait any more has gone away.
        let _ = answer.send(work.await);
    });
    answered
        .await
        .unwrap_or_else(|_| Err(Error::unanswered(kernel.store.name())))
}

/// Starts work that ends by itself.
pub(super) fn start(kernel: &Kernel, work: impl Future<Output = ()> + Send + 'static) {
    let mut started = JoinSet::new();
    kernel.clock.spawn_in(&mut started, work);
    started.detach_all();
}
