//! Cases of claims that [`Store::advance`](crate::store::Store::advance) ends.

use std::time::Duration;

use super::StoreFixture;
use super::insert::tried;
use super::trial::*;
use crate::store::{Ending, PollResult, Step, Verb};
use crate::{State, Task, Timestamp};

const AFTER: Duration = Duration::from_secs(90);
const LOOK_IN: Duration = Duration::from_secs(60);
const HISTORY: Duration = Duration::from_secs(600);

/// A claim's row before and after it ended, and the time in which it did. It had an attempt, an error and a hop
/// before that.
struct Ended {
    before: Task,
    after: Task,
    span: (Timestamp, Timestamp),
}

async fn ended(fixture: &dyn StoreFixture, ending: Ending) -> Ended {
    let trial = Trial::keeping(fixture, HISTORY).await;
    let task = tried(&trial, due(1).named("a")).await;
    // Its due time comes back, but as the time that it was planned for: nothing else makes them differ from now.
    let again = Ending::Retry {
        after: NONE,
        overdue_after: LONG,
        error: "no luck".to_owned(),
    };
    let run_now = Verb::RunNow { overdue_after: LONG };
    assert!(trial.change(task.id, run_now).await.is_done());
    let task = trial.claim(&trial.get(id(1)).await, &any()).await;
    assert!(trial.end(&task, again).await);
    assert!(trial.hop_once(&trial.get(id(1)).await).await);
    let before = trial.claim(&trial.get(id(1)).await, &any()).await;
    assert_eq!((before.attempt, before.hop), (2, 1));
    assert!(before.last_error.is_some());
    trial.pass(NONE).await;

    let start = trial.now().await;
    assert!(trial.end(&before, ending).await);
    let span = (start, trial.now().await);
    let after = trial.get(id(1)).await;
    assert_after(span, NONE, after.updated_at);
    Ended { before, after, span }
}

impl Ended {
    /// The row without the changes of its ending: one transition on.
    fn moved_on(&self, state: State) -> Task {
        Task {
            state,
            version: self.before.version + 1,
            wake_at: self.after.wake_at,
            updated_at: self.after.updated_at,
            ..self.before.clone()
        }
    }
}

pub(super) async fn done_is_kept_as_history(fixture: &dyn StoreFixture) {
    let ended = ended(fixture, Ending::Done).await;
    assert_after(ended.span, HISTORY, ended.after.wake_at);
    assert_after(ended.span, NONE, ended.after.finished_at);
    let expected = Task {
        finished_at: ended.after.finished_at,
        ..ended.moved_on(State::Done)
    };
    assert_eq!(ended.after, expected);
}

pub(super) async fn dead_is_kept_until_an_operator_acts(fixture: &dyn StoreFixture) {
    for give_back in [false, true] {
        let error = "gave up: заказ 订单".repeat(1_000);
        let dead = Ending::Dead {
            error: error.clone(),
            give_back,
        };
        let ended = ended(fixture, dead).await;
        assert_after(ended.span, NONE, ended.after.finished_at);
        let expected = Task {
            wake_at: None,
            finished_at: ended.after.finished_at,
            last_error: Some(error),
            attempt: if give_back { 1 } else { 2 },
            ..ended.moved_on(State::Dead)
        };
        assert_eq!(ended.after, expected);
    }
}

pub(super) async fn a_retry_keeps_its_attempt_and_its_plan(fixture: &dyn StoreFixture) {
    let retry = Ending::Retry {
        after: AFTER,
        overdue_after: LOOK_IN,
        error: "again".to_owned(),
    };
    let ended = ended(fixture, retry).await;
    assert_after(ended.span, AFTER, ended.after.due_at);
    assert_after(ended.span, LOOK_IN, ended.after.wake_at);
    let expected = Task {
        due_at: ended.after.due_at,
        last_error: Some("again".to_owned()),
        ..ended.moved_on(State::Scheduled)
    };
    assert_eq!(ended.after, expected);
}

pub(super) async fn a_snooze_gives_its_attempt_back_and_keeps_its_plan(fixture: &dyn StoreFixture) {
    for reason in [None, Some("no broker")] {
        let reason = reason.map(ToOwned::to_owned);
        let snooze = Ending::Snooze {
            after: AFTER,
            overdue_after: LOOK_IN,
            reason: reason.clone(),
        };
        let ended = ended(fixture, snooze).await;
        assert_after(ended.span, AFTER, ended.after.due_at);
        assert_after(ended.span, LOOK_IN, ended.after.wake_at);
        let before = ended.moved_on(State::Scheduled);
        let expected = Task {
            due_at: ended.after.due_at,
            attempt: 1,
            last_error: reason.or(before.last_error.clone()),
            ..before
        };
        assert_eq!(ended.after, expected);
    }
}

pub(super) async fn once_more_is_as_a_new_task(fixture: &dyn StoreFixture) {
    let again = Ending::Again {
        after: AFTER,
        overdue_after: LOOK_IN,
    };
    let ended = ended(fixture, again).await;
    assert_after(ended.span, AFTER, ended.after.due_at);
    assert_after(ended.span, LOOK_IN, ended.after.wake_at);
    let expected = Task {
        due_at: ended.after.due_at,
        planned_at: ended.after.due_at,
        attempt: 0,
        hop: 0,
        last_error: None,
        ..ended.moved_on(State::Scheduled)
    };
    assert_eq!(ended.after, expected);
}

