//! Random walks, and callers that meet at one key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use tokio::task::JoinSet;

use super::consistent::{assert_consistent, most_live_of_a_key};
use super::*;
use crate::redis::Layout;
use crate::store::{Ahead, Hop};
use crate::{Target, Timestamp};

fn verb(rng: &mut Rng) -> Verb {
    let look_in = time(rng);
    match rng.u8(..4) {
        0 => Verb::Reschedule {
            due: When::After(time(rng)),
            look_in,
        },
        1 => Verb::RunNow { look_in },
        2 => Verb::Cancel,
        _ => Verb::Redrive { look_in },
    }
}

fn time(rng: &mut Rng) -> Duration {
    if rng.bool() { NONE } else { LONG }
}

fn ending(rng: &mut Rng) -> Ending {
    let (after, look_in) = (time(rng), time(rng));
    let error = "no luck".to_owned();
    match rng.u8(..8) {
        0 => Ending::Done,
        1 | 2 => Ending::Dead {
            error,
            give_back: rng.bool(),
        },
        3 => Ending::Retry {
            after,
            look_in,
            error,
        },
        4 => Ending::Snooze { after, look_in },
        5 => Ending::Again { after, look_in },
        6 => Ending::Release,
        _ => Ending::Cancelled,
    }
}

fn row(rng: &mut Rng, n: u64) -> NewRow {
    NewRow {
        kind: ["a", "b"][rng.usize(..2)].into(),
        key: Some(rng.u8(..5)).filter(|n| *n < 4).map(|n| n.to_string().into()),
        due: When::After(time(rng)),
        look_in: time(rng),
        replace: rng.bool(),
        ..due(n)
    }
}

/// Any one step.
async fn step(store: &RedisStore, rng: &mut Rng, n: u64) {
    let near = id(n - rng.u64(..n.min(12)));
    let now = store.find(&near.into()).await.unwrap();
    let version = now.as_ref().map_or(1, |task| task.version);
    let claim = Claim {
        owner: "tester".into(),
        lease: time(rng),
        room: [("a".into(), rng.usize(..3)), ("b".into(), rng.usize(..3))].into(),
    };
    match rng.u8(..11) {
        0..=2 => {
            let rows = (0..3).map(|at| row(rng, n * 3 + at)).collect();
            store.insert(rows).await.map(drop)
        }
        3 => {
            let target = if rng.bool() {
                Target::Id(near)
            } else {
                (["a", "b"][rng.usize(..2)], rng.u8(..4).to_string()).into()
            };
            let changes = vec![Change {
                target,
                verb: verb(rng),
                expect: Expect::Anything,
            }];
            store.change(changes).await.map(drop)
        }
        4 => {
            let wake = Wake {
                id: near,
                kind: "a".into(),
                version,
            };
            store.arrive(&[wake], &claim).await.map(drop)
        }
        5 => {
            let hop = Hop {
                id: near,
                version,
                look_in: time(rng),
            };
            store.hop(&[hop]).await.map(drop)
        }
        6 => store.ready(&claim).await.map(drop),
        7 => {
            let sweep = Sweep {
                limit: 3,
                retake: time(rng),
                ahead: Some(Ahead {
                    within: LONG,
                    limit: 5,
                }),
            };
            store.sweep(&claim, &sweep).await.map(drop)
        }
        8 => store.purge(2).await.map(drop),
        9 => store.renew(&[(near, version)], time(rng)).await.map(drop),
        _ => {
            let settlement = Settlement {
                id: near,
                version,
                ending: ending(rng),
            };
            store.settle(vec![settlement]).await.map(drop)
        }
    }
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_are_those_of_the_rows_after_every_step() {
    for slots in [1, 4] {
        for seed in 0..3 {
            let server = RedisServer::start();
            let store = open(&server, slots).keep_history(NONE);
            let layout = store.database.layout().await.unwrap();
            let mut rng = Rng::with_seed(seed);
            for n in 1..=400 {
                step(&store, &mut rng, n).await;
                if n % 5 == 0 {
                    assert_consistent(&server, layout, &format!("{slots} slots, walk {seed}, step {n}"));
                }
            }
        }
    }
}

/// Many callers who insert, redrive, cancel, run and purge rows of two keys, while somebody looks all the time whether a
/// key has two live rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_never_has_two_live_rows() {
    for slots in [1, 16] {
        meet_at_two_keys(slots, &[]).await;
    }
}

/// The same while the number of slots changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_never_has_two_live_rows_while_the_number_of_slots_changes() {
    meet_at_two_keys(1, &[8, 3, 16, 1, 5, 1, 2, 7]).await;
}

