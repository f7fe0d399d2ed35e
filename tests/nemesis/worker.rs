//! A worker in a process of its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use delayline::{Outcome, Policy, Worker};
use tokio::time::sleep;
use tracing_subscriber::EnvFilter;

use crate::home::{AGAIN, Address, EFFECT, Home, LEASE, PLAIN, PLAIN_ATTEMPTS};
use crate::process::Process;
use crate::starts::note;

pub(crate) const STARTS: &str = "DELAYLINE_NEMESIS_STARTS";

/// Starts a process with a worker, which records its starts in a file.
pub(crate) fn start(address: &Address, starts: &Path) -> Process {
    let mut environment = address.environment();
    environment.push((STARTS, starts.into()));
    Process::start("worker::process", &environment)
}

/// Runs such a process; does nothing in any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process() {
    let (Some(address), Some(starts)) = (Address::told(), std::env::var_os(STARTS)) else {
        return;
    };
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let starts = PathBuf::from(starts);
    let home = Home::open(address).await;
    loop {
        let worker = Worker::new(&home.scheduler).lease(LEASE);
        let (effects, noted) = (home.clone(), starts.clone());
        let policy = policy().max_attempts(1_000);
        let worker = worker.handle_with(EFFECT, policy, move |(), context| {
            let (home, starts) = (effects.clone(), noted.clone());
            async move {
                note(&starts, context.task(), context.woken_by())?;
                home.finish(&context).await?;
                Ok(Outcome::Done)
            }
        });
        let noted = starts.clone();
        let policy = policy_of_plain();
        let worker = worker.handle_with(PLAIN, policy, move |(), context| {
            let starts = noted.clone();
            async move {
                note(&starts, context.task(), context.woken_by())?;
                // Some for longer than a lease, which is renewed.
                let takes = match context.id().as_bytes()[15] {
                    0..4 => LEASE * 2,
                    _ => Duration::from_millis(10),
                };
                sleep(takes).await;
                Ok(Outcome::Done)
            }
        });
        // It does not begin where the store cannot work, as when its table is away.
        if let Err(error) = worker.run().await {
            eprintln!("a worker ended: {error}");
        }
        sleep(AGAIN).await;
    }
}

fn policy() -> Policy {
    Policy::new()
        .backoff(Duration::from_millis(100), Duration::from_secs(1))
        .execution_timeout(Duration::from_secs(10))
        .concurrency(12)
}

fn policy_of_plain() -> Policy {
    policy().max_attempts(PLAIN_ATTEMPTS).concurrency(32)
}
