//! Many workers that claim the same kind at once: none is in the way of another's claims.

use std::collections::BTreeMap;

use delayline::store::{Claim, Ending, Guarded, NewRow, Step, When};
use delayline::{Kind, TaskId};

use super::*;

const ROWS: usize = 8_000;
const CLAIMERS: usize = 8;
/// How many of these ends may meet a lock at first: hardly any, if no machine stands still. Where none waits for locks that last
/// as long as a statement they are many, up to every second.
const FEW: usize = ROWS / 50;

fn row(number: usize) -> NewRow {
    NewRow {
        id: TaskId::from_bytes((number as u128).to_be_bytes()),
        kind: "k".into(),
        key: None,
        payload: vec![7; 100],
        headers: BTreeMap::new(),
        due: When::After(Duration::ZERO),
        overdue_after: Duration::ZERO,
        max_attempts: None,
        replace: false,
        note: Default::default(),
    }
}

/// Claims and ends until nothing is left; says how many ends, and how many were blocked at first.
async fn work(store: Arc<dyn Store>, owner: usize) -> (usize, usize) {
    let claim = Claim {
        owner: format!("claimer-{owner}").into(),
        lease: Duration::from_secs(300),
        room: [(Kind::from("k"), 50)].into(),
        bytes: usize::MAX,
        history: Default::default(),
    };
    let (mut done, mut blocked) = (0, 0);
    loop {
        let claimed = store.ready(&claim).await.unwrap().found;
        if claimed.is_empty() {
            return (done, blocked);
        }
        let end = |task: &delayline::Task| Step::end(task.id, task.version, Ending::Done);
        let mut steps: Vec<_> = claimed.iter().map(end).collect();
        let mut is_first = true;
        while !steps.is_empty() {
            let came = store.advance(&steps).await.unwrap();
            done += came.iter().filter(|came| **came == Guarded::Done).count();
            let mut came = came.into_iter();
            steps.retain(|_| came.next() == Some(Guarded::Blocked));
            if std::mem::take(&mut is_first) {
                blocked += steps.len();
            }
        }
    }
}

/// Has all rows ended by several claimers; each once.
async fn crowd(fixture: &dyn StoreFixture) {
    let store = fixture.store(Duration::from_secs(600)).await;
    for part in (0..ROWS).collect::<Vec<_>>().chunks(500) {
        let rows = part.iter().copied().map(row).collect();
        store.insert(rows).await.unwrap();
    }
    let claimers: Vec<_> = (0..CLAIMERS)
        .map(|owner| tokio::spawn(work(Arc::clone(&store), owner)))
        .collect();
    let (mut done, mut blocked) = (0, 0);
    for claimer in claimers {
        let (ended, met) = claimer.await.unwrap();
        (done, blocked) = (done + ended, blocked + met);
    }
    assert_eq!(done, ROWS);
    assert!(blocked <= FEW, "{blocked} of {ROWS} ends met a lock");
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_claim_is_blocked_by_other_claimers_on_postgresql() {
    crowd(&on_postgres::Server).await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_claim_is_blocked_by_other_claimers_on_mysql() {
    crowd(&on_mysql::Server).await;
}
