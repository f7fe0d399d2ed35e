//! Cases of several callers at once.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::StoreFixture;
use super::trial::*;
use crate::store::{Change, Ending, Expect, Guarded, Step, Store, Verb, When};
use crate::{Scheduled, State, Task, TaskId, Timestamp};

/// How many callers there are.
const CALLERS: usize = 8;
/// How many rows they compete for.
const ROWS: u64 = 60;

/// Runs several callers, each in a task of its own, all started at one moment; returns their answers in any order.
async fn together<T, F>(
    trial: &Trial<'_>,
    callers: usize,
    call: impl Fn(Arc<dyn Store>, usize) -> F,
) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let start = Arc::new(Barrier::new(callers));
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let start = start.clone();
        let call = call(trial.store.clone(), caller);
        tasks.spawn(async move {
            start.wait().await;
            call.await
        });
    }
    tasks.join_all().await
}

/// Asserts that every row was claimed exactly once, and is as its claim.
async fn assert_claimed_once(trial: &Trial<'_>, mut claimed: Vec<Task>) {
    claimed.sort_by_key(|task| task.id);
    assert_eq!(ids(&claimed), (1..=ROWS).map(id).collect::<Vec<TaskId>>());
    for task in claimed {
        assert_eq!((task.state, task.attempt), (State::Running, 1));
        assert_eq!(trial.get(task.id).await, task);
    }
}

pub(super) async fn a_wake_that_arrives_everywhere_claims_once(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.insert((1..=ROWS).map(due).collect()).await;
    let rows = trial.list(KIND, State::Scheduled, MANY).await;
    let wakes: Vec<_> = rows.iter().map(wake).collect();
    let claimed = together(&trial, CALLERS, |store, caller| {
        // In opposite orders, in which rows would be locked.
        let mut wakes = wakes.clone();
        if caller % 2 == 1 {
            wakes.reverse();
        }
        async move { ok(store.arrive(&wakes, &any()).await).found.claimed }
    });
    assert_claimed_once(&trial, claimed.await.concat()).await;
}

pub(super) async fn a_ready_row_is_claimed_once(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.insert((1..=ROWS).map(due).collect()).await;
    let claimed = together(&trial, CALLERS, |store, _| async move {
        let mut claimed = Vec::new();
        for _ in 0..ROWS {
            let found = ok(store.ready(&claim(&[(KIND, 3)])).await).found;
            assert!(found.len() <= 3);
            claimed.extend(found);
        }
        claimed
    });
    assert_claimed_once(&trial, claimed.await.concat()).await;
}

pub(super) async fn an_overdue_row_is_claimed_once(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.insert((1..=ROWS).map(overdue).collect()).await;
    let claimed = together(&trial, CALLERS, |store, _| async move {
        let mut claimed = Vec::new();
        for _ in 0..ROWS {
            let found = ok(store.sweep(&any(), &plain(7, LONG)).await).found;
            claimed.extend(found.claimed);
        }
        claimed
    });
    assert_claimed_once(&trial, claimed.await.concat()).await;
}

pub(super) async fn a_row_that_comes_by_every_way_is_claimed_once(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.insert((1..=ROWS).map(overdue).collect()).await;
    let rows = trial.list(KIND, State::Scheduled, MANY).await;
    let wakes: Vec<_> = rows.iter().map(wake).collect();
    let claimed = together(&trial, CALLERS, |store, caller| {
        let wakes = wakes.clone();
        async move {
            let mut claimed = Vec::new();
            for wakes in wakes.chunks(5) {
                claimed.extend(match caller % 3 {
                    0 => ok(store.arrive(wakes, &any()).await).found.claimed,
                    1 => ok(store.ready(&claim(&[(KIND, 2)])).await).found,
                    _ => ok(store.sweep(&any(), &plain(2, LONG)).await).found.claimed,
                });
            }
            claimed
        }
    });
    let mut claimed = claimed.await.concat();
    claimed.extend(trial.ready(&any()).await);
    assert_claimed_once(&trial, claimed).await;
}

