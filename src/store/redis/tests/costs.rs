//! What the store costs its server.

use super::consistent::ask;
use super::*;
use crate::store::{Ahead, Hop, Page, Renewal};

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
            assert_eq!(swept.found, crate::store::Looked::default());
            assert!(swept.now >= last);
            last = swept.now;
            assert_eq!(store.purge(100).await.unwrap(), 0);
        }
        let (after, _) = counted(&mut admin);
        // Each shard once more at the most, should eight seconds pass on the way; and who looks how many shards there are.
        let asked = after - before;
        assert!(
            asked <= 2 * u64::from(shards) + 2,
            "{shards} shards were asked {asked} times"
        );

        // What it writes itself it finds in the next sweep.
        add(
            &store,
            NewRow {
                look_in: NONE,
                ..due(9_001)
            },
        )
        .await;
        let found = store.sweep(&claim(1), &sweep).await.unwrap().found;
        assert_eq!(found.claimed.len(), 1, "{shards} shards");
        // And who writes without being answered has perhaps written.
        store.sweep(&claim(1), &sweep).await.unwrap();
        store.sweep(&claim(1), &sweep).await.unwrap();
        let (before, _) = counted(&mut admin);
        drop(store.database.quiet.writing(0));
        store.sweep(&claim(1), &sweep).await.unwrap();
        let (after, _) = counted(&mut admin);
        assert!(after > before);
    }
}

/// However many rows there are, each call of a script is some hundreds of commands, none of which goes through a whole
/// index: what takes a server a few ms at the most.
#[tokio::test]
async fn no_script_is_long_however_many_rows_there_are() {
    const ROWS: u64 = 100_000;
    const MOST: u64 = 700;
    let server = RedisServer::start();
    let store = open(&server, 1).keep_history(NONE);
    let mut admin = server.admin();
    let mut last = (0, 0);
    let mut check = |what: &str| {
        let now = counted(&mut admin);
        let (scripts, commands) = (now.0 - last.0, now.1 - last.1);
        last = now;
        assert!(
            commands <= MOST * scripts.max(1),
            "{what}: {commands} commands in {scripts} scripts"
        );
    };
    // Half of them due at one moment, all overdue, each with a key.
    let row = |n: u64| NewRow {
        due: if n.is_multiple_of(2) {
            When::At(crate::Timestamp::from_millis(1))
        } else {
            When::After(LONG)
        },
        look_in: NONE,
        ..named(n, &n.to_string())
    };
    fill(&store, ROWS, row).await;
    check("insert");
    let swept = Sweep {
        limit: 500,
        ahead: Some(Ahead {
            within: 2 * LONG,
            limit: 4_096,
        }),
        ..sweep()
    };
    let found = store.sweep(&claim(300), &swept).await.unwrap().found;
    assert_eq!(
        (
            found.claimed.len() + found.early.len() + found.waiting.values().sum::<usize>(),
            found.ahead.len()
        ),
        (500, 4_096)
    );
    check("sweep");
    store.sweep(&claim(0), &swept).await.unwrap();
    check("sweep without room");
    let ready = store.ready(&claim(500)).await.unwrap().found;
    assert_eq!(ready.len(), 500);
    check("ready");
    let renewal = |task: &Task| Renewal {
        id: task.id,
        version: task.version,
        started: true,
    };
    let claims: Vec<_> = ready.iter().map(renewal).collect();
    store.renew(&claims, LONG).await.unwrap();
    check("renew");
    let end = |task: &Task| Settlement {
        id: task.id,
        version: task.version,
        ending: Ending::Done,
    };
    store.settle(ready.iter().map(end).collect()).await.unwrap();
    check("settle");
    let page = Page {
        kind: KIND.into(),
        state: State::Scheduled,
        after: Some((crate::Timestamp::from_millis(1), id(ROWS / 2))),
        limit: 500,
    };
    let listed = store.list(&page).await.unwrap();
    assert_eq!(listed.len(), 500);
    check("list");
    let wakes: Vec<_> = listed.iter().map(wake).collect();
    let looked = store.arrive(&wakes, &claim(250)).await.unwrap().found;
    assert_eq!(looked.claimed.len(), 250);
    check("arrive");
    let hops: Vec<_> = listed
        .iter()
        .map(|task| Hop {
            id: task.id,
            version: task.version,
            look_in: LONG,
        })
        .collect();
    store.hop(&hops).await.unwrap();
    check("hop");
    let cancel = |n: u64| Change {
        target: (KIND, n.to_string()).into(),
        verb: Verb::Cancel,
        expect: Expect::Anything,
    };
    store.change((1..=500).map(cancel).collect()).await.unwrap();
    check("change");
    let ahead = Ahead {
        within: 2 * LONG,
        limit: 4_096,
    };
    assert_eq!(store.upcoming(ahead).await.unwrap().found.len(), 4_096);
    check("upcoming");
    assert_eq!(store.purge(500).await.unwrap(), 500);
    check("purge");
}

/// Changes of callers who come at once, each by itself: their answers, and how often scripts were called.
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
async fn callers_who_come_at_once_share_calls_and_each_hears_of_its_own_change() {
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
