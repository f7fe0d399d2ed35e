//! Random walks, and callers that meet at one key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use tokio::task::JoinSet;

use super::consistent::{assert_consistent, most_live_of_a_key};
use super::*;
use crate::Timestamp;
use crate::store::redis::shards::of_id;
use crate::store::{Ahead, Renewal, Target};

fn verb(rng: &mut Rng) -> Verb {
    let overdue_after = time(rng);
    match rng.u8(..6) {
        5 => Verb::Edit {
            payload: vec![8; rng.usize(..9)],
            due: rng.bool().then(|| When::After(time(rng))),
            overdue_after,
        },
        0 => Verb::Reschedule {
            due: When::After(time(rng)),
            overdue_after,
        },
        1 => Verb::RunNow { overdue_after },
        2 => Verb::Cancel,
        3 => Verb::Dismiss,
        _ => Verb::Redrive { overdue_after },
    }
}

fn time(rng: &mut Rng) -> Duration {
    if rng.bool() { NONE } else { LONG }
}

fn ending(rng: &mut Rng) -> Ending {
    let (after, overdue_after) = (time(rng), time(rng));
    let error = "no luck".to_owned();
    match rng.u8(..8) {
        0 => Ending::Done,
        1 | 2 => Ending::Dead {
            error,
            give_back: rng.bool(),
        },
        3 => Ending::Retry {
            after,
            overdue_after,
            error,
        },
        4 => Ending::Snooze {
            after,
            overdue_after,
            reason: rng.bool().then_some(error),
        },
        5 => Ending::Again { after, overdue_after },
        6 => Ending::Release,
        _ => Ending::Cancelled,
    }
}

fn row(rng: &mut Rng, n: u64) -> NewRow {
    NewRow {
        kind: ["a", "b"][rng.usize(..2)].into(),
        key: Some(rng.u8(..5)).filter(|n| *n < 4).map(|n| n.to_string().into()),
        due: When::After(time(rng)),
        overdue_after: time(rng),
        replace: rng.bool(),
        payload: vec![7; rng.usize(..9)],
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
        bytes: if rng.bool() { usize::MAX } else { rng.usize(..20) },
        history: Default::default(),
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
                note: Default::default(),
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
            let hop = Step::hop(near, version, time(rng));
            store.advance(&[hop]).await.map(drop)
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
        9 => {
            let renewal = Renewal {
                id: near,
                version,
                started: rng.bool(),
            };
            store.renew(&[renewal], time(rng)).await.map(drop)
        }
        _ => {
            let settlement = Step::end(near, version, ending(rng));
            store.advance(&[settlement]).await.map(drop)
        }
    }
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_are_those_of_the_rows_after_every_step() {
    for shards in [1, 4] {
        for seed in 0..3 {
            let server = RedisServer::start();
            let store = open_without_history(&server, shards);
            let mut rng = Rng::with_seed(seed);
            for n in 1..=400 {
                step(&store, &mut rng, n).await;
                if n % 5 == 0 {
                    assert_consistent(
                        &server,
                        shards,
                        &format!("{shards} shards, walk {seed}, step {n}"),
                    );
                }
            }
        }
    }
}

/// Many callers that insert, redrive, cancel, run and purge rows of two keys, while the test checks all the time that
/// no key has two live rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_never_has_two_live_rows() {
    const CALLERS: u64 = 12;
    for shards in [1, 16] {
        let server = Arc::new(RedisServer::start());
        assert_eq!(open(&server, shards).database.shards().await.unwrap(), shards);
        let is_over = Arc::new(AtomicBool::new(false));
        let watch = {
            let (server, is_over) = (Arc::clone(&server), Arc::clone(&is_over));
            tokio::task::spawn_blocking(move || {
                let mut admin = server.admin();
                let mut looks = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    assert!(most_live_of_a_key(&mut admin, shards) <= 1);
                    looks += 1;
                }
                looks
            })
        };
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            callers.spawn(meet(open_without_history(&server, shards), caller));
        }
        callers.join_all().await;
        is_over.store(true, Ordering::Relaxed);
        assert!(watch.await.unwrap() > 0);
        assert!(most_live_of_a_key(&mut server.admin(), shards) <= 1);
        assert_consistent(&server, shards, &format!("{shards} shards"));
    }
}

async fn meet(store: RedisStore, caller: u64) {
    let mut rng = Rng::with_seed(caller);
    let key = |rng: &mut Rng| ["x", "y"][rng.usize(..2)];
    for at in 0..150 {
        // Ids that several callers have, too.
        let n = 1 + rng.u64(..40);
        let target = if rng.bool() {
            Target::Id(id(n))
        } else {
            (KIND, key(&mut rng)).into()
        };
        match at % 5 {
            0 | 1 => {
                let row = NewRow {
                    replace: rng.bool(),
                    ..named(n, key(&mut rng))
                };
                store.insert(vec![row]).await.unwrap();
            }
            2 => {
                let verb = match rng.u8(..3) {
                    0 => Verb::Cancel,
                    1 => Verb::Dismiss,
                    _ => Verb::Redrive { overdue_after: LONG },
                };
                let expect = Expect::Anything;
                store
                    .change(vec![Change {
                        target,
                        verb,
                        expect,
                        note: Default::default(),
                    }])
                    .await
                    .unwrap();
            }
            3 => drop(store.purge(10).await.unwrap()),
            _ => {
                let end = |task: Task| {
                    let (error, give_back) = (String::new(), false);
                    Step::end(task.id, task.version, Ending::Dead { error, give_back })
                };
                let claimed = store.ready(&claim(1)).await.unwrap().found;
                let ends: Vec<_> = claimed.into_iter().map(end).collect();
                store.advance(&ends).await.unwrap();
            }
        }
    }
}

/// Ids of rows in one shard.
fn ids_in(shards: u16, shard: u16) -> impl Iterator<Item = u64> {
    (1..).filter(move |n| of_id(shards, id(*n)) == shard)
}

#[tokio::test]
async fn the_longest_due_come_first_however_they_are_spread() {
    let server = RedisServer::start();
    let store = open(&server, 4);
    let at = |n, millis| NewRow {
        due: When::At(Timestamp::from_millis(millis)),
        ..due(n)
    };
    // The oldest are all in one shard, more than it is asked for at once.
    let oldest: Vec<_> = ids_in(4, 0).take(60).collect();
    let mut rows: Vec<_> = (1..).zip(&oldest).map(|(millis, n)| at(*n, millis)).collect();
    for shard in 1..4 {
        rows.extend(ids_in(4, shard).take(30).map(|n| at(n, 1_000)));
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
    let [first, second] = [0, 1].map(|shard| ids_in(4, shard).next().unwrap());
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
