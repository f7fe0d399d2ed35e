//! What is due is taken: within the places, shared by kinds, and not what may not be attempted.

use std::time::Duration;

use delayline::claims::Claimed;
use delayline::expected::{Check, Expected};
use delayline::{Key, NewTask, Policy, State};

use super::{LEASE, kinds, schedule, take, wait};
use crate::support::{KIND, Op, Setup, World, at, ms, secs};

#[tokio::test(start_paused = true)]
async fn what_is_due_is_claimed_and_nothing_else() {
    let world = World::new();
    let claims = world.scheduler.claims();
    let due = schedule(&world, ms(500)).await;
    schedule(&world, ms(1_000)).await;
    let other = NewTask::new("mail.send", &1);
    world.scheduler.schedule(other).await.unwrap();
    assert_eq!(take(&claims, 10).await, []);
    world.pass(ms(700)).await;
    let taken = take(&claims, 10).await;
    assert_eq!(taken.len(), 1);
    let Claimed { claim, ref task, .. } = taken[0];
    assert_eq!((claim.task_id(), claim.version()), (due.id, 2));
    assert_eq!(
        (
            task.id,
            task.state,
            task.version,
            task.attempt,
            task.owner.as_deref()
        ),
        (due.id, State::Running, 2, 1, Some("a"))
    );
    assert_eq!(
        (task.payload.as_slice(), task.wake_at),
        (b"1".as_slice(), Some(at(30_700)))
    );
    assert_eq!(take(&claims, 10).await, []);
    let stats = world.scheduler.stats();
    assert_eq!(
        (stats.claimed_when_ready, stats.started, stats.late.max_ms),
        (1, 1, 200)
    );
    assert_eq!(world.store.calls(Op::Renew), [0; 0], "to take needs one write");
}

async fn schedule_many(world: &World, kind: &str, count: usize) {
    let tasks = (0..count).map(|number| NewTask::new(kind, &number));
    world.scheduler.schedule_all(tasks).await.unwrap();
}

/// How many of each kind are taken, in the order of `of`.
async fn counts(world: &World, of: &[&str], max: usize) -> Vec<usize> {
    let claims = world.scheduler.claims();
    let taken = claims.take(&kinds(of), max, LEASE, "a").await.unwrap();
    assert!(taken.len() <= max);
    let count = |kind: &&str| taken.iter().filter(|one| one.task.kind.as_str() == *kind).count();
    of.iter().map(count).collect()
}

#[tokio::test(start_paused = true)]
async fn kinds_share_the_places_and_leave_each_other_what_they_do_not_need() {
    let world = World::new();
    schedule_many(&world, "a", 100).await;
    schedule_many(&world, "b", 5).await;
    assert_eq!(counts(&world, &["a", "b", "c"], 6).await, [3, 3, 0]);
    assert_eq!(counts(&world, &["a", "b"], 10).await, [8, 2]);
    assert_eq!(counts(&world, &["a", "b"], 10).await, [10, 0]);
    // Of two places for three kinds each has one in its turn.
    schedule_many(&world, "b", 100).await;
    schedule_many(&world, "c", 100).await;
    let mut all = [0; 3];
    for _ in 0..9 {
        let taken = counts(&world, &["a", "b", "c"], 2).await;
        all.iter_mut().zip(taken).for_each(|(all, taken)| *all += taken);
    }
    assert_eq!(all, [6, 6, 6]);
    // Named twice it is one kind.
    assert_eq!(counts(&world, &["c", "c"], 4).await, [4, 4]);
}

