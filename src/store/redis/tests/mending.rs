//! Clocks of servers that were ahead, and came back.

use super::consistent::{ask, assert_consistent};
use super::*;
use crate::Timestamp;
use crate::clock::Clock;
use crate::store::redis::idle::Idle;

/// Where the head of a row has its `wake_at`, and when it was updated.
const WAKE: usize = 9;
const UPDATED: usize = 31;

/// Makes a row be as if the clock had been an hour ahead when it was claimed.
fn put_ahead(admin: &mut redis::Connection, task: &Task) {
    let key = "{delayline:tasks:0}:rows";
    let mut get = redis::cmd("HGET");
    let mut head: Vec<u8> = get.arg(key).arg(task.id.as_bytes()).query(admin).unwrap();
    let later = |time: Timestamp| time.after(LONG).as_millis();
    let (wake, updated) = (later(task.wake_at.unwrap()), later(task.updated_at));
    for (at, millis) in [(WAKE, wake), (UPDATED, updated)] {
        head[at..at + 8].copy_from_slice(&millis.to_le_bytes());
    }
    let () = redis::cmd("HSET")
        .arg(key)
        .arg(task.id.as_bytes())
        .arg(head)
        .query(admin)
        .unwrap();
    let index = format!("{{delayline:tasks:0}}:wake:1:{KIND}");
    let () = redis::cmd("ZADD")
        .arg(index)
        .arg(wake)
        .arg(task.id.as_bytes())
        .query(admin)
        .unwrap();
    let first = [
        "ZADD",
        "{delayline:tasks:0}:first:wake:1",
        &wake.to_string(),
        KIND,
    ];
    ask::<u64>(admin, &first);
}

#[tokio::test]
async fn a_lease_that_was_given_while_the_clock_was_ahead_is_mended() {
    const COUNT: usize = 50;
    let server = RedisServer::start();
    let store = open(&server, 1);
    let lease = Duration::from_secs(30);
    for n in 1..=COUNT as u64 {
        add(&store, due(n)).await;
    }
    let short = Claim {
        lease,
        ..claim(COUNT)
    };
    let claimed = store.ready(&short).await.unwrap().found;
    let well = add(&store, due(900)).await;
    let well = store
        .arrive(&[wake(&well)], &claim(1))
        .await
        .unwrap()
        .found
        .claimed
        .remove(0);
    for task in &claimed {
        put_ahead(&mut server.admin(), task);
    }
    let (renewed, claimed) = claimed.split_first().unwrap();
    let renewal = Renewal {
        id: renewed.id,
        version: renewed.version,
        started: true,
    };
    assert_eq!(store.renew(&[renewal], LONG).await.unwrap(), [Guarded::Done]);
    let renewed = store.find(&renewed.id.into()).await.unwrap();
    store.purge(100).await.unwrap();
    assert_eq!(
        store.find(&renewed.as_ref().unwrap().id.into()).await.unwrap(),
        renewed,
        "one that was renewed since"
    );
    let now = store.now().await.unwrap();
    for task in claimed {
        let found = store.find(&task.id.into()).await.unwrap().unwrap();
        assert_eq!(found.version, task.version, "no transition");
        assert!(found.updated_at <= now, "{found:?}");
        let length = found.wake_at.unwrap().millis_since(found.updated_at);
        assert_eq!(length, 30_000, "a lease of the same length");
    }
    assert_eq!(store.find(&well.id.into()).await.unwrap(), Some(well));
    assert_consistent(&server, 1, "mended leases");
}

#[test]
fn a_shard_is_asked_again_when_the_clock_of_its_server_has_jumped() {
    let idle = Idle::new(Clock::system());
    let at = |seconds: i64| Timestamp::from_millis(1_800_000_000_000 + seconds * 1_000);
    let rest = |shard, now| {
        let firsts = [("wake:0".to_owned(), None)].into_iter();
        idle.keep(shard, idle.writes(shard), now, firsts);
    };
    let is_quiet = |shard| {
        let indexes = [("wake:0", Some(NONE))].into_iter();
        idle.quiet(shard, indexes, LONG).is_some()
    };
    for (jump, is_known) in [(0, true), (3, true), (-3_600, false), (3_600, false)] {
        rest(0, at(0));
        idle.heard(0, at(jump));
        assert_eq!(is_quiet(0), is_known, "{jump} s");
    }
    // Masters have clocks of their own.
    rest(0, at(0));
    rest(1, at(900));
    idle.heard(0, at(0));
    idle.heard(1, at(900));
    assert!((0..2).all(is_quiet));
    // What is written while it was asked may come earlier than what it said.
    let writes = idle.writes(0);
    idle.forget(0);
    idle.keep(0, writes, at(0), [("wake:0".to_owned(), None)].into_iter());
    assert!(!is_quiet(0));
}

/// What a process heard before its machine slept is as old as the sleep was long.
#[tokio::test(start_paused = true)]
async fn a_shard_is_asked_again_after_a_sleep() {
    let clock = Clock::simulated(1);
    let idle = Idle::new(clock.clone());
    let is_quiet = || {
        let indexes = [("wake:0", Some(NONE))].into_iter();
        idle.quiet(0, indexes, LONG)
    };
    let now = Timestamp::from_millis(1_800_000_000_000);
    idle.keep(0, 0, now, [("wake:0".to_owned(), None)].into_iter());
    let half = LONG / 2;
    clock.suspend(half);
    tokio::time::sleep(half).await;
    assert_eq!(is_quiet(), Some(now.after(half)), "its server did not sleep");
    clock.suspend(half);
    tokio::time::sleep(half).await;
    assert_eq!(is_quiet(), None);
}
