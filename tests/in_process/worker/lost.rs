//! Lost claims: stopped, not started, not settled; and what is lost is told from what is not.

use async_trait::async_trait;
use delayline::store::{Change, Ending, Guarded, NewRow, Note, Stamped, Step, Store, Target, Transaction};
use delayline::{Answer, Error, Outcome, Policy, Scheduled, State, Task, TaskId};

use crate::support::{KIND, Op, Running, World, ms, secs};
use crate::worker::leases::{Ended, schedule, working};
use crate::worker::outcomes::worker_that;

/// Gives a claim back behind its worker's back.
async fn release(world: &World, id: TaskId, version: u64) {
    let release = Step::end(id, version, Ending::Release);
    assert_eq!(world.rows.advance(&[release]).await.unwrap(), [Guarded::Done]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_whose_lease_was_lost_is_stopped_and_settles_nothing() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new().concurrency(1), working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(30)).sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    let row = schedule(&world, 25).await;
    world.pass(secs(1)).await;
    world.expire_leases(secs(31)).await;
    let [taken] = &world.claim_elsewhere("another").await[..] else {
        panic!("not taken over");
    };
    assert_eq!((taken.version, taken.attempt), (row.version + 3, 1));
    // Refused at the next renewal, one in ten seconds.
    world.pass_until(10_010).await;
    assert!(
        matches!(ended.times()[..], [10_000..=10_010]),
        "{:?}",
        ended.times()
    );
    assert_eq!(world.row(row.id).await, *taken);
    let stats = world.scheduler.stats();
    assert_eq!((stats.lost_claims, stats.done, stats.retried), (1, 0, 0));
    // Its place is free for the next.
    schedule(&world, 0).await;
    world.pass(ms(1)).await;
    assert_eq!(world.runs.count(), 2);
    // The new owner is the one that settles.
    let done = Step::end(taken.id, taken.version, Ending::Done);
    assert_eq!(world.rows.advance(&[done]).await.unwrap(), [Guarded::Done]);
    world.pass(secs(60)).await;
    assert_eq!(world.runs.count(), 2);
}

/// A transaction whose database does not answer.
struct Hanging;

