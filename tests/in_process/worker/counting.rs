//! What is counted, how lateness is measured, and how history ends.

use delayline::{NewTask, Outcome, Policy, State};

use crate::support::{KIND, Op, Running, Setup, World, ms, secs};
use crate::worker::outcomes::worker_that;

#[tokio::test(start_paused = true)]
async fn the_numbers_are_those_of_what_happened() {
    let world = World::with_levels("1s");
    let runs = world.runs.clone();
    let policy = Policy::new()
        .backoff(ms(0), ms(0))
        .max_attempts(2)
        .concurrency(10);
    let worker = worker_that(&world, policy, move |context| {
        let word: String = serde_json::from_slice(context.payload()).unwrap();
        let first = runs.of(context.id()).len() == 1;
        Box::pin(async move {
            match word.as_str() {
                "fail" => Err("no".into()),
                "snooze" if first => Ok(Outcome::Snooze(ms(100))),
                "again" if first => Ok(Outcome::Again(ms(100))),
                _ => Ok(Outcome::Done),
            }
        })
    });
    let _worker = Running::start(worker);
    world.pass(ms(1)).await;
    let schedule = async |kind: &str, word: &str, delay| {
        let task = NewTask::new(kind, word).after(ms(delay));
        world.scheduler.schedule(task).await.unwrap().task().clone()
    };
    schedule(KIND, "done", 2_500).await; // two levels, one hop between them, one to the precise backend
    schedule(KIND, "fail", 10).await; // two attempts
    schedule(KIND, "snooze", 10).await;
    schedule(KIND, "again", 10).await;
    schedule("other", "done", 10).await; // has no handler
    let cancelled = schedule(KIND, "done", 1_500).await; // its wake-up cannot be removed, and arrives stale
    assert!(world.scheduler.cancel(cancelled.id).await.unwrap().is_done());
    world.pass_until(2_800).await;
    let stats = world.scheduler.stats();
    assert_eq!((stats.sent_by_carrier, stats.hops), (3, 2), "{stats:?}");
    // Four of the first round and "other", one after the hops, and one more of each that came again.
    assert_eq!(
        (stats.sent_precise, stats.rerouted, stats.left_to_sweep),
        (8, 0, 0),
        "{stats:?}"
    );
    assert_eq!((stats.received, stats.stale), (11, 1), "{stats:?}");
    assert_eq!(
        (
            stats.claimed_on_arrival,
            stats.claimed_when_ready,
            stats.claimed_by_sweep
        ),
        (7, 0, 0)
    );
    assert_eq!((stats.started, stats.done, stats.retried), (7, 4, 1));
    assert_eq!((stats.snoozed, stats.dead, stats.released), (1, 1, 0));
    assert!(stats.no_handler >= 1);
    assert_eq!(
        (stats.no_room, stats.expired, stats.lost_claims, stats.purged),
        (0, 0, 0, 0)
    );
    assert_eq!(
        (stats.late.p50_ms, stats.late.p99_ms, stats.late.max_ms),
        (0, 0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn lateness_is_counted_from_the_due_time_by_the_stores_clock() {
    for ahead in [600_000, -600_000] {
        let world = Setup {
            store_ahead: ahead,
            ..Setup::default()
        }
        .build();
        let tasks = [0, 400, 700].map(|delay| NewTask::new(KIND, &1).after(ms(delay)));
        world.scheduler.schedule_all(tasks).await.unwrap();
        // No worker runs until 1 s; then one handler at a time, half a second each.
        world.pass_until(1_000).await;
        let clock = world.clock.clone();
        let worker = worker_that(&world, Policy::new().concurrency(1), move |_| {
            let clock = clock.clone();
            Box::pin(async move {
                clock.sleep(ms(500)).await;
                Ok(Outcome::Done)
            })
        });
        let _worker = Running::start(worker);
        world.settle().await;
        let late: Vec<_> = world.runs.all().iter().map(|run| run.lateness).collect();
        assert_eq!(late, [ms(1_000), ms(1_100), ms(1_300)]);
        let stats = world.scheduler.stats().late;
        assert_eq!((stats.p50_ms, stats.p99_ms, stats.max_ms), (1_100, 1_300, 1_300));
    }
}

#[tokio::test(start_paused = true)]
async fn history_is_removed_after_its_time_and_the_dead_stay() {
    let world = Setup {
        history: secs(3_600),
        ..Setup::default()
    }
    .build();
    let worker = worker_that(&world, Policy::new(), |context| {
        let dead = context.key() == Some("dead");
        Box::pin(async move {
            Ok(if dead {
                Outcome::Discard("by name".into())
            } else {
                Outcome::Done
            })
        })
    });
    let _worker = Running::start(worker);
    world
        .scheduler
        .schedule(NewTask::new(KIND, &1).key("dead"))
        .await
        .unwrap();
    world
        .scheduler
        .schedule_all((0..1_200).map(|n| NewTask::new(KIND, &n)))
        .await
        .unwrap();
    let cancelled = NewTask::new(KIND, &1).key("cancelled").after(secs(9_999));
    world.scheduler.schedule(cancelled).await.unwrap();
    assert!(
        world
            .scheduler
            .cancel((KIND, "cancelled"))
            .await
            .unwrap()
            .is_done()
    );
    let live = NewTask::new(KIND, &1).key("live").after(secs(9_999));
    world.scheduler.schedule(live).await.unwrap();
    world.pass(secs(3_599)).await;
    assert_eq!(world.count(State::Done).await, 1_200);
    assert_eq!(world.scheduler.stats().purged, 0);
    world.pass(secs(60)).await;
    assert_eq!(
        (
            world.count(State::Done).await,
            world.count(State::Cancelled).await
        ),
        (0, 0)
    );
    assert_eq!(
        (
            world.count(State::Dead).await,
            world.count(State::Scheduled).await
        ),
        (1, 1)
    );
    assert_eq!(world.scheduler.stats().purged, 1_201);
    // Its name is forgotten with it.
    assert_eq!(world.scheduler.find((KIND, "cancelled")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn the_sweep_goes_on_while_much_history_is_removed() {
    let world = Setup {
        history: secs(10),
        ..Setup::default()
    }
    .build();
    {
        let _worker = world.work();
        world
            .scheduler
            .schedule_all((0..4_000).map(|n| NewTask::new(KIND, &n)))
            .await
            .unwrap();
        world.settle().await;
    }
    world.pass(secs(20)).await;
    let worker = world.work();
    world.store.hold(Op::Purge);
    world.pass(secs(1)).await;
    assert_eq!(world.store.waiting(Op::Purge), 1);
    let calls = || [Op::Sweep, Op::Purge].map(|op| world.store.calls(op).len());
    let before = calls();
    world.store.free(Op::Purge);
    world.pass(ms(100)).await;
    assert_eq!(world.count(State::Done).await, 0, "all of it, without a pause");
    let [swept, purges] = [0, 1].map(|at| calls()[at] - before[at]);
    assert!(
        purges > 4 && swept >= purges - 1,
        "{swept} sweeps between {purges} removals"
    );
    worker.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn history_that_cannot_be_removed_now_is_removed_later() {
    let world = Setup {
        history: secs(10),
        ..Setup::default()
    }
    .build();
    let _worker = world.work();
    world.scheduler.schedule(NewTask::new(KIND, &1)).await.unwrap();
    world.pass(secs(5)).await;
    world.store.fail(Op::Purge, 1);
    world.pass(secs(90)).await;
    assert_eq!(world.count(State::Done).await, 0);
}
