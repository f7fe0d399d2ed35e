//! What the store costs its server.

use super::consistent::ask;
use super::*;
use crate::store::{Ahead, Page, Renewal};

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
        drop(store.database.idle.writing(0));
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
    let store = open_without_history(&server, 1);
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
    let end = |task: &Task| Step::end(task.id, task.version, Ending::Done);
    let ends: Vec<_> = ready.iter().map(end).collect();
    store.advance(&ends).await.unwrap();
    check("settle");
    let page = Page {
        kind: KIND.into(),
        state: State::Scheduled,
        after: Some((crate::Timestamp::from_millis(1), id(ROWS / 2))),
        before: None,
        limit: 500,
    };
    let listed = store.list(&page).await.unwrap();
    assert_eq!(listed.len(), 500);
    check("list");
    let counted = store
        .due_within(&KIND.into(), State::Scheduled, &[2 * LONG; 8], 1_000)
        .await
        .unwrap();
    assert_eq!(counted.found, [1_000; 8]);
    check("due within");
    let wakes: Vec<_> = listed.iter().map(wake).collect();
    let looked = store.arrive(&wakes, &claim(250)).await.unwrap().found;
    assert_eq!(looked.claimed.len(), 250);
    check("arrive");
    let hops: Vec<_> = listed
        .iter()
        .map(|task| Step::hop(task.id, task.version, LONG))
        .collect();
    store.advance(&hops).await.unwrap();
    check("hop");
    let cancel = |n: u64| Change {
        target: (KIND, n.to_string()).into(),
        verb: Verb::Cancel,
        expect: Expect::Anything,
        note: Default::default(),
    };
    store.change((1..=500).map(cancel).collect()).await.unwrap();
    check("change");
    let ahead = Ahead {
        within: 2 * LONG,
        limit: 4_096,
    };
    let look = Sweep {
        limit: 0,
        ahead: Some(ahead),
        ..sweep()
    };
    let found = store.sweep(&claim(0), &look).await.unwrap().found;
    assert_eq!(found.ahead.len(), 4_096);
    check("a look ahead");
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

/// For how many µs the server has run scripts.
fn micros(admin: &mut redis::Connection) -> u64 {
    let info: String = ask(admin, &["INFO", "commandstats"]);
    let of_scripts = info.lines().filter(|line| line.starts_with("cmdstat_eval"));
    let micros = of_scripts.map(|line| {
        let (_, rest) = line.split_once("usec=").unwrap();
        rest.split(',').next().unwrap().parse::<u64>().unwrap()
    });
    micros.sum()
}

fn with_payload(n: u64, bytes: usize) -> NewRow {
    NewRow {
        payload: vec![7; bytes],
        look_in: NONE,
        ..due(n)
    }
}

/// How long the server works for what needs no payloads, on rows with payloads of so many bytes.
async fn worked_for(bytes: usize) -> u64 {
    const ROWS: u64 = 20;
    let server = RedisServer::start();
    let store = open_without_history(&server, 1);
    for n in 1..=ROWS {
        add(&store, with_payload(n, bytes)).await;
    }
    let fleeting = Claim {
        lease: NONE,
        ..claim(ROWS as usize)
    };
    assert_eq!(store.ready(&fleeting).await.unwrap().found.len(), ROWS as usize);
    let mut admin = server.admin();
    let before = micros(&mut admin);
    let expired = store.sweep(&claim(0), &sweep()).await.unwrap().found.expired;
    assert_eq!(expired, ROWS as usize);
    let hops = (1..=ROWS).map(|n| Step::hop(id(n), 3, NONE));
    let hops: Vec<_> = hops.collect();
    assert_eq!(
        store.advance(&hops).await.unwrap(),
        [Guarded::Done; ROWS as usize]
    );
    let mut worked = micros(&mut admin) - before;
    let claimed = store.ready(&claim(ROWS as usize)).await.unwrap().found;
    let before = micros(&mut admin);
    let renewals = claimed.iter().map(|task| Renewal {
        id: task.id,
        version: task.version,
        started: true,
    });
    let renewals: Vec<_> = renewals.collect();
    assert_eq!(
        store.renew(&renewals, LONG).await.unwrap(),
        [Guarded::Done; ROWS as usize]
    );
    let end = |task: &Task| Step::end(task.id, task.version, Ending::Done);
    let ends: Vec<_> = claimed.iter().map(end).collect();
    let ended = store.advance(&ends).await.unwrap();
    assert_eq!(ended, [Guarded::Done; ROWS as usize]);
    assert_eq!(store.purge(100).await.unwrap(), ROWS);
    worked += micros(&mut admin) - before;
    worked
}

/// A script that read payloads of 1 MiB would take a thousand times as long, each time. A machine that has other work, too,
/// takes longer now and then.
#[tokio::test]
async fn what_needs_no_payload_costs_the_same_however_big_payloads_are() {
    let mut seen = Vec::new();
    for _ in 0..5 {
        let small = worked_for(100).await;
        let big = worked_for(1 << 20).await;
        if big < 20 * small.max(1_000) {
            return;
        }
        seen.push((small, big));
    }
    panic!("µs with payloads of 100 bytes, and of 1 MiB: {seen:?}");
}

