//! Cases of [`Store::purge`](crate::store::Store::purge).

use super::StoreFixture;
use super::trial::*;
use crate::State;
use crate::store::{Ending, Verb};

pub(super) async fn history_is_removed_when_its_time_has_passed(fixture: &dyn StoreFixture) {
    let trial = Trial::keeping(fixture, 3 * SHORT).await;
    for (n, state) in (1..).zip([State::Done, State::Cancelled]) {
        trial.row_in(state, n, &n.to_string()).await;
    }
    trial.pass(3 * SHORT).await;
    assert_eq!(trial.purge(MANY).await, 2);
    for n in 1..=2 {
        assert_eq!(trial.find(id(n)).await, None);
        assert_eq!(trial.find(target(KIND, &n.to_string())).await, None);
    }
    assert_eq!(trial.list(KIND, State::Done, MANY).await, []);
    assert_eq!(trial.purge(MANY).await, 0);
    // Nothing is left that the same id or key could conflict with.
    trial.add(due(1).named("2")).await;
}

pub(super) async fn a_removed_row_hides_no_older_one_of_its_key(fixture: &dyn StoreFixture) {
    let trial = Trial::keeping(fixture, NONE).await;
    let dead = trial.row_in(State::Dead, 1, "a").await;
    trial.row_in(State::Done, 2, "a").await;
    assert_eq!(trial.purge(MANY).await, 1);
    assert_eq!(trial.find(target(KIND, "a")).await, Some(dead));
}

pub(super) async fn history_is_kept_for_its_time(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, state) in (1..).zip([State::Done, State::Cancelled]) {
        trial.row_in(state, n, &n.to_string()).await;
    }
    assert_eq!(trial.purge(MANY).await, 0);
    assert!(trial.find(id(1)).await.is_some() && trial.find(id(2)).await.is_some());
}

pub(super) async fn live_and_dead_rows_are_never_removed(fixture: &dyn StoreFixture) {
    let trial = Trial::keeping(fixture, NONE).await;
    trial.insert(vec![overdue(1), lost(2)]).await;
    trial.row_in(State::Dead, 3, "a").await;
    let running = trial.add(due(4)).await;
    trial.claim(&running, &fleeting()).await;
    trial.pass(SHORT).await;
    assert_eq!(trial.purge(MANY).await, 0);
    for n in 1..=4 {
        assert!(trial.find(id(n)).await.is_some());
    }
}

pub(super) async fn a_row_that_came_back_to_life_is_not_removed(fixture: &dyn StoreFixture) {
    let trial = Trial::keeping(fixture, NONE).await;
    let task = trial.row_in(State::Dead, 1, "a").await;
    let redrive = Verb::Redrive { overdue_after: NONE };
    assert!(trial.change(task.id, redrive).await.is_done());
    let task = trial.row_in(State::Running, 2, "b").await;
    let again = Ending::Again {
        after: NONE,
        overdue_after: NONE,
    };
    assert!(trial.end(&task, again).await);
    assert_eq!(trial.purge(MANY).await, 0);
}

pub(super) async fn a_purge_removes_up_to_its_limit_of_each_kind(fixture: &dyn StoreFixture) {
    let trial = Trial::keeping(fixture, NONE).await;
    for n in 1..=6 {
        let task = trial.add(due(n).of(["a", "b"][n as usize % 2])).await;
        trial.bring(&task, State::Done).await;
    }
    assert_eq!(trial.purge(2).await, 4);
    assert_eq!(trial.purge(2).await, 2);
    assert_eq!(trial.purge(2).await, 0);
}
