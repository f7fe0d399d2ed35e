//! Work that goes on without its caller.

use std::future::Future;

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::Error;
use crate::schedule::kernel::Kernel;

/// What `work` gives, which comes to its end also if its caller goes away: whoever speaks to us over a network may, at any
/// moment.
pub(super) async fn apart<T: Send + 'static>(
    kernel: &Kernel,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let (give, given) = oneshot::channel();
    start(kernel, async move {
        // Who does not wait any more has gone away.
        let _ = give.send(work.await);
    });
    given
        .await
        .unwrap_or_else(|_| Err(Error::unanswered(kernel.store.name())))
}

/// Starts work that ends by itself.
pub(super) fn start(kernel: &Kernel, work: impl Future<Output = ()> + Send + 'static) {
    let mut started = JoinSet::new();
    kernel.clock.spawn_in(&mut started, work);
    started.detach_all();
}
