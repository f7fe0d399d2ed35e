//! New tasks: when they run, and which one there is when there was one already.

use std::time::Duration;

use delayline::store::MemoryStore;
use delayline::{NewTask, Outcome, Scheduled, Scheduler, State, Worker};

use crate::support::{KIND, Op, Running, World, at, ms, secs};

#[tokio::test(start_paused = true)]
async fn a_task_runs_at_its_time_to_the_millisecond_however_that_was_given() {
    let world = World::new();
    let _worker = world.work();
    world.pass(ms(40)).await;
    let mut expected = Vec::new();
    for (task, due, runs_at) in [
        (NewTask::new(KIND, &1).after(ms(1_500)), 1_540, 1_540),
        (NewTask::new(KIND, &1).after(ms(0)), 40, 40),
        (NewTask::new(KIND, &1), 40, 40),
        // A part of a millisecond is rounded up: never early.
        (NewTask::new(KIND, &1).after(Duration::from_micros(100)), 41, 41),
        (NewTask::new(KIND, &1).at(at(2_345)), 2_345, 2_345),
        (NewTask::new(KIND, &1).at(at(9_000_000)), 9_000_000, 9_000_000),
        // A time that has passed means at once; it stays the time that was asked for.
        (NewTask::new(KIND, &1).at(at(-5_000)), -5_000, 40),
    ] {
        let text = format!("{task:?}");
        let Scheduled::New(row) = world.scheduler.schedule(task).await.unwrap() else {
            panic!("not new: {text}");
        };
        // What has passed was planned for now, by when it was asked for.
        assert_eq!((row.due_at, row.planned_at), (at(due), at(due.max(40))), "{text}");
        expected.push((text, row.id, runs_at));
    }
    world.pass(secs(9_001)).await;
    for (text, id, runs_at) in expected {
        let times: Vec<_> = world.runs.of(id).iter().map(|run| run.at).collect();
        assert_eq!(times, [runs_at], "{text}");
        assert_eq!(world.row(id).await.state, State::Done, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_task_is_live_under_a_key_and_the_answer_says_which() {
    let world = World::new();
    let scheduler = &world.scheduler;
    let task = |payload: u64, delay| NewTask::new(KIND, &payload).key("order-1").after(delay);

    let first = scheduler.schedule(task(1, secs(10))).await.unwrap();
    assert!(matches!(first, Scheduled::New(_)), "{first:?}");
    let second = scheduler.schedule(task(2, secs(20))).await.unwrap();
    assert_eq!(second, Scheduled::Existing(first.task().clone()));
    // The same key of another kind is another name.
    let other = NewTask::new("other", &1).key("order-1").after(secs(10));
    let other = scheduler.schedule(other).await.unwrap();
    assert!(matches!(other, Scheduled::New(_)), "{other:?}");

    let replacing = task(3, secs(30)).max_attempts(7).header("trace", "t").replace();
    let replaced = scheduler.schedule(replacing).await.unwrap();
    let Scheduled::Replaced(row) = &replaced else {
        panic!("{replaced:?}");
    };
    assert_eq!((row.id, row.version), (first.task().id, 2));
    assert_eq!(
        (row.payload.as_slice(), row.due_at),
        (b"3".as_slice(), at(30_000))
    );
    assert_eq!((row.max_attempts, row.headers["trace"].as_str()), (Some(7), "t"));

    // Runs once, at its new time, with its new payload; while it runs there is no other.
    let runs = world.runs.clone();
    let clock = world.clock.clone();
    let handler = runs.handler_that(&world.store_clock, move |_| {
        let clock = clock.clone();
        Box::pin(async move {
            clock.sleep(secs(5)).await;
            Ok(Outcome::Done)
        })
    });
    let _worker = Running::start(Worker::new(scheduler).handle(KIND, handler));
    world.pass_until(32_000).await;
    assert_eq!(world.runs.times(), [30_000]);
    assert_eq!(world.runs.all()[0].task.payload, b"3");
    for new in [task(4, secs(1)), task(4, secs(1)).replace()] {
        let running = scheduler.schedule(new).await.unwrap();
        assert!(matches!(running, Scheduled::Running(_)), "{running:?}");
        assert_eq!(*running.task(), world.row(row.id).await);
        assert_eq!(running.task().payload, b"3");
    }
    world.pass_until(36_000).await;
    // It is over: the name is free.
    let next = scheduler.schedule(task(5, secs(1))).await.unwrap();
    assert!(
        matches!(&next, Scheduled::New(new) if new.id != row.id),
        "{next:?}"
    );
    world.settle().await;
    assert_eq!(world.runs.times(), [30_000, 37_000]);
}

#[tokio::test(start_paused = true)]
async fn the_same_id_twice_is_one_task_also_when_it_is_over() {
    let world = World::new();
    let _worker = world.work();
    let id = world.clock.new_id();
    let first = world
        .scheduler
        .schedule(NewTask::new(KIND, &1).id(id).after(secs(2)))
        .await
        .unwrap();
    assert!(matches!(&first, Scheduled::New(row) if row.id == id), "{first:?}");
    let again = NewTask::new(KIND, &2).id(id).after(secs(1)).replace();
    let second = world.scheduler.schedule(again).await.unwrap();
    assert_eq!(second, Scheduled::Existing(first.task().clone()));
    world.pass(secs(3)).await;
    let third = world
        .scheduler
        .schedule(NewTask::new(KIND, &3).id(id))
        .await
        .unwrap();
    assert!(
        matches!(&third, Scheduled::Existing(row) if row.state == State::Done),
        "{third:?}"
    );
    world.pass(secs(3)).await;
    assert_eq!(world.runs.times(), [2_000]);
}

#[tokio::test(start_paused = true)]
async fn scheduling_repeated_after_a_lost_answer_leaves_one_task_which_runs_on_time() {
    let world = World::new();
    let _worker = world.work();
    let id = world.clock.new_id();
    let task = || NewTask::new(KIND, &1).id(id).after(secs(2));
    world.store.lose_answers(Op::Insert, 1);
    world.scheduler.schedule(task()).await.unwrap_err();
    let repeated = world.scheduler.schedule(task()).await.unwrap();
    assert!(matches!(&repeated, Scheduled::Existing(_)), "{repeated:?}");
    world.settle().await;
    // Its wake-up was not sent, so it is the sweep's.
    let times = world.runs.times();
    assert!(matches!(times[..], [2_000..=3_000]), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_answered_in_order_and_written_in_few_calls() {
    let world = World::new();
    let tasks = (0..1_200_u64).map(|n| NewTask::new(KIND, &n).after(ms(10_000 - n)));
    let answers = world.scheduler.schedule_all(tasks).await.unwrap();
    assert_eq!(answers.len(), 1_200);
    for (n, answer) in answers.iter().enumerate() {
        assert!(matches!(answer, Scheduled::New(_)), "{answer:?}");
        assert_eq!(answer.task().payload, n.to_string().as_bytes());
    }
    assert_eq!(world.store.calls(Op::Insert), [500, 500, 200]);
    let _worker = world.work();
    world.settle().await;
    let payloads: Vec<_> = world
        .runs
        .all()
        .iter()
        .map(|run| run.task.payload.clone())
        .collect();
    let latest_first: Vec<_> = (0..1_200)
        .rev()
        .map(|n: u64| n.to_string().into_bytes())
        .collect();
    assert_eq!(payloads, latest_first);
}

/// A call of too many bytes takes so long that it is given up, and a caller that repeats it repeats it for ever.
#[tokio::test(start_paused = true)]
async fn large_payloads_of_a_batch_go_in_several_calls() {
    let world = World::new();
    let large = |kib: usize| NewTask::new(KIND, &"x".repeat(kib << 10));
    let tasks = || (0..400).map(|_| large(10));
    let added = world.scheduler.schedule_all(tasks()).await.unwrap();
    assert_eq!(added.len(), 400);
    let expected = [102, 102, 102, 94];
    assert_eq!(world.store.calls(Op::Insert), expected);
    let added = world.scheduler.schedule_each(tasks()).await;
    assert!(added.iter().all(Result::is_ok) && added.len() == 400);
    assert_eq!(world.store.calls(Op::Insert)[4..], expected);
    // One that is larger than that goes by itself.
    let mixed = [large(1), large(1_023), large(1), large(1)];
    world.scheduler.schedule_all(mixed).await.unwrap();
    assert_eq!(world.store.calls(Op::Insert)[8..], [1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn no_task_of_a_batch_is_scheduled_if_one_cannot_be_used() {
    let world = World::new();
    let tasks = (0..600).map(|n| {
        let task = NewTask::new(KIND, &n);
        if n == 599 { task.max_attempts(0) } else { task }
    });
    let error = world.scheduler.schedule_all(tasks).await.unwrap_err();
    assert!(error.to_string().contains("max_attempts"), "{error}");
    assert!(world.every_row().await.is_empty());
    assert!(world.precise.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_in_nothing_out() {
    let world = World::new();
    assert!(world.scheduler.schedule_all([]).await.unwrap().is_empty());
    assert!(world.scheduler.cancel_all([]).await.unwrap().is_empty());
    assert!(world.scheduler.reschedule_all([]).await.unwrap().is_empty());
    assert!(world.store.calls(Op::Insert).is_empty());
    assert!(world.store.calls(Op::Change).is_empty());
}

/// Such as that of a test, or of a thread.
#[test]
fn wake_ups_are_sent_also_when_the_runtime_has_ended_in_which_the_scheduler_was_built() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let first = runtime();
    let scheduler = first.block_on(async { Scheduler::new(MemoryStore::new()) });
    drop(first);
    let stats = runtime().block_on(async {
        let later = NewTask::new(KIND, &1).after(secs(3_600));
        scheduler.schedule(later).await.unwrap();
        scheduler.close().await.unwrap();
        scheduler.stats()
    });
    assert_eq!((stats.sent_precise, stats.left_to_sweep), (1, 0));
}
