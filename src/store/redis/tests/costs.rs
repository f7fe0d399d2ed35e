//! How often the store asks its server.

mod payloads;
mod scripts;

use super::consistent::ask;
use super::*;
use crate::store::{Ahead, Renewal};

const AHEAD: Ahead = Ahead {
    within: Duration::from_secs(2),
    limit: 4_096,
};

/// How often scripts were called, and commands within or without them.
fn counted(admin: &mut redis::Connection) -> (u64, u64) {
    let info: String = ask(admin, &["INFO", "commandstats"]);
    let (mut scripts, mut commands) = (0, 0);
    for line in info.lines() {
        let Some((name, rest)) = line
            .strip_prefix("cmdstat_")
            .and_then(|line| line.split_once(":calls="))
        else {
            continue;
        };
        let calls: u64 = rest
            .split(',')
            .next()
            .and_then(|calls| calls.parse().ok())
            .unwrap();
        commands += calls;
        if name.starts_with("eval") {
            scripts += calls;
        }
    }
    (scripts, commands)
}

async fn fill(store: &RedisStore, count: u64, row: impl Fn(u64) -> NewRow) {
    let numbers: Vec<_> = (1..=count).collect();
    for part in numbers.chunks(1_000) {
        store
            .insert(part.iter().map(|n| row(*n)).collect())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn an_idle_store_is_hardly_asked() {
    for shards in [1, 16] {
        let server = RedisServer::start();
        let writer = open(&server, shards);
        fill(&writer, 2_000, later).await;
        let store = open(&server, shards);
        // It listens.
        store.notified().await;
        let sweep = Sweep {
            ahead: Some(AHEAD),
            ..sweep()
        };
        let mut admin = server.admin();
        let mut last = store.sweep(&claim(1), &sweep).await.unwrap().now;
        store.purge(100).await.unwrap();
        let (before, _) = counted(&mut admin);
        for _ in 0..100 {
            let swept = store.sweep(&claim(1), &sweep).await.unwrap();
            assert_eq!(swept.found, crate::store::PollResult::default());
            assert!(swept.now >= last);
            last = swept.now;
            assert_eq!(store.purge(100).await.unwrap(), 0);
        }
        let (after, _) = counted(&mut admin);
        // Each shard once more at the most, should eight seconds pass meanwhile; and one call for the number of shards.
        let asked = after - before;
        assert!(
            asked <= 2 * u64::from(shards) + 2,
            "{shards} shards were asked {asked} times"
        );

        // What it writes itself it finds in the next sweep.
        add(
            &store,
            NewRow {
                overdue_after: NONE,
                ..due(9_001)
            },
        )
        .await;
        let found = store.sweep(&claim(1), &sweep).await.unwrap().found;
        assert_eq!(found.claimed.len(), 1, "{shards} shards");
        // And a call that writes without being answered has perhaps written.
        store.sweep(&claim(1), &sweep).await.unwrap();
        store.sweep(&claim(1), &sweep).await.unwrap();
        let (before, _) = counted(&mut admin);
        drop(store.database.idle.writing(0));
        store.sweep(&claim(1), &sweep).await.unwrap();
        let (after, _) = counted(&mut admin);
        assert!(after > before);
    }
}

#[tokio::test]
async fn while_a_lease_runs_each_sweep_asks_for_the_time() {
    for shards in [1, 16] {
        let server = RedisServer::start();
        let store = open(&server, shards);
        // It listens.
        store.notified().await;
        add(&store, due(1)).await;
        let claimed = store.ready(&claim(1)).await.unwrap().found;
        let mut admin = server.admin();
        // The first time it is told the script.
        store.now().await.unwrap();
        let mut calls_of_sweeps = async |count: u64| {
            store.sweep(&claim(1), &sweep()).await.unwrap();
            let (before, _) = counted(&mut admin);
            for _ in 0..count {
                store.sweep(&claim(1), &sweep()).await.unwrap();
            }
            counted(&mut admin).0 - before
        };
        assert_eq!(calls_of_sweeps(20).await, 20, "{shards} shards");
        let end = Step::end(id(1), claimed[0].version, Ending::Done);
        assert_eq!(store.advance(&[end]).await.unwrap(), [Guarded::Done]);
        assert_eq!(calls_of_sweeps(20).await, 0, "{shards} shards");
    }
}

/// Changes of callers that come at once, each by itself: their answers, and how often scripts were called.
async fn changed_at_once(
    store: &RedisStore,
    admin: &mut redis::Connection,
    ids: &[u64],
) -> (Vec<Result<Answer, crate::Error>>, u64) {
    let (before, _) = counted(admin);
    let changes = ids.iter().map(|number| async move {
        let change = Change {
            target: id(*number).into(),
            verb: Verb::Cancel,
            expect: Expect::Anything,
            note: Default::default(),
        };
        store
            .change(vec![change])
            .await
            .and_then(|mut answered| answered.found.remove(0))
    });
    let answers = futures_util::future::join_all(changes).await;
    let (after, _) = counted(admin);
    (answers, after - before)
}

#[tokio::test]
async fn callers_that_come_at_once_share_calls_and_each_hears_of_its_own_change() {
    let server = RedisServer::start();
    let store = open(&server, 1);
    fill(&store, 100, later).await;
    let mut admin = server.admin();
    let () = redis::cmd("HSET")
        .arg("{delayline:tasks:0}:rows")
        .arg(id(7).as_bytes())
        .arg("no row")
        .query(&mut admin)
        .unwrap();
    let ids: Vec<_> = (1..=101).collect();
    let (answers, calls) = changed_at_once(&store, &mut admin, &ids).await;
    for (number, answer) in ids.iter().zip(answers) {
        match (number, answer) {
            (7, answer) => assert!(answer.is_err(), "{answer:?}"),
            (101, answer) => assert_eq!(answer.unwrap(), Answer::NotFound),
            (_, Ok(Answer::Done(task))) => assert_eq!(task.id, id(*number)),
            (_, answer) => panic!("{number}: {answer:?}"),
        }
    }
    assert!(calls <= 10, "{calls} calls for 101 callers");
}

#[tokio::test]
async fn callers_share_their_looks_for_ids_that_are_not_where_they_belong() {
    const CALLERS: u64 = 100;
    let server = RedisServer::start();
    let store = open(&server, 8);
    // The first time it is told the script.
    assert_eq!(store.find(&id(1).into()).await.unwrap(), None);
    let mut admin = server.admin();
    let (before, _) = counted(&mut admin);
    let looks = (1..=CALLERS).map(|n| {
        let store = &store;
        async move { store.find(&id(n).into()).await.unwrap() }
    });
    let found = futures_util::future::join_all(looks).await;
    assert!(found.iter().all(Option::is_none));
    let calls = counted(&mut admin).0 - before;
    // Each asks the shard that its id names.
    assert!(calls <= CALLERS + 8 * CALLERS / 4, "{calls} calls");
}

/// Calls of scripts for one caller's call, on rows that are known to the store.
#[tokio::test]
async fn a_call_of_one_row_is_one_or_two_calls_of_scripts() {
    let server = RedisServer::start();
    let store = open(&server, 1);
    let mut admin = server.admin();
    let mut last = 0;
    // The first time it is told the scripts.
    for n in [10, 20] {
        add(&store, named(n + 1, "a")).await;
        last = counted(&mut admin).0.max(last);
        let mut check = |what: &str, expected: u64| {
            let now = counted(&mut admin).0;
            assert!(n == 10 || now - last == expected, "{what}: {} calls", now - last);
            last = now;
        };
        add(&store, named(n + 2, "b")).await;
        check("insert", 1);
        assert!(matches!(
            insert(&store, named(n + 3, "b")).await,
            Scheduled::Existing(_)
        ));
        check("insert of a key that is there", 2);
        assert!(
            change(&store, id(n + 2), Verb::RunNow { overdue_after: LONG })
                .await
                .is_done()
        );
        check("run now", 2);
        let task = store.find(&id(n + 1).into()).await.unwrap().unwrap();
        check("find", 1);
        let polled = store.arrive(&[wake(&task)], &claim(9)).await.unwrap().found;
        check("arrive", 1);
        let claimed = store.ready(&claim(9)).await.unwrap().found;
        check("ready", 1);
        let all = [&polled.claimed[0], &claimed[0]];
        let renewals = all.map(|task| Renewal {
            id: task.id,
            version: task.version,
            started: true,
        });
        assert_eq!(store.renew(&renewals, LONG).await.unwrap(), [Guarded::Done; 2]);
        check("renew", 2);
        let ends = all.map(|task| Step::end(task.id, task.version, Ending::Done));
        assert_eq!(store.advance(&ends).await.unwrap(), [Guarded::Done; 2]);
        check("end", 2);
    }
}