#[tokio::test(start_paused = true)]
async fn the_longest_due_come_first_and_payloads_are_bounded() {
    let world = World::new();
    for delay in [30, 10, 20] {
        let task = NewTask::from_bytes(KIND, vec![0; 100]).key(delay.to_string());
        world.scheduler.schedule(task.after(ms(delay))).await.unwrap();
    }
    world.pass(ms(50)).await;
    let claims = world.scheduler.claims().payload_bytes(101).unwrap();
    let keys = |taken: Vec<Claimed>| -> Vec<_> {
        let key = |one: &Claimed| one.task.key.clone();
        taken.iter().map(key).collect()
    };
    assert_eq!(
        keys(take(&claims, 10).await),
        [Some(Key::from("10")), Some("20".into())]
    );
    assert_eq!(keys(take(&claims, 10).await), [Some(Key::from("30"))]);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_bounded_and_what_is_dropped_makes_room() {
    let world = World::new();
    for _ in 0..7 {
        let task = NewTask::from_bytes(KIND, vec![0; 100]);
        world.scheduler.schedule(task).await.unwrap();
    }
    let claims = world.scheduler.claims().payload_bytes_in_all(250).unwrap();
    let first = take(&claims, 2).await;
    assert_eq!((first.len(), claims.is_full()), (2, false));
    // For what is left, and the last one exceeds it.
    let second = take(&claims.clone(), 10).await;
    assert_eq!((second.len(), claims.is_full()), (1, true));
    assert_eq!(take(&claims, 10).await, []);
    let waiting = tokio::spawn({
        let claims = claims.clone();
        async move { wait(&claims, secs(60)).await }
    });
    world.pass(secs(10)).await;
    assert!(!waiting.is_finished());
    drop(first);
    assert!(!claims.is_full());
    world.pass(ms(250)).await;
    let third = waiting.await.unwrap();
    assert_eq!(third.len(), 1);
    drop((second, third));
    // A clone of what is held holds it.
    let rest = take(&claims, 10).await.clone();
    assert_eq!((rest.len(), claims.is_full()), (3, true));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_used_is_named() {
    let world = Setup {
        follow: vec![("followed", Check::new(async |_| Ok(vec![Expected::Run])))],
        ..Setup::default()
    }
    .build();
    let claims = world.scheduler.claims();
    let long = "x".repeat(256);
    let cases: [(&[&str], usize, Duration, &str, &str); 9] = [
        (&[], 1, LEASE, "a", "kinds is"),
        (&[""], 1, LEASE, "a", "kind is"),
        (&["followed"], 1, LEASE, "a", "kind is \"followed\""),
        (&[KIND], 0, LEASE, "a", "max is \"0\""),
        (&[KIND], 501, LEASE, "a", "max is \"501\": allowed are 1 to 500"),
        (&[KIND], 1, ms(999), "a", "lease is \"999ms\""),
        (&[KIND], 1, secs(86_401), "a", "lease is"),
        (&[KIND], 1, LEASE, "a\n", "owner is"),
        (&[KIND], 1, LEASE, &long, "owner is"),
    ];
    for (of, max, lease, owner, said) in cases {
        let of = kinds(of);
        let error = claims.take(&of, max, lease, owner).await.unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().starts_with(said),
            "{error}"
        );
        let waiting = claims.wait(&of, max, lease, owner, secs(1)).await;
        assert_eq!(waiting.unwrap_err().to_string(), error.to_string());
    }
    assert!(claims.clone().payload_bytes(0).unwrap_err().is_invalid());
    let none = claims.clone().payload_bytes_in_all(0);
    assert!(none.unwrap_err().is_invalid());
    let never = Policy::new().max_attempts(0);
    assert!(claims.clone().policy(KIND, never).unwrap_err().is_invalid());
    assert!(claims.clone().policy("", Policy::new()).unwrap_err().is_invalid());
    assert_eq!(world.store.calls(Op::Ready), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_deadline_has_passed_is_dead_and_the_next_is_given() {
    let world = World::new();
    let first = schedule(&world, Duration::ZERO).await;
    world.pass(secs(10)).await;
    let second = schedule(&world, Duration::ZERO).await;
    let policy = Policy::new().deadline(secs(5));
    let claims = world.scheduler.claims().policy(KIND, policy).unwrap();
    let taken = take(&claims, 1).await;
    assert_eq!(
        taken.iter().map(|one| one.task.id).collect::<Vec<_>>(),
        [second.id]
    );
    let row = world.row(first.id).await;
    assert_eq!((row.state, row.attempt), (State::Dead, 0));
    assert!(row.last_error.unwrap().starts_with("the deadline, 5s after"));
    assert_eq!(world.scheduler.stats().dead, 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_first_call_has_claimed_is_given_though_the_next_fails() {
    let world = World::new();
    schedule_many(&world, "a", 10).await;
    let claims = world.scheduler.claims();
    let of = kinds(&["a", "b"]);
    world.store.hold_answers(Op::Ready);
    let (taken, ()) = tokio::join!(claims.take(&of, 4, LEASE, "a"), async {
        world.pass(ms(1)).await;
        world.store.fail(Op::Ready, 1);
        world.store.free(Op::Ready);
    });
    assert_eq!(taken.unwrap().len(), 2);
    world.store.fail(Op::Ready, 1);
    assert!(claims.take(&of, 4, LEASE, "a").await.unwrap_err().is_transient());
}
