//! Cases of [`Store::renew`](crate::store::Store::renew).

use std::time::Duration;

use super::StoreFixture;
use super::trial::*;
use crate::store::{Ending, PollResult};
use crate::{State, Task};

pub(super) async fn a_renewal_moves_the_end_of_the_lease_and_nothing_else(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let before = trial.row_in(State::Running, 1, "a").await;
    trial.pass(NONE).await;
    let lease = Duration::from_secs(60);
    let start = trial.now().await;
    assert_eq!(trial.renew(&[(id(1), before.version)], lease).await, [true]);
    let span = (start, trial.now().await);
    let task = trial.get(id(1)).await;
    assert_after(span, lease, task.wake_at);
    let wake_at = task.wake_at;
    assert_eq!(task, Task { wake_at, ..before });
    assert!(trial.end(&task, Ending::Done).await);
}

pub(super) async fn a_renewed_lease_is_not_swept(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1)).await;
    // As long as no worker has taken it, a lease that has ended can be renewed.
    let task = trial.claim(&task, &fleeting()).await;
    assert_eq!(trial.renew(&[(id(1), task.version)], LONG).await, [true]);
    assert_eq!(trial.sweep(&any(), MANY, LONG).await, PollResult::default());
}

pub(super) async fn a_claim_that_lost_its_lease_cannot_renew(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1)).await;
    let lost = trial.claim(&task, &fleeting()).await;
    assert_eq!(trial.sweep(&nothing(), MANY, LONG).await.expired, 1);
    let free = trial.get(id(1)).await;
    assert_eq!(trial.renew(&[(id(1), lost.version)], LONG).await, [false]);
    assert_eq!(trial.get(id(1)).await, free);

    let held = trial.claim(&free, &any()).await;
    assert_eq!(trial.renew(&[(id(1), lost.version)], NONE).await, [false]);
    assert_eq!(trial.get(id(1)).await, held);
}

pub(super) async fn only_a_running_row_of_the_version_is_renewed(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, state) in (1..).zip(State::ALL) {
        let task = trial.row_in(state, n, &n.to_string()).await;
        let versions = [task.version - 1, task.version + 1, task.version];
        let expected = [false, false, state == State::Running];
        for (version, expected) in versions.into_iter().zip(expected) {
            assert_eq!(trial.renew(&[(id(n), version)], LONG).await, [expected]);
        }
        let after = trial.get(id(n)).await;
        let wake_at = after.wake_at;
        if state == State::Running {
            assert_eq!(after, Task { wake_at, ..task });
        } else {
            assert_eq!(after, task);
        }
    }
}

pub(super) async fn renewals_are_answered_in_the_order_given(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for n in 1..=3 {
        trial.row_in(State::Running, n, &n.to_string()).await;
    }
    let claims = [(id(3), 2), (id(9), 2), (id(1), 2), (id(2), 1)];
    let renewed = trial.renew(&claims, LONG).await;
    assert_eq!(renewed, [true, false, true, false]);
}

pub(super) async fn that_a_handler_has_started_is_noted(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let before = trial.row_in(State::Running, 1, "a").await;
    assert!(!before.started);
    let claim = [(id(1), before.version)];
    assert_eq!(trial.renew_as(&claim, LONG, true).await, [true]);
    // Once started it stays so.
    assert_eq!(trial.renew_as(&claim, LONG, false).await, [true]);
    let task = trial.get(id(1)).await;
    let wake_at = task.wake_at;
    let started = true;
    assert_eq!(
        task,
        Task {
            wake_at,
            started,
            ..before
        }
    );
    let (after, overdue_after) = (NONE, LONG);
    assert!(
        trial
            .end(
                &task,
                Ending::Snooze {
                    after,
                    overdue_after,
                    reason: None,
                }
            )
            .await
    );
    assert!(!trial.get(id(1)).await.started);
}

pub(super) async fn a_lost_claim_does_not_end_the_lease_of_the_next(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1)).await;
    let lost = trial.claim(&task, &fleeting()).await;
    assert_eq!(trial.sweep(&nothing(), MANY, LONG).await.expired, 1);
    let held = trial.claim(&trial.get(id(1)).await, &fleeting()).await;
    // Its claim alone would have ended.
    assert_eq!(trial.renew_as(&[(id(1), held.version)], LONG, true).await, [true]);
    for ending in endings() {
        assert!(!trial.end(&lost, ending).await);
        assert_eq!(trial.renew(&[(id(1), lost.version)], NONE).await, [false]);
    }
    assert_eq!(trial.sweep(&any(), MANY, LONG).await, PollResult::default());
}
