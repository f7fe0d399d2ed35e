//! Cases of [`Store::arrive`](crate::store::Store::arrive).

use std::collections::BTreeMap;

use super::StoreFixture;
use super::trial::*;
use crate::backend::Wake;
use crate::store::{Claim, Ending, NewRow, PollResult, When};
use crate::{State, Task, Timestamp};

pub(super) async fn a_due_row_is_claimed(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let before = trial.add(due(1).named("a")).await;
    let start = trial.now().await;
    let polled = trial.arrive(&[wake(&before)], &any()).await;
    let task = trial.get(id(1)).await;
    assert_claimed(&before, &task, (start, trial.now().await));
    let expected = PollResult {
        claimed: vec![task],
        ..PollResult::default()
    };
    assert_eq!(polled, expected);
}

/// Asserts that `task` is what a claim of [`any`] makes of a row.
#[track_caller]
pub(super) fn assert_claimed(before: &Task, task: &Task, span: (Timestamp, Timestamp)) {
    assert_after(span, LONG, task.wake_at);
    assert_after(span, NONE, task.updated_at);
    let expected = Task {
        state: State::Running,
        version: before.version + 1,
        attempt: before.attempt + 1,
        owner: Some("tester".to_owned()),
        wake_at: task.wake_at,
        updated_at: task.updated_at,
        ..before.clone()
    };
    assert_eq!(*task, expected);
}

pub(super) async fn a_row_that_is_not_due_is_early_and_unchanged(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let new = trial.add(later(1)).await;
    // One that is due at another time than it was planned for.
    let due = trial.add(due(2).named("a")).await;
    let claimed = trial.claim(&due, &any()).await;
    let (after, overdue_after) = (LONG, LONG);
    assert!(
        trial
            .end(
                &claimed,
                Ending::Snooze {
                    after,
                    overdue_after,
                    reason: None,
                }
            )
            .await
    );
    for task in [new, trial.get(id(2)).await] {
        // Neither room nor a handler is asked for.
        for claim in [any(), claim(&[(KIND, 0)]), nothing()] {
            let polled = trial.arrive(&[wake(&task)], &claim).await;
            let expected = PollResult {
                early: vec![pending(&task)],
                ..PollResult::default()
            };
            assert_eq!(polled, expected);
        }
        assert_eq!(trial.get(task.id).await, task);
    }
}

pub(super) async fn a_row_is_claimed_once_time_has_made_it_due(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let soon = NewRow {
        due: When::After(3 * SHORT),
        ..due(1)
    };
    let task = trial.add(soon).await;
    trial.pass(3 * SHORT).await;
    trial.claim(&task, &any()).await;
}

pub(super) async fn a_row_is_claimed_whatever_its_wake_at(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for row in [due(1), overdue(2)] {
        let task = trial.add(row).await;
        trial.claim(&task, &any()).await;
    }
}

pub(super) async fn another_version_is_stale(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1)).await;
    assert!(trial.hop_once(&task).await);
    let task = trial.get(id(1)).await;
    for version in [task.version - 1, task.version + 1, 0, i64::MAX.unsigned_abs()] {
        let foreign = Wake {
            version,
            ..wake(&task)
        };
        let polled = trial.arrive(&[foreign], &any()).await;
        let expected = PollResult {
            stale: 1,
            ..PollResult::default()
        };
        assert_eq!(polled, expected);
    }
    assert_eq!(trial.get(id(1)).await, task);
}

pub(super) async fn a_row_that_is_not_scheduled_is_stale(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let states = [State::Running, State::Done, State::Dead, State::Cancelled];
    for (n, state) in (1..).zip(states) {
        let task = trial.row_in(state, n, &n.to_string()).await;
        let polled = trial.arrive(&[wake(&task)], &any()).await;
        assert_eq!((polled.stale, polled.claimed.len()), (1, 0));
        assert_eq!(trial.get(id(n)).await, task);
    }
}

