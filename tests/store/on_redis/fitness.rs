//! Servers that remove rows, and users who may not ask whether theirs does.

use ::redis::Connection;
use delayline::{NewTask, Scheduler};
use tracing::Level;

use super::*;
use crate::logged::Logged;
use crate::redis_server::RedisServer;

fn run(server: &mut Connection, command: &[&str]) {
    let (name, args) = command.split_first().expect("a command");
    ::redis::cmd(name).arg(args).exec(server).expect("done");
}

/// Lets so much time pass at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn task(key: &str) -> NewTask {
    NewTask::new("order.cancel", &())
        .key(key)
        .after(Duration::from_secs(600))
}

#[tokio::test]
async fn a_scheduler_gives_nothing_to_a_server_that_would_remove_it() {
    const POLICY: [&str; 3] = ["CONFIG", "SET", "maxmemory-policy"];
    let with = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = RedisServer::start_with(&with);
    let scheduler = Scheduler::new(RedisStore::new(&server.url()).unwrap());
    let error = scheduler.schedule(task("a")).await.unwrap_err();
    assert!(
        error.to_string().contains("allkeys-lru") && !error.is_transient(),
        "{error}"
    );

    let mut admin = server.admin();
    run(&mut admin, &[&POLICY[..], &["noeviction"]].concat());
    pass(Duration::from_secs(61)).await;
    scheduler.schedule(task("a")).await.unwrap();
    // An operator sets it while the service runs.
    run(&mut admin, &[&POLICY[..], &["allkeys-random"]].concat());
    pass(Duration::from_secs(61)).await;
    let error = scheduler.schedule(task("b")).await.unwrap_err();
    assert!(error.to_string().contains("allkeys-random"), "{error}");
    // What is there goes its way.
    assert!(scheduler.cancel(("order.cancel", "a")).await.unwrap().is_done());
}

#[tokio::test]
async fn a_user_who_may_neither_ask_nor_publish_is_told_what_that_costs() {
    let server = RedisServer::start();
    let rules = ["on", ">s3cret", "~*", "+@all", "-info", "resetchannels"];
    run(
        &mut server.admin(),
        &[&["ACL", "SETUSER", "clerk"][..], &rules].concat(),
    );
    let url = server.url().replace("redis://", "redis://clerk:s3cret@");
    let (logged, _listening) = Logged::by_thread(Level::WARN);
    let scheduler = Scheduler::new(RedisStore::new(&url).unwrap());
    for key in ["a", "b"] {
        scheduler.schedule(task(key)).await.unwrap();
    }
    let text = logged.text();
    assert_eq!(logged.count("cannot be found out"), 1, "{text}");
    assert_eq!(logged.count("other processes are not told"), 1, "{text}");
    assert!(text.contains("+info") && text.contains("+publish"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}
