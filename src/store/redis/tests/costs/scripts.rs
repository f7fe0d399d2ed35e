//! How long a script keeps the server from others.

use super::*;
use crate::store::Page;

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
        overdue_after: NONE,
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
        after: Some((crate::Timestamp::from_millis(1), id(ROWS / 2))),
        ..Page::new(KIND, State::Scheduled).limit(500)
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

#[tokio::test]
async fn no_script_is_long_however_many_kinds_there_are() {
    const KINDS: u64 = 10_000;
    const MOST: u64 = 700;
    for shards in [1, 4] {
        let server = RedisServer::start();
        let mut store = open_without_history(&server, shards);
        // It is counted what the calls do, which takes some of them ten seconds on a busy machine.
        store.engine.limit(LONG);
        let mut admin = server.admin();
        let row = |n: u64| NewRow {
            kind: format!("kind-{n:05}").into(),
            overdue_after: if n.is_multiple_of(2) { NONE } else { LONG },
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
        // There is nothing to do, and no call goes through them.
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