pub(super) async fn a_missing_row_is_stale(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1)).await;
    let missing = Wake {
        id: id(2),
        ..wake(&task)
    };
    assert_eq!(trial.arrive(&[missing], &any()).await.stale, 1);
}

pub(super) async fn of_twins_the_second_is_stale(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1)).await;
    let claimed = trial.claim(&task, &any()).await;
    let polled = trial.arrive(&[wake(&task)], &any()).await;
    assert_eq!((polled.stale, polled.claimed.len()), (1, 0));
    assert_eq!(trial.get(id(1)).await, claimed);
}

pub(super) async fn a_due_row_without_room_or_handler_waits_unchanged(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1)).await;
    for claim in [claim(&[(KIND, 0)]), claim(&[("other", MANY)]), nothing()] {
        let polled = trial.arrive(&[wake(&task)], &claim).await;
        let expected = PollResult {
            waiting: BTreeMap::from([(KIND.into(), 1)]),
            ..PollResult::default()
        };
        assert_eq!(polled, expected);
        assert_eq!(trial.get(id(1)).await, task);
    }
    trial.claim(&task, &any()).await;
}

pub(super) async fn room_is_for_each_kind_and_never_exceeded(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let mut wakes = Vec::new();
    for n in 1..=15 {
        let kind = ["a", "b", "c"][n as usize % 3];
        wakes.push(wake(&trial.add(due(n).of(kind)).await));
    }
    let polled = trial.arrive(&wakes, &claim(&[("a", 2), ("b", 9)])).await;
    assert_eq!(count(&polled.claimed, "a"), 2);
    assert_eq!(count(&polled.claimed, "b"), 5);
    assert_eq!(polled.claimed.len(), 7);
    let waiting = BTreeMap::from([("a".into(), 3), ("c".into(), 5)]);
    assert_eq!(polled.waiting, waiting);
    let scheduled = trial.list("a", State::Scheduled, MANY).await;
    assert_eq!(scheduled.len(), 3);
    assert!(scheduled.iter().all(|task| task.version == 1));
}

pub(super) fn count(tasks: &[Task], kind: &str) -> usize {
    tasks.iter().filter(|task| task.kind.as_str() == kind).count()
}

pub(super) async fn the_kind_of_the_row_counts_and_not_that_of_the_wake(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1).of("a")).await;
    let foreign = Wake {
        kind: "b".into(),
        ..wake(&task)
    };
    let polled = trial.arrive(&[foreign], &claim(&[("b", 1)])).await;
    assert_eq!(polled.claimed, []);
    assert_eq!(trial.get(id(1)).await, task);
}

pub(super) async fn a_mixed_batch_tells_each_apart(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let ready = trial.add(due(1)).await;
    let early = trial.add(later(2)).await;
    let stale = trial.row_in(State::Done, 3, "a").await;
    let waiting = trial.add(due(4).of("other")).await;
    let missing = Wake {
        id: id(5),
        ..wake(&ready)
    };
    let wakes = [wake(&stale), wake(&early), missing, wake(&ready), wake(&waiting)];
    let polled = trial.arrive(&wakes, &any()).await;
    assert_eq!(ids(&polled.claimed), [id(1)]);
    assert_eq!(polled.early, [pending(&early)]);
    assert_eq!(polled.stale, 2);
    assert_eq!(polled.waiting, BTreeMap::from([("other".into(), 1)]));
    assert_eq!(polled.expired, 0);
}

pub(super) async fn the_owner_of_a_claim_is_noted(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1)).await;
    let owner = "host-é:42";
    let claim = Claim {
        owner: owner.into(),
        ..any()
    };
    let task = trial.claim(&task, &claim).await;
    assert_eq!(task.owner.as_deref(), Some(owner));
    assert_eq!(trial.get(id(1)).await.owner.as_deref(), Some(owner));
}