#[tokio::test]
async fn no_call_gives_or_takes_many_payloads_that_are_big() {
    const ROWS: u64 = 12;
    let server = RedisServer::start();
    let store = open(&server, 1);
    let mut admin = server.admin();
    let mut last = 0;
    // Each of these fills a call by itself.
    let mut check = |what: &str| {
        let (now, _) = counted(&mut admin);
        let calls = now - last;
        last = now;
        assert!(calls >= ROWS, "{what}: {calls} calls for {ROWS} rows");
    };
    let rows = || (1..=ROWS).map(|n| with_payload(n, 256 << 10)).collect::<Vec<_>>();
    store.insert(rows()).await.unwrap();
    check("insert");
    let again = store.insert(rows()).await.unwrap().found;
    assert!(again.iter().all(|row| matches!(row, Ok(Scheduled::Existing(_)))));
    check("insert again");
    let page = Page::new(KIND, State::Scheduled).limit(100);
    let listed = store.list(&page).await.unwrap();
    assert_eq!(listed.len(), ROWS as usize);
    check("list");
    let run_now = |n| Change {
        target: id(n).into(),
        verb: Verb::RunNow { look_in: NONE },
        expect: Expect::Anything,
        note: Default::default(),
    };
    store.change((1..=ROWS).map(run_now).collect()).await.unwrap();
    check("change");
    let fleeting = Claim {
        lease: NONE,
        ..claim(100)
    };
    assert_eq!(store.ready(&fleeting).await.unwrap().found.len(), ROWS as usize);
    check("ready");
    let swept = store.sweep(&fleeting, &sweep()).await.unwrap().found;
    assert_eq!(swept.claimed.len(), ROWS as usize);
    assert!(swept.claimed.iter().all(|task| task.payload.len() == 256 << 10));
    check("sweep");
}

#[tokio::test]
async fn no_script_is_long_however_many_kinds_there_are() {
    const KINDS: u64 = 10_000;
    const MOST: u64 = 700;
    for shards in [1, 4] {
        let server = RedisServer::start();
        let store = open_without_history(&server, shards);
        let mut admin = server.admin();
        let row = |n: u64| NewRow {
            kind: format!("kind-{n:05}").into(),
            look_in: if n.is_multiple_of(2) { NONE } else { LONG },
            ..later(n)
        };
        fill(&store, KINDS, row).await;
        let mut last = counted(&mut admin);
        let mut check = |what: &str, most_scripts: u64| {
            let now = counted(&mut admin);
            let (scripts, commands) = (now.0 - last.0, now.1 - last.1);
            last = now;
            assert!(scripts <= most_scripts, "{what}: {scripts} scripts");
            assert!(
                commands <= MOST * scripts.max(1),
                "{what}: {commands} commands in {scripts} scripts"
            );
        };
        let with_ahead = Sweep {
            ahead: Some(AHEAD),
            ..sweep()
        };
        let swept = store.sweep(&claim(9), &with_ahead).await.unwrap().found;
        assert_eq!(swept.early.len() as u64, KINDS / 2);
        check("sweep", 300);
        // There is nothing to do, and nobody goes through them.
        assert_eq!(store.sweep(&claim(9), &with_ahead).await.unwrap().found.early, []);
        check("idle sweep", 3 * u64::from(shards));
        store.purge(100).await.unwrap();
        check("idle purge", 3 * u64::from(shards));
        let (mut found, mut after) = (0, None);
        loop {
            let kinds = store.kinds(State::Scheduled, after.as_ref(), 900).await.unwrap();
            assert!(kinds.is_sorted());
            found += kinds.len() as u64;
            after = kinds.last().cloned();
            if kinds.is_empty() {
                break;
            }
        }
        assert_eq!(found, KINDS);
        check("kinds", 100);
        let ahead = Ahead {
            within: 2 * LONG,
            limit: 50,
        };
        let look = Sweep {
            limit: 0,
            ahead: Some(ahead),
            ..sweep()
        };
        let found = store.sweep(&claim(0), &look).await.unwrap().found;
        assert_eq!(found.ahead.len(), 50);
        check("a look ahead", 300);
        let checkup = store.checkup().await.unwrap().unwrap();
        assert_eq!((checkup.rows(), checkup.shards), (KINDS, shards));
        check("checkup", 300);
        let cancel = |n: u64| Change {
            target: id(n).into(),
            verb: Verb::Cancel,
            expect: Expect::Anything,
            note: Default::default(),
        };
        for some in (1..=KINDS).collect::<Vec<_>>().chunks(500) {
            store
                .change(some.iter().copied().map(cancel).collect())
                .await
                .unwrap();
        }
        check("change", 250);
        assert_eq!(store.purge(100).await.unwrap(), KINDS);
        check("purge", 1_000);
    }
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
            change(&store, id(n + 2), Verb::RunNow { look_in: LONG })
                .await
                .is_done()
        );
        check("run now", 2);
        let task = store.find(&id(n + 1).into()).await.unwrap().unwrap();
        check("find", 1);
        let looked = store.arrive(&[wake(&task)], &claim(9)).await.unwrap().found;
        check("arrive", 1);
        let claimed = store.ready(&claim(9)).await.unwrap().found;
        check("ready", 1);
        let all = [&looked.claimed[0], &claimed[0]];
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
