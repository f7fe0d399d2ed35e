//! Another number of slots: crash points, callers that are slow or know nothing of it, and everybody at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::consistent::{ask, assert_consistent};
use super::working::work;
use super::*;
use crate::backend::Resharding;
use crate::redis::{Layout, Layouts};
use crate::store::redis::database::is_closed;
use crate::store::redis::keys::{Taken, Try};
use crate::store::redis::moving::Moving;
use crate::store::redis::{codec, keys, mover};
use crate::store::{Ahead, Page};
use crate::{NewTask, Scheduler, Target};

const KEY: &str = "d";

/// Begins another epoch, which nothing is carried over to yet.
async fn begin(store: &RedisStore, slots: u16) -> Layouts {
    let layout = store.database.layouts_now().await.unwrap().current;
    mover::begin(&store.database, layout, slots).await.unwrap();
    store.database.layouts_now().await.unwrap()
}

fn moving<'a>(store: &'a RedisStore, layouts: Layouts) -> Moving<'a> {
    Moving::of(&store.database, layouts).expect("a change is under way")
}

/// The row of an id as it is in the former slots.
async fn read(moving: &Moving<'_>, n: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let ids = [id(n).as_bytes().to_vec()].into_iter();
    let former = moving.former;
    moving
        .fetch("rows", ids, |id| {
            former.slot(TaskId::from_bytes(id.try_into().unwrap()))
        })
        .await
        .unwrap()
}

async fn read_key(moving: &Moving<'_>, key: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let names = [codec::name(&KIND.into(), &key.into()).into_bytes()].into_iter();
    let former = moving.former;
    let slot_of = |name: &[u8]| keys::slot_of_name(former, name);
    moving.fetch("keys", names, slot_of).await.unwrap()
}

async fn finish(store: &RedisStore) {
    let layouts = store.database.layouts_now().await.unwrap();
    store.reshard(layouts.current.slots, |_| ()).await.unwrap();
}

/// Asserts that of an epoch there is nothing left but that its slots are closed, for a while.
#[track_caller]
fn assert_gone(server: &RedisServer, layout: Layout) {
    let mut admin = server.admin();
    let tag = format!("{{delayline:tasks:{}:", layout.epoch);
    let mut names: Vec<String> = ask(&mut admin, &["KEYS", "*"]);
    names.retain(|name| name.starts_with(&tag));
    let closed = |slot: crate::redis::Slot| format!("{}:closed", slot.tag("delayline:tasks"));
    let mut expected: Vec<_> = layout.all().map(closed).collect();
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
    for name in names {
        assert!(ask::<i64>(&mut admin, &["PTTL", &name]) > 0, "{name}");
    }
}

/// Asserts that the new slots have all, and that nothing of the change is left there.
async fn assert_over(server: &RedisServer, store: &RedisStore, layouts: Layouts, what: &str) {
    let now = store.database.layouts_now().await.unwrap();
    let expected = Layouts {
        former: None,
        ..layouts
    };
    assert_eq!(now, expected, "{what}");
    assert_consistent(server, now.current, what);
    assert_gone(server, layouts.former.expect("there was one"));
    let mut admin = server.admin();
    let names: Vec<String> = ask(&mut admin, &["KEYS", "*:gone"]);
    assert!(names.is_empty(), "{names:?}");
}

fn end(task: &Task, ending: Ending) -> Settlement {
    Settlement {
        id: task.id,
        version: task.version,
        ending,
    }
}

