//! The library's own worker, which a service in Rust has in its process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use delayline::{Context, Outcome, Policy, Worker};

use crate::place::scheduler;
use crate::{Error, KIND};

/// Before the URL of a store, it makes this program a service with nothing but a worker.
pub(crate) const ROLE: &str = "--worker";

pub(crate) async fn work(url: &str) -> Result<(), Error> {
    let scheduler = scheduler(url).await?;
    let worker = Worker::new(&scheduler).handle_bytes(KIND, Policy::new(), |_| async { Ok(Outcome::Done) });
    println!("serving no address");
    Ok(worker.run().await?)
}

/// How many tasks a second are run and finished, of so many that are due.
pub(crate) async fn rate(url: &str, count: usize) -> Result<f64, Error> {
    let scheduler = scheduler(url).await?;
    let started = Arc::new(AtomicUsize::new(0));
    let starts = Arc::clone(&started);
    let handler = move |_: Context| {
        starts.fetch_add(1, Ordering::Relaxed);
        async { Ok(Outcome::Done) }
    };
    let worker = Worker::new(&scheduler).handle_bytes(KIND, Policy::new(), handler);
    let begun = Instant::now();
    let done = async {
        while scheduler.stats().done < count as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        begun.elapsed()
    };
    let (tell, told) = tokio::sync::oneshot::channel();
    let until_done = async move {
        // Its receiver is there until the worker has ended.
        let _ = tell.send(done.await);
    };
    worker.run_until(until_done).await?;
    let took = told.await?;
    scheduler.close().await?;
    match started.load(Ordering::Relaxed) {
        starts if starts == count => Ok(count as f64 / took.as_secs_f64()),
        starts => Err(format!("{count} tasks were started {starts} times").into()),
    }
}
