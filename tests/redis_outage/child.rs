//! A worker in a process of its own, with a database and Redis.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use delayline::backend::RedisBackend;
use delayline::{Outcome, Scheduler, Worker};

use crate::now;
use crate::process::Process;
use crate::service::{OnSqlite, Service};
use crate::shop::KIND;

const DATABASE: &str = "DELAYLINE_TEST_DATABASE";
const REDIS: &str = "DELAYLINE_TEST_REDIS";
/// Short, so that the claims of dead workers soon go to others.
const LEASE: Duration = Duration::from_secs(2);

/// A process with a worker of this service.
pub(crate) fn start(database: &str, redis: &str) -> Process {
    Process::start("child::process", &[(DATABASE, database), (REDIS, redis)])
}

/// Makes the scheduler of each process.
pub(crate) fn scheduler(service: &OnSqlite, redis: &str) -> Scheduler {
    let precise = RedisBackend::builder(redis).lease(LEASE).build().unwrap();
    let builder = Scheduler::builder(service.store()).precise(Arc::new(precise));
    builder.build().unwrap()
}

/// Runs such a process; does nothing in any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process() {
    let (Ok(database), Ok(redis)) = (env::var(DATABASE), env::var(REDIS)) else {
        return;
    };
    let service = OnSqlite::open(database).await;
    let worker = Worker::new(&scheduler(&service, &redis)).lease(LEASE);
    let worker = worker.handle(KIND, move |(), context| {
        let service = service.clone();
        async move {
            let early = if now() < context.due_at() { " early" } else { "" };
            let mut tx = service.begin().await?;
            service
                .effect(&mut tx, &format!("{}{early}", context.id()))
                .await?;
            context.finish_in(service.join(&mut tx)).await?;
            service.commit(tx).await?;
            Ok(Outcome::Done)
        }
    });
    worker.run().await.unwrap();
}