#[tokio::test]
async fn rows_of_every_state_are_moved_as_they_are() {
    let server = RedisServer::start();
    for (before, after) in [(1, 5), (5, 3), (3, 1)] {
        let () = ask(&mut server.admin(), &["FLUSHALL"]);
        let store = open(&server, before);
        let dead = dead(&store, 1, "dead").await;
        let mut tasks = vec![dead];
        for n in 2..40 {
            let row = if n % 2 == 0 {
                due(n)
            } else {
                named(n, &n.to_string())
            };
            add(&store, row).await;
        }
        for task in store.ready(&claim(12)).await.unwrap().found {
            let ending = match task.id.as_bytes()[15] % 3 {
                0 => Ending::Done,
                1 => Ending::Cancelled,
                _ => continue,
            };
            store.settle(vec![end(&task, ending)]).await.unwrap();
        }
        for n in 2..40 {
            tasks.push(store.find(&id(n).into()).await.unwrap().unwrap());
        }
        let mut told = Vec::new();
        store.reshard(after, |so_far| told.push(so_far)).await.unwrap();
        let other = open(&server, 1);
        for task in tasks {
            assert_eq!(other.find(&task.id.into()).await.unwrap().as_ref(), Some(&task));
            if let Some(key) = &task.key {
                let target = Target::Key(task.kind.clone(), key.clone());
                assert_eq!(other.find(&target).await.unwrap(), Some(task));
            }
        }
        let last: Resharding = *told.last().unwrap();
        assert_eq!((last.moved, last.left), (39, 0));
        let layouts = Layouts {
            current: Layout {
                epoch: 2,
                slots: after,
            },
            former: Some(Layout {
                epoch: 1,
                slots: before,
            }),
        };
        assert_over(&server, &other, layouts, &format!("{before} to {after}")).await;
        // There is nothing to do.
        store.reshard(after, |_| ()).await.unwrap();
        assert_eq!(store.database.layouts_now().await.unwrap().current.epoch, 2);
    }
}

#[tokio::test]
async fn more_rows_than_one_call_takes_are_moved() {
    let server = RedisServer::start();
    let store = open(&server, 1);
    let rows = (1..=1_500).map(|n| named(n, &n.to_string())).collect();
    store.insert(rows).await.unwrap();
    // Somebody has put there what nobody can name.
    let mut admin = server.admin();
    let () = ask(
        &mut admin,
        &["HSET", "{delayline:tasks:1:0}:rows", "stray", "row"],
    );
    let layouts = Layouts {
        current: Layout { epoch: 2, slots: 7 },
        former: Some(Layout { epoch: 1, slots: 1 }),
    };
    store.reshard(7, |_| ()).await.unwrap();
    assert_over(&server, &store, layouts, "many").await;
    assert_eq!(store.ready(&claim(2_000)).await.unwrap().found.len(), 1_500);
}

#[tokio::test]
async fn nothing_is_done_in_a_slot_that_is_closed() {
    let server = RedisServer::start();
    let (store, stale) = (open(&server, 1), open(&server, 1));
    add(&stale, named(1, KEY)).await;
    let layout = stale.database.layout().await.unwrap();
    begin(&store, 4).await;
    let attempt = Try::new(&stale.database, layout, id(2), &KIND.into(), &KEY.into())
        .intend(&named(2, KEY))
        .await;
    assert!(is_closed(&attempt.unwrap_err()));
    // And who is told so does it elsewhere.
    assert!(matches!(
        insert(&stale, named(2, KEY)).await,
        Scheduled::Existing(task) if task.id == id(1)
    ));
    assert_eq!(stale.database.layout().await.unwrap().epoch, 2);
    finish(&store).await;
}