/// Lets callers meet, while the number of slots becomes each of `changes`.
async fn meet_at_two_keys(slots: u16, changes: &[u16]) {
    const CALLERS: u64 = 12;
    {
        let server = Arc::new(RedisServer::start());
        let layout = open(&server, slots).database.layout().await.unwrap();
        // The rows of all epochs that there will be: what is live in a former slot, too, unless it has been carried over.
        let layouts: Vec<_> = (1..)
            .zip([&[slots], changes].concat())
            .map(|(epoch, slots)| Layout { epoch, slots })
            .collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let watch = {
            let (server, is_over) = (Arc::clone(&server), Arc::clone(&is_over));
            let layouts = layouts.clone();
            tokio::task::spawn_blocking(move || {
                let mut admin = server.admin();
                let mut looks = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    assert!(most_live_of_a_key(&mut admin, &layouts) <= 1);
                    looks += 1;
                }
                looks
            })
        };
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let store = open(&server, slots).keep_history(NONE);
            callers.spawn(async move {
                let mut rng = Rng::with_seed(caller);
                let key = |rng: &mut Rng| ["x", "y"][rng.usize(..2)];
                let mut refused = 0;
                for at in 0..150 {
                    // Ids that several callers have, too.
                    let n = 1 + rng.u64(..40);
                    let target = if rng.bool() {
                        Target::Id(id(n))
                    } else {
                        (KIND, key(&mut rng)).into()
                    };
                    let result = match at % 5 {
                        0 | 1 => {
                            let row = NewRow {
                                replace: rng.bool(),
                                ..named(n, key(&mut rng))
                            };
                            store.insert(vec![row]).await.map(drop)
                        }
                        2 => {
                            let verb = if rng.bool() {
                                Verb::Cancel
                            } else {
                                Verb::Redrive { look_in: LONG }
                            };
                            let expect = Expect::Anything;
                            let change = Change { target, verb, expect };
                            store.change(vec![change]).await.map(drop)
                        }
                        3 => store.purge(10).await.map(drop),
                        _ => match store.ready(&claim(1)).await {
                            Ok(claimed) => {
                                let end = |task: Task| Settlement {
                                    id: task.id,
                                    version: task.version,
                                    ending: Ending::Dead {
                                        error: String::new(),
                                        give_back: false,
                                    },
                                };
                                let ends = claimed.found.into_iter().map(end).collect();
                                store.settle(ends).await.map(drop)
                            }
                            Err(error) => Err(error),
                        },
                    };
                    if let Err(error) = result {
                        // Where all meet at one key, somebody may be crossed once too often.
                        assert!(error.is_transient(), "{error}");
                        refused += 1;
                    }
                }
                refused
            });
        }
        let mover = open(&server, slots);
        for (after, slots) in (2..).zip(changes) {
            mover.reshard(*slots, |_| ()).await.unwrap();
            let now = mover.database.layouts_now().await.unwrap();
            assert!(now.former.is_none() && now.current.epoch == after);
        }
        let refused: Vec<u64> = callers.join_all().await;
        is_over.store(true, Ordering::Relaxed);
        let looks = watch.await.unwrap();
        assert!(looks > 0);
        assert!(refused.iter().sum::<u64>() < 5, "{refused:?}");
        let mut admin = server.admin();
        assert!(most_live_of_a_key(&mut admin, &layouts) <= 1);
        let now = mover.database.layouts_now().await.unwrap().current;
        assert!(changes.is_empty() || now.epoch > layout.epoch);
    }
}

/// Ids of rows in one slot.
fn ids_in(layout: Layout, slot: u16) -> impl Iterator<Item = u64> {
    (1..).filter(move |n| layout.slot(id(*n)).number == slot)
}

#[tokio::test]
async fn the_longest_due_come_first_however_they_are_spread() {
    let server = RedisServer::start();
    let store = open(&server, 4);
    let layout = store.database.layout().await.unwrap();
    let at = |n, millis| NewRow {
        due: When::At(Timestamp::from_millis(millis)),
        ..due(n)
    };
    // The oldest are all in one slot, more than it is asked for at once.
    let oldest: Vec<_> = ids_in(layout, 0).take(60).collect();
    let mut rows: Vec<_> = (1..).zip(&oldest).map(|(millis, n)| at(*n, millis)).collect();
    for slot in 1..4 {
        rows.extend(ids_in(layout, slot).take(30).map(|n| at(n, 1_000)));
    }
    store.insert(rows).await.unwrap();
    let claimed = store.ready(&claim(50)).await.unwrap().found;
    let expected: Vec<_> = oldest[..50].iter().map(|n| id(*n)).collect();
    assert_eq!(claimed.iter().map(|task| task.id).collect::<Vec<_>>(), expected);
    assert_eq!(store.ready(&claim(1_000)).await.unwrap().found.len(), 100);
}

#[tokio::test]
async fn room_that_was_kept_for_wakes_that_are_stale_goes_to_others() {
    let server = RedisServer::start();
    let store = open(&server, 4);
    let layout = store.database.layout().await.unwrap();
    let [first, second] = [0, 1].map(|slot| ids_in(layout, slot).next().unwrap());
    let task = add(&store, due(second)).await;
    let stale = Wake {
        id: id(first),
        ..wake(&task)
    };
    let looked = store
        .arrive(&[stale, wake(&task)], &claim(1))
        .await
        .unwrap()
        .found;
    assert_eq!((looked.stale, looked.claimed.len()), (1, 1));
    assert!(looked.waiting.is_empty());
}
