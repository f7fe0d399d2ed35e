//! A worker in a process of its own: this test binary once more, told by its environment where the service is.

use std::env;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use delayline::backend::RedisBackend;
use delayline::{Outcome, Scheduler, Worker};

use crate::now;
use crate::service::{OnSqlite, Service};
use crate::shop::KIND;

const DATABASE: &str = "DELAYLINE_TEST_DATABASE";
const REDIS: &str = "DELAYLINE_TEST_REDIS";
/// Short, so that what the dead held is soon somebody else's.
const LEASE: Duration = Duration::from_secs(2);

/// A worker's process, killed when this is dropped.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(database: &str, redis: &str) -> Self {
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "child::process", "--nocapture"])
            .env(DATABASE, database)
            .env(REDIS, redis)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Ends it as `kill -9` does; it has not ended by itself.
    pub(crate) fn kill(&mut self) {
        assert_eq!(self.0.try_wait().unwrap(), None, "a worker ended by itself");
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A scheduler as each process has one.
pub(crate) fn scheduler(service: &OnSqlite, redis: &str) -> Scheduler {
    let precise = RedisBackend::connect(redis).unwrap().lease(LEASE).unwrap();
    let builder = Scheduler::builder(service.store()).precise(Arc::new(precise));
    builder.build().unwrap()
}

/// What a child of the other tests does; nothing unless it is one.
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