/// Each operation is the first that a process does that knows nothing of a change, and finds what is in the former slots.
#[tokio::test]
async fn every_operation_finds_what_is_still_to_be_moved() {
    let server = RedisServer::start();
    for (before, after) in [(1, 4), (4, 3), (4, 1)] {
        let () = ask(&mut server.admin(), &["FLUSHALL"]);
        let store = open(&server, before).keep_history(NONE);
        let overdue = NewRow {
            look_in: NONE,
            ..due(1)
        };
        let gone = dead(&store, 9, "gone").await;
        for row in [overdue, named(2, "a"), named(3, "b"), later(4), later(5)] {
            add(&store, row).await;
        }
        add(&store, named(6, "c")).await;
        let past = change(&store, id(6), Verb::Cancel).await;
        assert!(past.is_done());
        let stale = || async {
            let stale = open(&server, before).keep_history(NONE);
            stale.database.layout().await.unwrap();
            stale
        };
        let (by_key, by_id, sweeper, lister) = (stale().await, stale().await, stale().await, stale().await);
        let (purger, finder, settler, seer) = (stale().await, stale().await, stale().await, stale().await);
        let wake = Wake {
            id: id(3),
            kind: KIND.into(),
            version: 1,
        };
        let mut looked = store.arrive(&[wake], &claim(1)).await.unwrap().found;
        let held = looked.claimed.remove(0);
        let layouts = begin(&store, after).await;

        let page = |state| Page {
            kind: KIND.into(),
            state,
            after: None,
            limit: 9,
        };
        let renewed = settler.renew(&[(held.id, held.version)], LONG).await.unwrap();
        assert_eq!(renewed, [crate::store::Renewal::Renewed]);
        let settled = settler.settle(vec![end(&held, Ending::Done)]).await.unwrap();
        assert_eq!(settled, [true]);
        let swept = sweeper.sweep(&claim(9), &sweep()).await.unwrap().found;
        let claimed: Vec<_> = swept.claimed.iter().map(|task| task.id).collect();
        assert_eq!(claimed, [id(1)]);
        assert_eq!(
            lister.list(&page(State::Dead)).await.unwrap(),
            std::slice::from_ref(&gone)
        );
        assert_eq!(lister.kinds(State::Cancelled).await.unwrap(), [KIND.into()]);
        let ahead = Ahead {
            within: 2 * LONG,
            limit: 9,
        };
        let seen = seer.upcoming(ahead).await.unwrap().found;
        // And what has become due just now, if it was.
        let seen: Vec<_> = seen.iter().map(|row| row.wake.id).collect();
        assert_eq!(seen[seen.len() - 2..], [id(4), id(5)]);
        let target: Target = (KIND, "a").into();
        assert_eq!(finder.find(&target).await.unwrap().unwrap().id, id(2));
        assert!(matches!(
            insert(&by_key, named(7, "a")).await,
            Scheduled::Existing(task) if task.id == id(2)
        ));
        assert!(change(&by_id, id(4), Verb::Cancel).await.is_done());
        assert!(matches!(
            change(&by_id, id(4), Verb::Cancel).await,
            Answer::Finished(_)
        ));
        let redrive = Verb::Redrive { look_in: LONG };
        assert!(change(&by_id, gone.id, redrive).await.is_done());
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(purger.purge(9).await.unwrap(), 3);
        assert_eq!(finder.find(&id(6).into()).await.unwrap(), None);
        let ready: Vec<_> = store.ready(&claim(9)).await.unwrap().found;
        assert_eq!(ready.iter().map(|task| task.id).collect::<Vec<_>>().len(), 2);
        finish(&store).await;
        assert_over(&server, &store, layouts, &format!("{before} to {after}")).await;
    }
}

#[tokio::test]
async fn a_process_may_die_after_any_step() {
    for step in 0..=4 {
        let server = RedisServer::start();
        let store = open(&server, 2);
        let task = add(&store, named(1, KEY)).await;
        let other = open(&server, 2);
        let layouts = begin(&store, 3).await;
        let mover = moving(&store, layouts);
        let rows = read(&mover, 1).await;
        let entries = read_key(&mover, KEY).await;
        assert_eq!((rows.len(), entries.len()), (1, 1));
        if step >= 1 {
            mover.write_rows(rows.clone()).await.unwrap();
        }
        if step >= 2 {
            mover.carry_rows(rows.clone()).await.unwrap();
        }
        if step >= 3 {
            mover.write_keys(entries.clone()).await.unwrap();
        }
        if step >= 4 {
            mover.carry_keys(entries.clone()).await.unwrap();
        }
        // There, and once.
        assert_eq!(other.find(&id(1).into()).await.unwrap(), Some(task.clone()));
        let page = Page {
            kind: KIND.into(),
            state: State::Scheduled,
            after: None,
            limit: 9,
        };
        assert_eq!(other.list(&page).await.unwrap(), std::slice::from_ref(&task));
        assert_eq!(
            insert(&other, named(2, KEY)).await,
            Scheduled::Existing(task.clone())
        );
        assert!(change(&other, id(1), Verb::Cancel).await.is_done());
        // What was slow changes nothing.
        mover.carry_rows(rows).await.unwrap();
        mover.carry_keys(entries).await.unwrap();
        assert!(matches!(
            change(&other, id(1), Verb::Cancel).await,
            Answer::Finished(_)
        ));
        assert!(matches!(insert(&other, named(2, KEY)).await, Scheduled::New(_)));
        finish(&other).await;
        assert_over(&server, &other, layouts, &format!("step {step}")).await;
    }
}

