//! Reschedule, shift and run now: the task runs once, at its new time, and not at the old.

use delayline::store::Expect;
use delayline::{Answer, NewTask, Shift, State, Task};

use crate::support::{KIND, Op, World, at, ms, secs};

/// A task due in 10 s, and a worker.
async fn scheduled(world: &World) -> Task {
    let task = NewTask::new(KIND, &1).key("k").after(secs(10));
    world.scheduler.schedule(task).await.unwrap().task().clone()
}

pub(super) fn done(answer: Answer) -> Task {
    match answer {
        Answer::Done(task) => task,
        other => panic!("not done: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn rescheduled_earlier_it_runs_then_and_not_again_at_the_old_time() {
    let world = World::with_levels("1s 5s 10s");
    let _worker = world.work();
    let row = scheduled(&world).await;
    world.pass(secs(1)).await;
    let moved = done(world.scheduler.reschedule(row.id, secs(2)).await.unwrap());
    assert_eq!((moved.due_at, moved.planned_at), (at(3_000), at(3_000)));
    assert_eq!((moved.version, moved.hop, moved.attempt), (2, 0, 0));
    world.pass(secs(1)).await;
    assert_eq!(world.runs.count(), 0, "before its new time");
    world.pass(secs(60)).await;
    assert_eq!(world.runs.times(), [3_000]);
    // The wake-up of the old time came and was dropped.
    assert_eq!(world.scheduler.stats().stale, 1);
}

#[tokio::test(start_paused = true)]
async fn rescheduled_later_it_does_not_run_at_the_old_time() {
    let world = World::with_levels("1s 5s 10s");
    let _worker = world.work();
    let row = scheduled(&world).await;
    world.pass(secs(9)).await;
    let moved = done(world.scheduler.reschedule((KIND, "k"), at(29_500)).await.unwrap());
    assert_eq!((moved.id, moved.due_at), (row.id, at(29_500)));
    world.pass(secs(60)).await;
    assert_eq!(world.runs.times(), [29_500]);
    assert_eq!(world.scheduler.stats().stale, 1);
}

#[tokio::test(start_paused = true)]
async fn the_precise_wake_up_of_an_old_time_is_removed() {
    let world = World::new();
    let _worker = world.work();
    let row = scheduled(&world).await;
    done(world.scheduler.reschedule(row.id, secs(2)).await.unwrap());
    done(world.scheduler.cancel(row.id).await.unwrap());
    world.pass(secs(60)).await;
    let stats = world.scheduler.stats();
    assert_eq!((stats.received, stats.stale), (0, 0));
    assert_eq!(world.runs.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn many_are_rescheduled_at_once_and_answered_in_order() {
    let world = World::new();
    let _worker = world.work();
    let row = scheduled(&world).await;
    let missing = world.clock.new_id();
    let moves = [
        (row.id.into(), at(4_000).into()),
        (missing.into(), at(4_000).into()),
        ((KIND, "k").into(), secs(6).into()),
    ];
    let answers = world.scheduler.reschedule_all(moves).await.unwrap();
    let [Answer::Done(first), Answer::NotFound, Answer::Done(second)] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!((first.version, second.version), (2, 3));
    world.pass(secs(60)).await;
    assert_eq!(world.runs.times(), [6_000]);
}

#[tokio::test(start_paused = true)]
async fn a_shift_counts_from_the_due_time_both_ways() {
    let world = World::new();
    let _worker = world.work();
    let row = scheduled(&world).await;
    world.pass(secs(2)).await;
    let later = world
        .scheduler
        .shift(row.id, Shift::Later(ms(2_500)))
        .await
        .unwrap();
    assert_eq!(done(later).due_at, at(12_500));
    let earlier = world
        .scheduler
        .shift((KIND, "k"), Shift::Earlier(secs(5)))
        .await
        .unwrap();
    assert_eq!(done(earlier).due_at, at(7_500));
    world.pass(secs(60)).await;
    assert_eq!(world.runs.times(), [7_500]);
}

#[tokio::test(start_paused = true)]
async fn a_shift_to_before_now_means_now() {
    let world = World::new();
    let _worker = world.work();
    let row = scheduled(&world).await;
    world.pass(secs(2)).await;
    let moved = done(
        world
            .scheduler
            .shift(row.id, Shift::Earlier(secs(3_600)))
            .await
            .unwrap(),
    );
    // Now and not an hour ago: deadlines and lateness count from here.
    assert_eq!((moved.due_at, moved.planned_at), (at(2_000), at(2_000)));
    world.pass(secs(60)).await;
    assert_eq!(world.runs.times(), [2_000]);
    assert_eq!(world.runs.all()[0].lateness, ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_shift_by_expectation_moves_only_what_is_as_expected() {
    let world = World::new();
    let row = scheduled(&world).await;
    let by = Shift::Later(secs(1));
    for (expect, moves) in [
        (Expect::Version(2), false),
        (Expect::Due(at(9_999)), false),
        (Expect::Version(1), true),
        (Expect::Version(1), false),
        (Expect::Due(at(10_000)), false),
        (Expect::Due(at(11_000)), true),
        (Expect::Due(at(11_000)), false),
        (Expect::Anything, true),
    ] {
        let before = world.row(row.id).await;
        let answer = world.scheduler.shift_if(row.id, expect, by).await.unwrap();
        let after = world.row(row.id).await;
        assert_eq!(answer.is_done(), moves, "{expect:?}: {answer:?}");
        if moves {
            assert_eq!(answer, Answer::Done(after.clone()));
            assert_eq!(after.due_at, before.due_at.after(secs(1)));
        } else {
            assert_eq!(answer, Answer::Conflict(after.clone()));
            assert_eq!(after, before);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shift_by_expectation_repeated_after_a_lost_answer_has_its_effect_once() {
    for by_version in [false, true] {
        let world = World::new();
        let _worker = world.work();
        let row = scheduled(&world).await;
        let expect = if by_version {
            Expect::Version(row.version)
        } else {
            Expect::Due(row.due_at)
        };
        let by = Shift::Later(secs(5));
        world.store.lose_answers(Op::Change, 1);
        world.scheduler.shift_if(row.id, expect, by).await.unwrap_err();
        let repeated = world.scheduler.shift_if(row.id, expect, by).await.unwrap();
        assert!(
            matches!(&repeated, Answer::Conflict(task) if task.due_at == at(15_000)),
            "{repeated:?}"
        );
        world.pass(secs(60)).await;
        // Its wake-up was lost with the answer: at the most a second.
        let times = world.runs.times();
        assert!(matches!(times[..], [15_000..=16_000]), "{times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn shifts_at_the_same_moment_all_count() {
    let world = World::new();
    let row = scheduled(&world).await;
    world.store.take(ms(5));
    let mut shifts = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let scheduler = world.scheduler.clone();
        shifts.spawn(async move { scheduler.shift(row.id, Shift::Later(secs(1))).await.unwrap() });
    }
    let answers = shifts.join_all().await;
    assert!(answers.iter().all(Answer::is_done), "{answers:?}");
    assert_eq!(world.row(row.id).await.due_at, at(20_000));
}

#[tokio::test(start_paused = true)]
async fn of_shifts_by_the_same_expectation_at_the_same_moment_one_counts() {
    for (expect, by) in [
        (Expect::Due(at(10_000)), Shift::Later(secs(1))),
        (Expect::Version(1), Shift::Later(secs(1))),
        // The due time alone does not tell that another was first.
        (Expect::Version(1), Shift::Later(secs(0))),
    ] {
        let world = World::new();
        let row = scheduled(&world).await;
        assert_eq!(row.due_at, at(10_000));
        world.store.take(ms(5));
        let mut shifts = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let scheduler = world.scheduler.clone();
            shifts.spawn(async move { scheduler.shift_if(row.id, expect, by).await.unwrap() });
        }
        let answers = shifts.join_all().await;
        let moved = answers.iter().filter(|answer| answer.is_done()).count();
        assert_eq!(moved, 1, "{expect:?}: {answers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hop_on_the_way_is_no_conflict_for_a_shift_by_due_time() {
    let world = World::with_levels("1s");
    let _worker = world.work();
    let row = scheduled(&world).await;
    world.pass(ms(3_500)).await;
    assert_eq!(world.row(row.id).await.hop, 3);
    let expect = Expect::Due(row.due_at);
    let moved = world
        .scheduler
        .shift_if(row.id, expect, Shift::Earlier(secs(3)))
        .await
        .unwrap();
    assert_eq!(done(moved).due_at, at(7_000));
    world.settle().await;
    assert_eq!(world.runs.times(), [7_000]);
}

#[tokio::test(start_paused = true)]
async fn run_now_runs_it_now_and_not_again_later() {
    let world = World::with_levels("1s 5s 10s");
    let _worker = world.work();
    let row = scheduled(&world).await;
    world.pass(ms(1_234)).await;
    let moved = done(world.scheduler.run_now((KIND, "k")).await.unwrap());
    assert_eq!(
        (moved.id, moved.due_at, moved.planned_at),
        (row.id, at(1_234), at(1_234))
    );
    world.pass(secs(60)).await;
    assert_eq!(world.runs.times(), [1_234]);
    let answer = world.scheduler.run_now(row.id).await.unwrap();
    assert!(
        matches!(&answer, Answer::Finished(task) if task.state == State::Done),
        "{answer:?}"
    );
}
