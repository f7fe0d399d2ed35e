//! A table of one's own, written against only the public interface: rows in memory and in a journal. The engine makes a
//! store of it, and the suites of `delayline::testing` check it against its contract (`tests/in_process/own_table.rs`).
//!
//!     cargo run --example own_table [FOLDER]
//!
//! End it with Ctrl-C before the tea is ready, or kill it, and run it again: the tea is not forgotten.

mod journal;
mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use delayline::clock::Clock;
use delayline::store::Engine;
use delayline::{Context, Failure, NewTask, Outcome, Scheduler, Worker};
use tokio::sync::Notify;

use self::table::JournalTable;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| std::env::temp_dir().join("delayline_own_table"));
    let clock = Clock::system();
    let table = JournalTable::open(&folder, clock.clone())?;
    let scheduler = Scheduler::new(Engine::new(table, clock, Duration::from_secs(3_600)));
    let soon = NewTask::new("tea.ready", "Darjeeling")
        .key("tea")
        .after(Duration::from_secs(5));
    let tea = scheduler.schedule(soon).await?;
    println!("it is due at {}, in {}", tea.task().due_at, folder.display());

    let poured = Arc::new(Notify::new());
    let pour = Arc::clone(&poured);
    let worker = Worker::new(&scheduler).handle("tea.ready", move |tea: String, context: Context| {
        let pour = Arc::clone(&pour);
        async move {
            println!("{tea} is ready, {:?} late", context.lateness());
            pour.notify_one();
            Ok(Outcome::Done)
        }
    });
    worker.run_until(poured.notified()).await?;
    scheduler.close().await?;
    Ok(())
}