pub(super) async fn a_lost_wake_is_early_for_one_sweeper(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.insert((1..=ROWS).map(lost).collect()).await;
    let early = together(&trial, CALLERS, |store, _| async move {
        let mut early = Vec::new();
        for _ in 0..ROWS {
            let found = ok(store.sweep(&nothing(), &plain(7, LONG)).await).found;
            early.extend(found.early.into_iter().map(|pending| pending.wake.id));
        }
        early
    });
    let mut early = early.await.concat();
    early.sort();
    assert_eq!(early, (1..=ROWS).map(id).collect::<Vec<_>>());
}

pub(super) async fn a_hop_is_taken_once(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.insert((1..=ROWS).map(later).collect()).await;
    let hop = |n| Step::hop(id(n), 1, LONG);
    let hops: Vec<_> = (1..=ROWS).map(hop).collect();
    let taken = together(&trial, CALLERS, |store, caller| {
        let mut hops = hops.clone();
        async move {
            let backwards = caller % 2 == 1;
            if backwards {
                hops.reverse();
            }
            let mut taken = Vec::with_capacity(hops.len());
            for hop in hops.chunks(4) {
                // A hop that another one has locked out is asked again, by itself.
                for (hop, came) in hop.iter().zip(ok(store.advance(hop).await)) {
                    let mut came = came;
                    while came == Guarded::Blocked {
                        came = ok(store.advance(std::slice::from_ref(hop)).await).remove(0);
                    }
                    taken.push(came == Guarded::Done);
                }
            }
            if backwards {
                taken.reverse();
            }
            taken
        }
    });
    let taken = taken.await;
    for (at, n) in (1..=ROWS).enumerate() {
        assert_eq!(taken.iter().filter(|taken| taken[at]).count(), 1);
        let task = trial.get(id(n)).await;
        assert_eq!((task.version, task.hop), (2, 1));
    }
}

pub(super) async fn an_id_that_is_inserted_everywhere_is_one_row(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let answers = together(&trial, CALLERS, |store, _| async move {
        each(store.insert((1..=ROWS).map(due).collect()).await)
    });
    assert_each_new_once(&answers.await.concat(), |task| task.id);
    assert_eq!(
        trial.list(KIND, State::Scheduled, MANY).await.len(),
        ROWS as usize
    );
}

pub(super) async fn a_key_that_is_inserted_everywhere_is_one_row(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let answers = together(&trial, CALLERS, |store, caller| async move {
        let first = 1_000 * caller as u64;
        let row = |n: u64| due(first + n).named(&n.to_string());
        each(store.insert((1..=ROWS).map(row).collect()).await)
    });
    assert_each_new_once(&answers.await.concat(), |task| task.key.clone());
    assert_eq!(
        trial.list(KIND, State::Scheduled, MANY).await.len(),
        ROWS as usize
    );
}

/// Asserts that of the answers for each row one is new, and that the others found that one.
#[track_caller]
fn assert_each_new_once<N: Ord>(answers: &[Scheduled], name: impl Fn(&Task) -> N) {
    let mut seen = std::collections::BTreeMap::<N, (usize, Vec<TaskId>)>::new();
    for answer in answers {
        let (new, ids) = seen.entry(name(answer.task())).or_default();
        *new += usize::from(matches!(answer, Scheduled::New(_)));
        ids.push(answer.task().id);
    }
    assert_eq!(seen.len(), ROWS as usize);
    for (new, ids) in seen.into_values() {
        assert_eq!((new, ids.len()), (1, CALLERS));
        assert!(ids.iter().all(|id| *id == ids[0]));
    }
}

pub(super) async fn a_row_is_cancelled_or_claimed_and_never_both(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.insert((1..=ROWS).map(due).collect()).await;
    let rows = trial.list(KIND, State::Scheduled, MANY).await;
    let won = together(&trial, 2, |store, caller| {
        let rows = rows.clone();
        async move {
            let mut won = Vec::new();
            for task in rows {
                won.push(match caller {
                    0 => ok(store.arrive(&[wake(&task)], &any()).await).found.claimed.len() == 1,
                    _ => cancel(&*store, task.id).await,
                });
            }
            won
        }
    });
    let won = won.await;
    for (at, task) in rows.iter().enumerate() {
        assert_ne!(won[0][at], won[1][at]);
        assert_eq!(trial.get(task.id).await.version, 2);
    }
}

