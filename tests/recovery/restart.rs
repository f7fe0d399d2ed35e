//! Tests a database that is killed and restarted under load.

use std::time::{Duration, Instant};

use delayline::{NewTask, Outcome, Policy, Scheduler, TaskId, Worker};

use crate::database::{Database, Server};
use crate::service::Service;

const KIND: &str = "order.cancel";
/// How many tasks are scheduled, before and after the death of the database.
const EACH: usize = 1_000;

/// A server of the test's own dies while tasks are scheduled and run; it comes back, and everything goes on by itself.
async fn survives<S: Service>(database: Database) {
    let server = Server::start(database);
    let service = S::open(server.url()).await;
    service.prepare().await;
    let scheduler = Scheduler::builder(service.store()).build().unwrap();
    let worker = {
        let service = service.clone();
        let policy = Policy::new()
            .backoff(Duration::from_millis(100), Duration::from_secs(1))
            .concurrency(8);
        Worker::new(&scheduler)
            .lease(Duration::from_secs(2))
            .handle_with(KIND, policy, move |(), context| {
                let service = service.clone();
                async move {
                    let mut tx = service.begin().await?;
                    service.effect(&mut tx, &context.id().to_string()).await?;
                    context.finish_in(service.join(&mut tx)).await?;
                    service.commit(tx).await?;
                    Ok(Outcome::Done)
                }
            })
    };
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let worker = tokio::spawn(worker.run_until(async move {
        let _ = stopped.await;
    }));

    // Callers repeat failed calls, with the id that they chose: so nothing is scheduled twice.
    let caller = {
        let scheduler = scheduler.clone();
        tokio::spawn(async move {
            let mut ids = Vec::new();
            for _ in 0..2 * EACH {
                let id = scheduler.new_id();
                let task = || NewTask::new(KIND, &()).id(id).after(Duration::from_millis(500));
                while let Err(error) = scheduler.schedule(task()).await {
                    assert!(error.is_transient(), "{error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                ids.push(id);
            }
            ids
        })
    };
    while scheduler.stats().done < 100 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let server = tokio::task::spawn_blocking(move || {
        server.kill();
        std::thread::sleep(Duration::from_secs(1));
        server.start_again();
        server
    });
    let _server = server.await.unwrap();
    let (back, done) = (Instant::now(), scheduler.stats().done);
    while scheduler.stats().done == done {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!(
        "{database:?}: the first task was done {:?} after it was back",
        back.elapsed()
    );

    let mut ids: Vec<TaskId> = caller.await.unwrap();
    ids.sort();
    while service.effects().await.len() < ids.len() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let _ = stop.send(());
    worker.await.unwrap().unwrap();
    // Each once, and none besides.
    let ids: Vec<_> = ids.iter().map(TaskId::to_string).collect();
    assert_eq!(service.effects().await, ids);
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_may_die_and_come_back() {
    survives::<crate::service::OnPostgres>(Database::Postgres).await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_may_die_and_come_back() {
    survives::<crate::service::OnMySql>(Database::MariaDb).await;
}
