//! Who works meanwhile, and may know nothing of the change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::super::working::work;
use super::*;
use crate::store::redis::closed::is_closed;
use crate::store::redis::keys::Try;
use crate::store::{Ahead, Page};
use crate::{NewTask, Scheduler, Target};

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