pub(super) async fn a_released_claim_is_as_it_was_and_looked_at_at_once(fixture: &dyn StoreFixture) {
    let ended = ended(fixture, Ending::Release).await;
    assert_after(ended.span, NONE, ended.after.wake_at);
    let expected = Task {
        attempt: 1,
        ..ended.moved_on(State::Scheduled)
    };
    assert_eq!(ended.after, expected);

    let trial = Trial::new(fixture).await;
    let task = trial.row_in(State::Running, 1, "a").await;
    assert!(trial.end(&task, Ending::Release).await);
    let swept = trial.sweep(&any(), MANY, LONG).await;
    assert_eq!((ids(&swept.claimed), swept.expired), (vec![id(1)], 0));
}

pub(super) async fn a_moved_claim_is_scheduled_anew_for_its_time(fixture: &dyn StoreFixture) {
    let due = Timestamp::from_millis(4_000_000_000_000);
    let overdue_after = LOOK_IN;
    let ended = ended(fixture, Ending::Moved { due, overdue_after }).await;
    assert_after(ended.span, LOOK_IN, ended.after.wake_at);
    let expected = Task {
        due_at: due,
        planned_at: due,
        attempt: 0,
        hop: 0,
        last_error: None,
        ..ended.moved_on(State::Scheduled)
    };
    assert_eq!(ended.after, expected);
}

pub(super) async fn a_claim_that_is_moved_to_the_past_was_planned_for_now(fixture: &dyn StoreFixture) {
    let due = Timestamp::from_millis(1_000);
    let overdue_after = LOOK_IN;
    let ended = ended(fixture, Ending::Moved { due, overdue_after }).await;
    assert_eq!(ended.after.due_at, due);
    assert_after(ended.span, NONE, ended.after.planned_at);
}

pub(super) async fn a_cancelled_claim_is_kept_as_history_and_was_no_attempt(fixture: &dyn StoreFixture) {
    let ended = ended(fixture, Ending::Cancelled).await;
    assert_after(ended.span, HISTORY, ended.after.wake_at);
    assert_after(ended.span, NONE, ended.after.finished_at);
    let expected = Task {
        attempt: 1,
        finished_at: ended.after.finished_at,
        ..ended.moved_on(State::Cancelled)
    };
    assert_eq!(ended.after, expected);
}

pub(super) async fn only_a_running_row_can_be_settled(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let states = [State::Scheduled, State::Done, State::Dead, State::Cancelled];
    for (n, state) in (1..).zip(states) {
        let task = trial.row_in(state, n, &n.to_string()).await;
        for ending in endings() {
            assert!(!trial.end(&task, ending).await);
        }
        assert_eq!(trial.get(id(n)).await, task);
    }
}

pub(super) async fn a_claim_settles_once(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, ending) in (1..).zip(endings()) {
        let task = trial.row_in(State::Running, n, &n.to_string()).await;
        assert!(trial.end(&task, ending).await);
        let once = trial.get(id(n)).await;
        assert_eq!(once.version, task.version + 1);
        for ending in endings() {
            assert!(!trial.end(&task, ending).await);
        }
        assert_eq!(trial.get(id(n)).await, once);
    }
}

pub(super) async fn a_claim_settles_by_its_version_only(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.row_in(State::Running, 1, "a").await;
    for version in [task.version - 1, task.version + 1, 0] {
        for ending in endings() {
            let other = Task {
                version,
                ..task.clone()
            };
            assert!(!trial.end(&other, ending).await);
        }
    }
    assert_eq!(trial.get(id(1)).await, task);
}

pub(super) async fn a_claim_that_lost_its_lease_cannot_settle(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1)).await;
    let lost = trial.claim(&task, &fleeting()).await;
    // First it belongs to no worker, then to another one.
    assert_eq!(trial.sweep(&nothing(), MANY, LONG).await.expired, 1);
    let free = trial.get(id(1)).await;
    for ending in endings() {
        assert!(!trial.end(&lost, ending).await);
    }
    assert_eq!(trial.get(id(1)).await, free);

    let held = trial.claim(&free, &any()).await;
    for ending in endings() {
        assert!(!trial.end(&lost, ending).await);
    }
    assert_eq!(trial.get(id(1)).await, held);
    assert!(trial.end(&held, Ending::Done).await);
}

pub(super) async fn an_ended_lease_that_no_other_worker_took_still_settles(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1)).await;
    let task = trial.claim(&task, &fleeting()).await;
    assert!(trial.end(&task, Ending::Done).await);
    assert_eq!(trial.sweep(&any(), MANY, LONG).await, PollResult::default());
}

pub(super) async fn settlements_are_answered_in_the_order_given(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for n in 1..=11 {
        trial.row_in(State::Running, n, &n.to_string()).await;
    }
    let mut settlements: Vec<_> = (1..)
        .zip(endings())
        .map(|(n, ending)| Step::end(id(n), 2, ending))
        .collect();
    settlements[1].version = 1;
    settlements[4].id = id(99);
    settlements.reverse();
    let ended = trial.advance(&settlements).await;
    assert_eq!(ended, [true, true, true, true, false, true, true, false, true]);
    for (n, version) in [
        (1, 3),
        (2, 2),
        (3, 3),
        (4, 3),
        (5, 2),
        (6, 3),
        (7, 3),
        (8, 3),
        (9, 3),
        (10, 2),
        (11, 2),
    ] {
        assert_eq!(trial.get(id(n)).await.version, version);
    }
}

pub(super) async fn a_settled_row_is_live_or_its_key_is_free(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, ending) in (1..).zip(endings()) {
        let key = n.to_string();
        let task = trial.row_in(State::Running, n, &key).await;
        assert!(trial.end(&task, ending).await);
        let live = trial.get(id(n)).await.state.is_live();
        let answer = trial.insert(vec![later(100 + n).named(&key)]).await.remove(0);
        let expected = if live { id(n) } else { id(100 + n) };
        assert_eq!(answer.task().id, expected);
    }
}
