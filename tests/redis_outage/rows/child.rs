//! A worker in a process of its own, with Redis alone.

use std::env;

use delayline::store::RedisStore;
use delayline::{Outcome, Scheduler, Worker};

use super::shop::LEASE;
use crate::now;
use crate::process::Process;
use crate::shop::KIND;

const REDIS: &str = "DELAYLINE_TEST_REDIS_ROWS";

/// A process with a worker.
pub(super) fn start(redis: &str) -> Process {
    Process::start("rows::child::process", &[(REDIS, redis)])
}

/// The key with the effects of a task: how often each attempt had one.
pub(super) fn effects(number: usize) -> String {
    format!("effects:{number}")
}

/// Over how many keys effects are spread.
pub(super) const EFFECTS: usize = 16;

/// Runs such a process; does nothing in any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process() {
    let Ok(redis) = env::var(REDIS) else {
        return;
    };
    let hosts = redis.trim_start_matches("redis+cluster://").split(',');
    let nodes = hosts.map(|host| format!("redis://{host}"));
    let client = redis::cluster::ClusterClient::new(nodes).unwrap();
    let connection = client.get_async_connection().await.unwrap();
    let scheduler = Scheduler::new(RedisStore::new(&redis).unwrap());
    let worker = Worker::new(&scheduler).lease(LEASE);
    let worker = worker.handle(KIND, move |(), context| {
        let mut connection = connection.clone();
        async move {
            let early = if now() < context.due_at() { "early " } else { "" };
            let number = usize::from(context.id().as_bytes()[15]) % EFFECTS;
            // Idempotent, as every effect beside the row must be: a worker that died after it did not settle, and it is
            // done again.
            let mut effect = redis::cmd("HINCRBY");
            effect
                .arg(effects(number))
                .arg(format!("{early}{}", context.id()))
                .arg(1);
            let _: i64 = effect.query_async(&mut connection).await?;
            Ok(Outcome::Done)
        }
    });
    worker.run().await.unwrap();
}
