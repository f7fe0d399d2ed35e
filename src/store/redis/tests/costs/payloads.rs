//! What payloads cost.

use super::*;
use crate::store::Page;

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
        overdue_after: NONE,
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
        verb: Verb::RunNow { overdue_after: NONE },
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
