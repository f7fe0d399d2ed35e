//! A backend of one's own, written against only the public interface: the trait, its types, and the suite of
//! `delayline::testing` that checks it against the trait's page (`tests/in_process/own_backend.rs`).
//!
//!     cargo run --example own_backend

mod heap;

use std::sync::Arc;
use std::time::Duration;

use delayline::store::MemoryStore;
use delayline::{Context, Failure, NewTask, Outcome, Scheduler, Worker};
use tokio::sync::Notify;

use self::heap::HeapBackend;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let scheduler = Scheduler::builder(Arc::new(MemoryStore::new()))
        .precise(Arc::new(HeapBackend::new()))
        .build()?;
    let soon = NewTask::new("tea.ready", "Darjeeling").after(Duration::from_secs(3));
    scheduler.schedule(soon).await?;

    let poured = Arc::new(Notify::new());
    let pour = Arc::clone(&poured);
    let worker = Worker::new(&scheduler).handle("tea.ready", move |tea: String, context: Context| {
        let pour = Arc::clone(&pour);
        async move {
            let (late, by) = (context.lateness(), context.woken_by());
            println!("{tea} is ready, {late:?} late, woken by the {by} backend");
            pour.notify_one();
            Ok(Outcome::Done)
        }
    });
    worker.run_until(poured.notified()).await?;
    scheduler.close().await?;
    Ok(())
}