pub(super) async fn a_row_is_edited_or_claimed_and_never_both(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.insert((1..=ROWS).map(due).collect()).await;
    let rows = trial.list(KIND, State::Scheduled, MANY).await;
    let won = together(&trial, 2, |store, caller| {
        let rows = rows.clone();
        async move {
            let mut won = Vec::new();
            for task in rows {
                won.push(match caller {
                    0 => ok(store.arrive(&[wake(&task)], &any()).await).found.claimed.len() == 1,
                    _ => change(&*store, task.id, edit()).await,
                });
            }
            (caller, won)
        }
    });
    let mut won = won.await;
    won.sort();
    let [(_, claimed), (_, edited)] = &won[..] else {
        panic!("there were two callers: {won:?}");
    };
    for (at, task) in rows.iter().enumerate() {
        assert_ne!(claimed[at], edited[at]);
        let now = trial.get(task.id).await;
        assert_eq!((now.version, now.payload == EDITED), (2, edited[at]));
    }
}

pub(super) async fn an_edit_and_a_move_at_once_both_hold(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.insert((1..=ROWS).map(later).collect()).await;
    let due_at = Timestamp::from_millis(4_000_000_000_123);
    let due = When::At(due_at);
    let verbs = [
        edit(),
        Verb::Reschedule {
            due,
            overdue_after: LONG,
        },
    ];
    let done = together(&trial, 2, |store, caller| {
        let verb = verbs[caller].clone();
        async move {
            let mut done = 0;
            for n in 1..=ROWS {
                done += u64::from(change(&*store, id(n), verb.clone()).await);
            }
            done
        }
    });
    assert_eq!(done.await, [ROWS; 2]);
    for n in 1..=ROWS {
        let row = trial.get(id(n)).await;
        assert_eq!((row.version, &*row.payload, row.due_at), (3, EDITED, due_at));
    }
}

/// What rows have that were edited.
const EDITED: &[u8] = b"edited";

fn edit() -> Verb {
    Verb::Edit {
        payload: EDITED.to_vec(),
        due: None,
        overdue_after: LONG,
    }
}

async fn cancel(store: &dyn Store, id: TaskId) -> bool {
    change(store, id, Verb::Cancel).await
}

async fn change(store: &dyn Store, id: TaskId, verb: Verb) -> bool {
    let change = Change {
        target: id.into(),
        verb,
        expect: Expect::Anything,
        note: Default::default(),
    };
    each(store.change(vec![change]).await)[0].is_done()
}

pub(super) async fn a_claim_settles_or_loses_its_lease_and_never_both(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.insert((1..=ROWS).map(due).collect()).await;
    let claimed = trial.ready(&fleeting()).await;
    assert_eq!(claimed.len(), ROWS as usize);
    let ended = together(&trial, 2, |store, caller| {
        let claimed = claimed.clone();
        async move {
            let mut ended = 0;
            for task in claimed {
                ended += match caller {
                    0 => {
                        let settlement = settlements(&[task], &Ending::Done);
                        loop {
                            match ok(store.advance(&settlement).await)[..] {
                                [Guarded::Done] => break 1,
                                [Guarded::Blocked] => {}
                                _ => break 0,
                            }
                        }
                    }
                    _ => ok(store.sweep(&nothing(), &plain(1, LONG)).await).found.expired,
                };
            }
            ended
        }
    });
    let ended: usize = ended.await.into_iter().sum();
    let rest = trial.sweep(&nothing(), MANY, LONG).await.expired;
    assert_eq!(ended + rest, claimed.len());
    for task in claimed {
        let after = trial.get(task.id).await;
        let either = [State::Done, State::Scheduled].contains(&after.state);
        assert!(either, "{after:?}");
        assert_eq!(after.version, task.version + 1);
    }
}

pub(super) async fn of_two_dead_rows_of_a_key_one_is_redriven(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for n in 1..=CALLERS as u64 {
        trial.row_in(State::Dead, n, "a").await;
    }
    let answers = together(&trial, CALLERS, |store, caller| async move {
        let change = Change {
            target: id(caller as u64 + 1).into(),
            verb: Verb::Redrive { overdue_after: LONG },
            expect: Expect::Anything,
            note: Default::default(),
        };
        each(store.change(vec![change]).await).remove(0)
    });
    let answers = answers.await;
    let won: Vec<_> = answers.iter().filter(|answer| answer.is_done()).collect();
    assert_eq!(won.len(), 1);
    for answer in &answers {
        assert_eq!(answer.task(), won[0].task());
    }
}