#[async_trait]
impl Transaction for Hanging {
    async fn insert(&mut self, _: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, Error> {
        std::future::pending().await
    }

    async fn change(&mut self, _: Vec<Change>) -> Result<Stamped<Vec<Answer>>, Error> {
        std::future::pending().await
    }

    async fn find(&mut self, _: &Target) -> Result<Option<Task>, Error> {
        std::future::pending().await
    }

    async fn finish(&mut self, _: TaskId, _: u64, _: Note) -> Result<bool, Error> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_gave_up_finishing_is_stopped_when_its_lease_was_lost() {
    let world = World::new();
    let ended = Ended::default();
    let (clock, guarded) = (world.clock.clone(), ended.clone());
    let worker = worker_that(&world, Policy::new(), move |context| {
        let (clock, guarded) = (clock.clone(), guarded.clone());
        Box::pin(async move {
            let _guard = guarded.guard(&clock);
            let finished = clock.timeout(secs(1), context.finish_in(Hanging)).await;
            assert!(finished.is_none());
            std::future::pending().await
        })
    });
    let _worker = Running::start(worker.lease(secs(30)).sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    let row = schedule(&world, 0).await;
    world.pass(secs(2)).await;
    release(&world, row.id, row.version + 1).await;
    assert_eq!(world.claim_elsewhere("another").await.len(), 1);
    // Refused at the next renewal, one in ten seconds.
    world.pass_until(10_010).await;
    assert!(
        matches!(ended.times()[..], [10_000..=10_010]),
        "{:?}",
        ended.times()
    );
    assert_eq!(world.scheduler.stats().lost_claims, 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_ends_before_the_loss_is_noticed_settles_nothing_either() {
    for outcome in [
        Outcome::Done,
        Outcome::Retry("no".into()),
        Outcome::Discard("no".into()),
    ] {
        let world = World::new();
        let (clock, answer) = (world.clock.clone(), outcome.clone());
        let worker = worker_that(&world, Policy::new(), move |_| {
            let (clock, answer) = (clock.clone(), answer.clone());
            Box::pin(async move {
                clock.sleep(secs(5)).await;
                Ok(answer)
            })
        });
        let worker = worker.on_dead(|task| panic!("no death of ours: {task:?}"));
        let worker = Running::start(worker.lease(secs(30)).sweep_every(secs(1_000)));
        schedule(&world, 0).await;
        world.pass(secs(1)).await;
        world.expire_leases(secs(31)).await;
        let taken = world.claim_elsewhere("another").await;
        world.pass(secs(30)).await;
        assert_eq!(world.rows_in(KIND, State::Running).await, taken);
        let stats = world.scheduler.stats();
        assert_eq!(
            (stats.lost_claims, stats.done, stats.retried, stats.dead),
            (1, 0, 0, 0)
        );
        worker.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_lease_has_ended_is_not_started() {
    let world = World::new();
    let ended = Ended::default();
    let policy = Policy::new().concurrency(1).prefetch(10);
    let worker = worker_that(&world, policy, working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(10)).sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    // The store is away from this worker for longer than its lease.
    world.store.hold(Op::Renew);
    schedule(&world, 60).await;
    world.pass(ms(1)).await;
    let queued = schedule(&world, 0).await;
    let late = schedule(&world, 0).await;
    world.pass(secs(30)).await;
    // Another worker's sweep ends the leases; a caller cancels, and is told that it is done.
    world.expire_leases(secs(0)).await;
    assert!(world.scheduler.cancel(queued.id).await.unwrap().is_done());
    world.pass(secs(40)).await;
    assert!(
        world.runs.of(queued.id).is_empty(),
        "never early, never after a cancel"
    );
    assert!(world.runs.of(late.id).is_empty(), "no longer this worker's");
    world.store.free(Op::Renew);
    world.pass(secs(12)).await;
    assert!(world.runs.of(late.id).is_empty(), "no longer this worker's");
    // The running one and the two that were not started.
    assert_eq!(world.scheduler.stats().lost_claims, 3);
}

#[tokio::test(start_paused = true)]
async fn a_lease_begins_before_its_claim_was_asked_for() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new(), working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(5)).sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    world.store.hold(Op::Renew);
    // The claim has its effect at once; its answer takes longer than the lease that it brings.
    world.store.hold_answers(Op::Arrive);
    let row = schedule(&world, 0).await;
    world.pass(secs(6)).await;
    world.expire_leases(secs(0)).await;
    assert!(world.scheduler.cancel(row.id).await.unwrap().is_done());
    world.store.free(Op::Arrive);
    world.pass(secs(5)).await;
    assert_eq!(world.runs.count(), 0);
    world.store.free(Op::Renew);
    world.pass(secs(5)).await;
    assert_eq!(world.runs.count(), 0);
    assert_eq!(world.scheduler.stats().lost_claims, 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_lost_and_won_again_by_the_same_worker_starts_once() {
    let world = World::new();
    let ended = Ended::default();
    let policy = Policy::new().concurrency(2).prefetch(10);
    let worker = worker_that(&world, policy, working(&world, &ended));
    let worker = Running::start(worker.lease(secs(30)).sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    for _ in 0..2 {
        schedule(&world, 20).await;
    }
    world.pass(ms(1)).await;
    let queued = schedule(&world, 5).await;
    world.pass(ms(1)).await;
    // Lost while it waits to be started, which this worker learns at its next renewal …
    release(&world, queued.id, queued.version + 1).await;
    world.pass_until(12_000).await;
    assert_eq!(world.scheduler.stats().lost_claims, 1);
    // … and won again, still before it can be started.
    assert!(world.scheduler.run_now(queued.id).await.unwrap().is_done());
    world.pass_until(22_000).await;
    assert_eq!(
        world.runs.of(queued.id).len(),
        1,
        "once, though two places became free"
    );
    // Nor does a stop take its running handler for one that was not started.
    worker.stop().await.unwrap();
    assert_eq!(world.row(queued.id).await.state, State::Done);
}

#[tokio::test(start_paused = true)]
async fn a_running_claim_that_was_lost_and_won_again_runs_once_at_a_time() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new(), working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(30)));
    world.pass(ms(1)).await;
    let row = schedule(&world, 25).await;
    world.pass_until(5_000).await;
    release(&world, row.id, row.version + 1).await;
    // This worker's own sweep has it again, before a renewal tells that it was lost.
    world.settle().await;
    let [first, second] = &world.runs.of(row.id)[..] else {
        panic!("{:?}", world.runs.all());
    };
    let [stopped, done] = ended.times()[..] else {
        panic!("{ended:?}");
    };
    assert_eq!(first.at, 1);
    assert!(matches!(second.at, 5_000..=6_000) && stopped == second.at && done == second.at + 25_000);
    assert_eq!(world.row(row.id).await.state, State::Done);
    let stats = world.scheduler.stats();
    assert_eq!((stats.lost_claims, stats.released), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn places_that_lost_claims_leave_are_given_to_tasks_that_wait() {
    let world = World::new();
    let ended = Ended::default();
    let policy = Policy::new().concurrency(1).prefetch(1);
    let worker = worker_that(&world, policy, working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(30)).sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    let lost = [schedule(&world, 100).await, schedule(&world, 100).await];
    world.pass(ms(1)).await;
    let waiting = schedule(&world, 0).await;
    world.pass(ms(1)).await;
    assert_eq!(world.row(waiting.id).await.state, State::Scheduled);
    for row in &lost {
        let done = Step::end(row.id, row.version + 1, Ending::Done);
        assert_eq!(world.rows.advance(&[done]).await.unwrap(), [Guarded::Done]);
    }
    world.pass_until(10_010).await;
    assert_eq!(
        world.row(waiting.id).await.state,
        State::Done,
        "as soon as the loss is known"
    );
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_refused_because_its_claim_has_just_been_settled_is_no_loss() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new(), working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(3)));
    world.store.hold_answers(Op::Settle);
    let row = schedule(&world, 0).await;
    world.pass(ms(1_500)).await;
    assert_eq!(world.row(row.id).await.state, State::Done);
    assert_eq!(world.store.calls(Op::Renew), [1], "it was asked, and refused");
    world.store.free(Op::Settle);
    world.pass(ms(1)).await;
    let stats = world.scheduler.stats();
    assert_eq!((stats.done, stats.lost_claims), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_renewal_is_for_the_claim_that_it_was_asked_for() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new(), working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(30)));
    world.pass(ms(1)).await;
    let row = schedule(&world, 15).await;
    // Refused for the first claim, and answered when the task has been claimed anew here.
    world.pass_until(9_000).await;
    world.store.hold(Op::Renew);
    world.pass_until(11_000).await;
    assert_eq!(world.store.waiting(Op::Renew), 1);
    release(&world, row.id, row.version + 1).await;
    world.pass_until(12_000).await;
    assert_eq!(world.runs.count(), 2);
    world.store.free(Op::Renew);
    world.settle().await;
    assert_eq!(world.runs.count(), 2, "the second was not stopped");
    assert_eq!(ended.times().len(), 2);
    assert_eq!(world.scheduler.stats().lost_claims, 1);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_of_an_older_claim_does_not_end_the_lease_of_a_newer_one() {
    let world = World::new();
    let ended = Ended::default();
    let policy = Policy::new().concurrency(1).prefetch(10);
    let worker = worker_that(&world, policy, working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(30)).sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    schedule(&world, 45).await;
    world.pass(ms(1)).await;
    let queued = schedule(&world, 0).await;
    // Renewed at 10 s, and so until 40 s; but that is not known here yet.
    world.store.hold_answers(Op::Renew);
    world.pass_until(20_000).await;
    // Lost, and claimed anew, until 50 s.
    release(&world, queued.id, queued.version + 1).await;
    assert!(world.scheduler.run_now(queued.id).await.unwrap().is_done());
    world.pass_until(21_000).await;
    world.store.hold(Op::Renew);
    world.store.free_answers(Op::Renew);
    // Its turn comes at 45 s.
    world.pass_until(46_000).await;
    assert_eq!(world.runs.of(queued.id).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_begins_before_it_was_asked_for() {
    let world = World::new();
    let ended = Ended::default();
    let policy = Policy::new().concurrency(1).prefetch(10);
    let worker = worker_that(&world, policy, working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(9)).sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    schedule(&world, 13).await;
    world.pass(ms(1)).await;
    let queued = schedule(&world, 0).await;
    // Renewed at 3 s, and so until 12 s, which is known here at 5.5 s.
    world.store.hold_answers(Op::Renew);
    world.pass_until(5_500).await;
    world.store.hold(Op::Renew);
    world.store.free_answers(Op::Renew);
    world.pass_until(12_500).await;
    world.expire_leases(secs(0)).await;
    assert!(world.scheduler.cancel(queued.id).await.unwrap().is_done());
    world.pass_until(20_000).await;
    assert!(world.runs.of(queued.id).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_place_that_an_ended_lease_leaves_is_given_to_tasks_that_wait() {
    let world = World::new();
    let ended = Ended::default();
    let policy = Policy::new().concurrency(1).prefetch(0);
    let worker = worker_that(&world, policy, working(&world, &ended));
    let _worker = Running::start(worker.lease(secs(5)));
    world.pass(ms(1)).await;
    world.store.hold_answers(Op::Arrive);
    let row = schedule(&world, 0).await;
    // The claim's answer takes longer than its lease. The sweep sees the task without a place for it.
    world.pass_until(7_000).await;
    assert_eq!(world.row(row.id).await.state, State::Scheduled);
    world.store.free(Op::Arrive);
    world.pass(ms(1)).await;
    assert_eq!(world.runs.times(), [7_000]);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_counted_once() {
    let world = World::new();
    let ended = Ended::default();
    let worker = worker_that(&world, Policy::new(), working(&world, &ended));
    let _worker = Running::start(worker);
    world.pass(ms(1)).await;
    // Lost while it is being settled, and claimed anew here before that is refused.
    world.store.hold(Op::Settle);
    let row = schedule(&world, 0).await;
    world.pass(ms(1)).await;
    release(&world, row.id, row.version + 1).await;
    world.pass(secs(2)).await;
    assert_eq!(world.runs.count(), 2);
    world.store.free(Op::Settle);
    world.settle().await;
    let stats = world.scheduler.stats();
    assert_eq!((stats.done, stats.lost_claims), (1, 1));
}