/// What was written and not removed there must not be taken for what it was.
#[tokio::test]
async fn what_a_former_slot_still_says_of_a_row_that_went_on_does_not_count() {
    let server = RedisServer::start();
    let store = open(&server, 2);
    add(&store, due(1)).await;
    let layouts = begin(&store, 3).await;
    let mover = moving(&store, layouts);
    let rows = read(&mover, 1).await;
    mover.write_rows(rows).await.unwrap();
    let slot = layouts.current.slot(id(1)).tag("delayline:tasks");
    // Somebody claims it in the new slot to whom the former one did not answer.
    let mut admin = server.admin();
    let () = ask(&mut admin, &["HDEL", "{delayline:tasks}:layout", "former"]);
    let claimed = open(&server, 2).ready(&claim(1)).await.unwrap().found;
    assert_eq!(claimed.len(), 1);
    let () = ask(&mut admin, &["HSET", "{delayline:tasks}:layout", "former", "2"]);
    mover.write_rows(read(&mover, 1).await).await.unwrap();
    assert_eq!(store.ready(&claim(9)).await.unwrap().found, []);
    let page = Page {
        kind: KIND.into(),
        state: State::Scheduled,
        after: None,
        limit: 9,
    };
    assert_eq!(store.list(&page).await.unwrap(), []);
    assert!(store.kinds(State::Scheduled).await.unwrap().is_empty());
    let rows: u64 = ask(&mut admin, &["HLEN", &format!("{slot}:rows")]);
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn what_was_removed_meanwhile_does_not_come_back() {
    for (before, after) in [(2, 3), (2, 1)] {
        let server = RedisServer::start();
        let store = open(&server, before).keep_history(NONE);
        add(&store, named(1, KEY)).await;
        let layouts = begin(&store, after).await;
        let slow = moving(&store, layouts);
        let (rows, entries) = (read(&slow, 1).await, read_key(&slow, KEY).await);
        let other = open(&server, before).keep_history(NONE);
        assert!(change(&other, id(1), Verb::Cancel).await.is_done());
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(other.purge(9).await.unwrap(), 1);
        slow.carry_rows(rows.clone()).await.unwrap();
        slow.carry_keys(entries.clone()).await.unwrap();
        assert_eq!(other.find(&id(1).into()).await.unwrap(), None);
        assert_consistent(&server, layouts.current, "while it was under way");
        finish(&other).await;
        // And after it.
        slow.carry_rows(rows.clone()).await.unwrap();
        slow.carry_keys(entries.clone()).await.unwrap();
        assert_over(&server, &other, layouts, "after it").await;
        assert_eq!(other.find(&id(1).into()).await.unwrap(), None);
        // And after the next one has begun.
        begin(&other, 5).await;
        assert!(is_closed(&slow.carry_rows(rows).await.unwrap_err()));
        finish(&other).await;
        assert_eq!(other.find(&id(1).into()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn tries_end_with_their_epoch() {
    let server = RedisServer::start();
    let store = open(&server, 16);
    let layout = store.database.layout().await.unwrap();
    let gone = dead(&store, 1, "dead").await;
    let (kind, key) = (KIND.into(), KEY.into());
    let intent = Try::new(&store.database, layout, id(2), &kind, &key);
    intent.intend(&named(2, KEY)).await.unwrap();
    assert!(matches!(intent.obtain(None).await.unwrap(), Taken::Obtained));
    let dead_key = "dead".into();
    let mark = Try::new(&store.database, layout, gone.id, &kind, &dead_key);
    assert!(mark.mark(gone.version).await.unwrap());
    mark.obtain(None).await.unwrap();
    let other = open(&server, 16);
    let layouts = begin(&other, 5).await;
    let now = When::After(NONE);
    assert!(is_closed(&intent.activate(now, 0).await.unwrap_err()));
    // It is known what came of it.
    intent.withdraw().await.unwrap();
    assert_eq!(store.find(&(KIND, KEY).into()).await.unwrap(), None);
    assert_eq!(store.find(&id(2).into()).await.unwrap(), None);
    assert_eq!(store.find(&gone.id.into()).await.unwrap(), Some(gone.clone()));
    add(&store, named(2, KEY)).await;
    let redrive = Verb::Redrive { look_in: LONG };
    assert!(change(&store, gone.id, redrive).await.is_done());
    finish(&other).await;
    assert_over(&server, &other, layouts, "tries").await;
}

#[tokio::test]
async fn one_mover_goes_on_where_another_was_interrupted() {
    let server = RedisServer::start();
    let store = open(&server, 3);
    let rows = (1..=300).map(|n| named(n, &n.to_string())).collect();
    store.insert(rows).await.unwrap();
    for part in 0..5 {
        let (stop, stopped) = mpsc::unbounded_channel();
        let mut stopped = stopped;
        let mut left = part;
        let mover = open(&server, 3);
        let moved = mover.reshard(8, move |_| {
            if left == 0 {
                let _ = stop.send(());
            }
            left -= i32::from(left > 0);
        });
        tokio::select! {
            biased;
            _ = stopped.recv() => {}
            moved = moved => moved.unwrap(),
        }
    }
    // Several at once, for the same and for others.
    let mut movers = JoinSet::new();
    for slots in [8, 8, 5] {
        let mover = open(&server, 3);
        movers.spawn(async move { mover.reshard(slots, |_| ()).await });
    }
    while let Some(ended) = movers.join_next().await {
        ended.unwrap().unwrap();
    }
    let now = store.database.layouts_now().await.unwrap();
    assert_eq!(now.former, None);
    assert_consistent(&server, now.current, "all of them");
    assert_eq!(store.ready(&claim(999)).await.unwrap().found.len(), 300);
}

#[tokio::test]
async fn a_layout_that_the_server_has_lost_is_kept_again_with_the_former_one() {
    let server = RedisServer::start();
    let store = open(&server, 2);
    add(&store, due(1)).await;
    let layouts = begin(&store, 4).await;
    let () = ask(&mut server.admin(), &["DEL", "{delayline:tasks}:layout"]);
    assert_eq!(store.database.layouts_now().await.unwrap(), layouts);
    // Nobody knows of it any more: what is said is that, and another change mends it.
    let () = ask(
        &mut server.admin(),
        &["HSET", "{delayline:tasks}:layout", "epoch", "1", "slots", "2"],
    );
    let () = ask(
        &mut server.admin(),
        &["HDEL", "{delayline:tasks}:layout", "former"],
    );
    let late = open(&server, 2);
    let error = late.find(&id(1).into()).await.unwrap_err();
    assert!(
        error.is_transient() && error.to_string().contains("closed"),
        "{error}"
    );
    late.reshard(4, |_| ()).await.unwrap();
    assert!(late.find(&id(1).into()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_number_of_slots_that_cannot_be_is_refused() {
    let store = RedisStore::connect("redis://127.0.0.1:1").unwrap();
    for slots in [0, 1_025] {
        let error = store.reshard(slots, |_| ()).await.unwrap_err();
        assert!(matches!(error, crate::Error::Invalid { .. }), "{error}");
    }
}

/// A worker that has nothing to do hears of a change, and of what is scheduled after it.
#[tokio::test]
async fn who_listens_hears_of_a_change() {
    let server = RedisServer::start();
    let (store, listener) = (open(&server, 1), open(&server, 1));
    let patience = Duration::from_secs(30);
    tokio::time::timeout(patience, listener.notified()).await.unwrap();
    listener.sweep(&claim(1), &sweep()).await.unwrap();
    while tokio::time::timeout(NONE, listener.notified()).await.is_ok() {}
    assert_eq!(listener.database.layout().await.unwrap().epoch, 1);
    begin(&store, 4).await;
    tokio::time::timeout(patience, listener.notified()).await.unwrap();
    assert_eq!(listener.database.layout().await.unwrap().epoch, 2);
}

/// Schedulers and workers, each as in a process of its own, while the number of slots changes again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_task_runs_once_or_is_cancelled_while_the_number_of_slots_changes() {
    let server = RedisServer::start();
    let (ran, mut runs) = mpsc::unbounded_channel();
    let workers = ["one", "two"].map(|name| work(open(&server, 1), name, &ran));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for caller in 0..3_u64 {
        let scheduler = Scheduler::builder(Arc::new(open(&server, 1))).build().unwrap();
        let is_over = Arc::clone(&is_over);
        callers.spawn(async move {
            let (mut expected, mut cancelled) = (Vec::new(), Vec::new());
            let mut number = caller;
            while !is_over.load(Ordering::Relaxed) {
                let delay = Duration::from_millis([0, 40, 700, 2_600][number as usize / 3 % 4]);
                let task = NewTask::new(KIND, &number).after(delay);
                let task = match number % 2 {
                    0 => task,
                    _ => task.key(number.to_string()),
                };
                let scheduled = scheduler.schedule(task).await.unwrap();
                assert!(matches!(scheduled, Scheduled::New(_)), "{scheduled:?}");
                let target = || match number % 2 {
                    0 => Target::Id(scheduled.task().id),
                    _ => (KIND, number.to_string()).into(),
                };
                let mut is_cancelled = false;
                match number % 5 {
                    1 => {
                        let answer = scheduler.cancel(target()).await.unwrap();
                        is_cancelled = answer.is_done();
                        assert!(
                            !matches!(answer, Answer::NotFound | Answer::Conflict(_)),
                            "{answer:?}"
                        );
                    }
                    2 => {
                        let answer = scheduler
                            .reschedule(target(), Duration::from_millis(300))
                            .await
                            .unwrap();
                        assert!(
                            !matches!(answer, Answer::NotFound | Answer::Conflict(_)),
                            "{answer:?}"
                        );
                    }
                    _ => assert!(scheduler.find(target()).await.unwrap().is_some()),
                }
                if is_cancelled {
                    cancelled.push(number);
                } else {
                    expected.push(number);
                }
                number += 3;
            }
            (expected, cancelled)
        });
    }
    let mover = open(&server, 1);
    let mut moved = 0;
    let mut last = mover.database.layouts_now().await.unwrap();
    for slots in [8, 3, 16, 1] {
        mover
            .reshard(slots, |so_far| moved += u64::from(so_far.moved > 0))
            .await
            .unwrap();
        let now = mover.database.layouts_now().await.unwrap();
        assert_gone(&server, last.current);
        last = now;
        // Some work by this layout.
        for _ in 0..50 {
            runs.recv().await.unwrap();
        }
    }
    assert!(moved > 0);
    is_over.store(true, Ordering::Relaxed);
    let (mut expected, mut cancelled) = (BTreeMap::new(), Vec::new());
    while let Some(ended) = callers.join_next().await {
        let (of_caller, not) = ended.unwrap();
        expected.extend(of_caller.into_iter().map(|number| (number, 1_usize)));
        cancelled.extend(not);
    }
    assert!(!cancelled.is_empty());
    // Those that were taken note of above were received there.
    let finished = async {
        let store = open(&server, 1);
        let page = |state| Page {
            kind: KIND.into(),
            state,
            after: None,
            limit: 10_000,
        };
        while store.list(&page(State::Done)).await.unwrap().len() < expected.len() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let left = store.list(&page(State::Cancelled)).await.unwrap();
        assert_eq!(left.len(), cancelled.len());
        let done = store.list(&page(State::Done)).await.unwrap();
        for task in done {
            assert_eq!(task.attempt, 1, "{task:?}");
            let number: u64 = serde_json::from_slice(&task.payload).unwrap();
            assert_eq!(expected.remove(&number), Some(1), "{number} was done twice");
        }
        assert!(expected.is_empty(), "{expected:?}");
    };
    tokio::time::timeout(Duration::from_secs(60), finished)
        .await
        .expect("all are done");
    for (stop, running) in workers {
        stop.send(()).unwrap();
        running.await.unwrap();
    }
    assert_consistent(&server, last.current, "after all of it");
}
