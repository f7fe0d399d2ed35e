//! Cases of hops that [`Store::advance`](crate::store::Store::advance) records.

use std::time::Duration;

use super::StoreFixture;
use super::trial::*;
use crate::store::Step;
use crate::{State, Task};

pub(super) async fn a_hop_moves_the_row_on(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    // A row that has become due in the meantime may take a hop too.
    for row in [later(1), due(2)] {
        let before = trial.add(row).await;
        let start = trial.now().await;
        let hop = Step::hop(before.id, before.version, Duration::from_secs(60));
        assert_eq!(trial.advance(&[hop]).await, [true]);
        let task = trial.get(before.id).await;
        assert_after((start, trial.now().await), Duration::from_secs(60), task.wake_at);
        let expected = Task {
            version: before.version + 1,
            hop: before.hop + 1,
            wake_at: task.wake_at,
            ..before
        };
        assert_eq!(task, expected);
    }
}

pub(super) async fn of_two_hops_from_one_version_one_is_taken(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(later(1)).await;
    assert!(trial.hop_once(&task).await);
    let once = trial.get(id(1)).await;
    assert!(!trial.hop_once(&task).await);
    assert_eq!(trial.get(id(1)).await, once);
    assert!(trial.hop_once(&once).await);
    assert_eq!(trial.get(id(1)).await.hop, 2);
}

pub(super) async fn a_row_that_is_not_scheduled_takes_no_hop(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let states = [State::Running, State::Done, State::Dead, State::Cancelled];
    for (n, state) in (1..).zip(states) {
        let task = trial.row_in(state, n, &n.to_string()).await;
        assert!(!trial.hop_once(&task).await);
        assert_eq!(trial.get(id(n)).await, task);
    }
}

pub(super) async fn hops_are_answered_in_the_order_given(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for n in 1..=3 {
        trial.add(later(n)).await;
    }
    let hop = |n, version| Step::hop(id(n), version, LONG);
    let hops = [hop(3, 1), hop(9, 1), hop(1, 1), hop(2, 2)];
    assert_eq!(trial.advance(&hops).await, [true, false, true, false]);
    for (n, version) in [(1, 2), (2, 1), (3, 2)] {
        assert_eq!(trial.get(id(n)).await.version, version);
    }
}

pub(super) async fn after_a_hop_the_next_wake_is_valid_and_the_last_is_stale(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let before = trial.add(later(1)).await;
    assert!(trial.hop_once(&before).await);
    let after = trial.get(id(1)).await;
    let looked = trial.arrive(&[wake(&before)], &any()).await;
    assert_eq!((looked.stale, looked.early.len()), (1, 0));
    let looked = trial.arrive(&[wake(&after)], &any()).await;
    assert_eq!((looked.stale, looked.early), (0, vec![pending(&after)]));
}
