//! Cases of [`Verb::Edit`], beside those that it has in common with other changes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::StoreFixture;
use super::insert::tried;
use super::trial::*;
use crate::store::{Change, Expect, NewRow, Verb, When};
use crate::{Answer, State, Task, Timestamp};

const OLD: &[u8] = b"\"old\"";
const NEW: &[u8] = b"\"\0 new\"";

fn edit(payload: &[u8]) -> Verb {
    Verb::Edit {
        payload: payload.to_vec(),
        due: None,
        overdue_after: 2 * LONG,
    }
}

fn filled(row: NewRow) -> NewRow {
    NewRow {
        payload: OLD.to_vec(),
        headers: BTreeMap::from([("traceparent".to_owned(), "00-1".to_owned())]),
        max_attempts: Some(7),
        ..row
    }
}

pub(super) async fn an_edit_changes_the_payload_and_nothing_else(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let before = tried(&trial, filled(due(1).named("a"))).await;
    for (payload, target) in [(NEW, id(1).into()), (b"".as_slice(), target(KIND, "a"))] {
        let before = Task {
            version: trial.get(id(1)).await.version,
            ..before.clone()
        };
        let start = trial.now().await;
        let answer = trial.change(target, edit(payload)).await;
        let span = (start, trial.now().await);
        let task = trial.get(id(1)).await;
        assert_eq!(answer, Answer::Done(task.clone()));
        assert_after(span, 2 * LONG, task.wake_at);
        assert_after(span, NONE, task.updated_at);
        let expected = Task {
            payload: payload.to_vec(),
            version: before.version + 1,
            wake_at: task.wake_at,
            updated_at: task.updated_at,
            ..before
        };
        assert_eq!(task, expected);
    }
}

pub(super) async fn an_edit_with_a_time_moves_the_row_as_well(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let before = tried(&trial, filled(due(1))).await;
    let due_at = Timestamp::from_millis(4_000_000_000_123);
    let verb = Verb::Edit {
        payload: NEW.to_vec(),
        due: Some(When::At(due_at)),
        overdue_after: LONG,
    };
    let answer = trial.change(id(1), verb).await;
    let task = trial.get(id(1)).await;
    assert_eq!(answer, Answer::Done(task.clone()));
    let expected = Task {
        payload: NEW.to_vec(),
        due_at,
        planned_at: due_at,
        version: before.version + 1,
        wake_at: task.wake_at,
        updated_at: task.updated_at,
        attempt: 0,
        hop: 0,
        last_error: None,
        ..before
    };
    assert_eq!(task, expected);
}

pub(super) async fn an_edited_row_is_claimed_with_its_new_payload(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let [by_wake, by_time] = [1, 2].map(|n| filled(due(n)));
    let first = trial.add(by_wake).await;
    trial.add(by_time).await;
    for n in [1, 2] {
        assert!(trial.change(id(n), edit(NEW)).await.is_done());
    }
    assert_eq!(trial.arrive(&[wake(&first)], &any()).await.stale, 1);
    let claimed = trial.claim(&trial.get(id(1)).await, &any()).await;
    assert_eq!((claimed.id, &*claimed.payload), (id(1), NEW));
    let claimed = trial.ready(&any()).await.remove(0);
    assert_eq!((claimed.id, &*claimed.payload), (id(2), NEW));
    assert_eq!(claimed.max_attempts, Some(7));
}

pub(super) async fn a_move_after_an_edit_keeps_its_payload(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.add(filled(later(1))).await;
    let due = When::After(Duration::ZERO);
    let away = Verb::Reschedule {
        due,
        overdue_after: LONG,
    };
    let change = |verb| Change {
        target: id(1).into(),
        verb,
        expect: Expect::Anything,
        note: Default::default(),
    };
    // In one call of the store, and one after the other.
    let answers = trial.store.change(vec![change(edit(NEW)), change(away.clone())]);
    assert!(each(answers.await).iter().all(Answer::is_done));
    let task = trial.get(id(1)).await;
    assert_eq!((&*task.payload, task.version), (NEW, 3));
    assert!(trial.change(id(1), away).await.is_done());
    assert_eq!(trial.get(id(1)).await.payload, NEW);
}

pub(super) async fn an_edit_that_expects_another_time_leaves_the_row(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let before = trial.add(filled(later(1))).await;
    let due = When::At(before.due_at.shifted(60_000));
    let moved = trial
        .change(
            id(1),
            Verb::Reschedule {
                due,
                overdue_after: LONG,
            },
        )
        .await;
    assert!(moved.is_done());
    let expect = Expect::Due(before.due_at);
    let answer = trial.change_if(id(1), edit(NEW), expect).await;
    let task = trial.get(id(1)).await;
    assert_eq!(answer, Answer::Conflict(task.clone()));
    assert_eq!((task.state, &*task.payload), (State::Scheduled, OLD));
    assert_eq!(task.due_at, before.due_at.shifted(60_000));
}
