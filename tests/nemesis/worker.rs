//! A worker in a process of its own, and what it notes of its handlers.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use delayline::{Context, Outcome, Policy, TaskId, Worker};
use tokio::time::sleep;
use tracing_subscriber::EnvFilter;

use crate::home::{AGAIN, Address, EFFECT, Home, LEASE, PLAIN, PLAIN_ATTEMPTS};
use crate::now;
use crate::process::Process;

const STARTS: &str = "DELAYLINE_NEMESIS_STARTS";

/// Starts a process with a worker, which notes in a file what it starts.
pub(crate) fn start(address: &Address, starts: &Path) -> Process {
    let mut environment = address.environment();
    environment.push((STARTS, starts.into()));
    Process::start("worker::process", &environment)
}

/// What such a process does; nothing in any other.
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
                note(&starts, &context)?;
                home.finish(&context).await?;
                Ok(Outcome::Done)
            }
        });
        let noted = starts.clone();
        let policy = policy_of_plain();
        let worker = worker.handle_with(PLAIN, policy, move |(), context| {
            let starts = noted.clone();
            async move {
                note(&starts, &context)?;
                // Some for longer than a lease, which is renewed.
                let takes = match context.id().as_bytes()[15] {
                    0..4 => LEASE * 2,
                    _ => Duration::from_millis(10),
                };
                sleep(takes).await;
                Ok(Outcome::Done)
            }
        });
        // It does not begin where the store says that it cannot work, as when its table is away.
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

/// What a handler was started for.
#[derive(Clone, Debug)]
#[allow(dead_code)] // Some of it is only shown.
pub(crate) struct Start {
    pub(crate) version: u64,
    pub(crate) attempt: u32,
    /// In ms, as is all time here.
    pub(crate) planned_at: i64,
    pub(crate) due_at: i64,
    pub(crate) at: i64,
    pub(crate) process: u32,
    pub(crate) woken_by: String,
}

fn note(starts: &Path, context: &Context) -> std::io::Result<()> {
    let at = now();
    let task = context.task();
    let line = format!(
        "{} {} {} {} {} {at} {} {}\n",
        task.id,
        task.version,
        task.attempt,
        task.planned_at.as_millis(),
        task.due_at.as_millis(),
        process::id(),
        context.woken_by(),
    );
    // In one piece, whoever else writes.
    let mut file = OpenOptions::new().append(true).open(starts)?;
    file.write_all(line.as_bytes())
}

/// All that was noted, in order.
pub(crate) fn noted(starts: &Path) -> BTreeMap<TaskId, Vec<Start>> {
    let mut noted = BTreeMap::<_, Vec<_>>::new();
    for line in fs::read_to_string(starts).unwrap().lines() {
        let [id, version, attempt, planned_at, due_at, at, process, woken_by] =
            *line.split(' ').collect::<Vec<_>>()
        else {
            panic!("no line of starts: {line}");
        };
        let start = Start {
            version: version.parse().unwrap(),
            attempt: attempt.parse().unwrap(),
            planned_at: planned_at.parse().unwrap(),
            due_at: due_at.parse().unwrap(),
            at: at.parse().unwrap(),
            process: process.parse().unwrap(),
            woken_by: woken_by.to_owned(),
        };
        noted.entry(id.parse().unwrap()).or_default().push(start);
    }
    for starts in noted.values_mut() {
        starts.sort_by_key(|start| start.at);
    }
    noted
}
