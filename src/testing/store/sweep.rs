//! Cases of [`Store::sweep`](crate::store::Store::sweep).

use std::collections::BTreeMap;

use super::StoreFixture;
use super::arrive::assert_claimed;
use super::trial::*;
use crate::store::{Ahead, Ending, NewRow, PollResult, Sweep, When};
use crate::{State, Task};

pub(super) async fn an_ended_lease_makes_the_row_scheduled_again(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1).named("a")).await;
    let before = trial.claim(&task, &fleeting()).await;
    let start = trial.now().await;
    let polled = trial.sweep(&nothing(), MANY, LONG).await;
    assert_eq!((polled.expired, polled.claimed.len()), (1, 0));
    assert_eq!(polled.waiting, BTreeMap::from([(KIND.into(), 1)]));

    let task = trial.get(id(1)).await;
    let now = trial.now().await;
    assert_after((start, now), NONE, task.updated_at);
    assert!(task.wake_at.is_some_and(|wake_at| wake_at <= now), "{task:?}");
    let expected = Task {
        state: State::Scheduled,
        version: before.version + 1,
        wake_at: task.wake_at,
        updated_at: task.updated_at,
        attempt: before.attempt - 1,
        stalls: 1,
        ..before.clone()
    };
    assert_eq!(task, expected);
    // The version of the claim is past.
    assert!(!trial.hop_once(&before).await);
    assert_eq!(trial.renew(&[(id(1), before.version)], LONG).await, [false]);
}

pub(super) async fn an_ended_lease_is_claimed_in_this_sweep_or_the_next(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1)).await;
    let before = trial.claim(&task, &fleeting()).await;
    let first = trial.sweep(&any(), MANY, LONG).await;
    let second = trial.sweep(&any(), MANY, LONG).await;
    assert_eq!(first.expired + second.expired, 1);
    let claimed = [first.claimed, second.claimed].concat();
    let task = trial.get(id(1)).await;
    assert_eq!(claimed, std::slice::from_ref(&task));
    assert_eq!((task.state, task.due_at), (State::Running, before.due_at));
    // One transition for the end of the lease, one for the claim.
    assert_eq!(task.version, before.version + 2);
    assert_eq!((task.attempt, task.stalls), (before.attempt, 1));
}

pub(super) async fn a_lease_that_has_not_ended_is_left(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.row_in(State::Running, 1, "a").await;
    assert_eq!(trial.sweep(&any(), MANY, LONG).await, PollResult::default());
    assert_eq!(trial.get(id(1)).await, task);
}

pub(super) async fn a_lease_ends_as_time_passes(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1)).await;
    let lease = 3 * SHORT;
    trial.claim(&task, &crate::store::Claim { lease, ..any() }).await;
    trial.pass(lease).await;
    assert_eq!(trial.sweep(&nothing(), MANY, LONG).await.expired, 1);
}

pub(super) async fn an_overdue_row_is_claimed_when_it_is_due(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let before = trial.add(overdue(1).named("a")).await;
    let start = trial.now().await;
    let polled = trial.sweep(&any(), MANY, LONG).await;
    let task = trial.get(id(1)).await;
    assert_claimed(&before, &task, (start, trial.now().await));
    let expected = PollResult {
        claimed: vec![task],
        ..PollResult::default()
    };
    assert_eq!(polled, expected);
}

pub(super) async fn a_row_whose_wake_is_not_overdue_is_left(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let rows = [trial.add(due(1)).await, trial.add(later(2)).await];
    assert_eq!(trial.sweep(&any(), MANY, NONE).await, PollResult::default());
    for task in rows {
        assert_eq!(trial.get(task.id).await, task);
    }
}

pub(super) async fn a_row_is_swept_however_long_it_is_overdue(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.insert(vec![overdue(1), lost(2)]).await;
    trial.pass(3 * SHORT).await;
    trial.insert(vec![overdue(3), lost(4)]).await;
    let polled = trial.sweep(&any(), MANY, LONG).await;
    assert_eq!((polled.claimed.len(), polled.early.len()), (2, 2));
}

pub(super) async fn a_due_row_without_room_is_left_to_a_worker_that_has_room(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let before = trial.add(overdue(1)).await;
    let full = claim(&[(KIND, 0)]);
    let expected = PollResult {
        waiting: BTreeMap::from([(KIND.into(), 1)]),
        ..PollResult::default()
    };
    for _ in 0..2 {
        assert_eq!(trial.sweep(&full, MANY, LONG).await, expected);
        assert_eq!(trial.get(id(1)).await, before);
    }
    assert_eq!(ids(&trial.sweep(&any(), MANY, LONG).await.claimed), [id(1)]);
}

pub(super) async fn a_due_row_of_a_foreign_kind_waits_unchanged(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(overdue(1).of("foreign")).await;
    for _ in 0..2 {
        let polled = trial.sweep(&any(), MANY, LONG).await;
        let expected = PollResult {
            waiting: BTreeMap::from([("foreign".into(), 1)]),
            ..PollResult::default()
        };
        assert_eq!(polled, expected);
        assert_eq!(trial.get(id(1)).await, task);
    }
    let polled = trial.sweep(&claim(&[("foreign", 1)]), MANY, LONG).await;
    assert_eq!(ids(&polled.claimed), [id(1)]);
}

pub(super) async fn a_lost_wake_is_early_for_one_sweep_at_a_time(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let own = trial.add(lost(1)).await;
    let foreign = trial.add(lost(2).of("foreign")).await;
    let start = trial.now().await;
    let mut polled = trial.sweep(&any(), MANY, LONG).await;
    let span = (start, trial.now().await);
    polled.early.sort_by_key(|pending| pending.wake.id);
    let expected = PollResult {
        early: vec![pending(&own), pending(&foreign)],
        ..PollResult::default()
    };
    assert_eq!(polled, expected);
    assert_eq!(trial.sweep(&any(), MANY, LONG).await, PollResult::default());
    for before in [own, foreign] {
        let task = trial.get(before.id).await;
        assert_after(span, LONG, task.wake_at);
        let wake_at = task.wake_at;
        assert_eq!(task, Task { wake_at, ..before });
        // The hop that follows is of the version that was found.
        assert!(trial.hop_once(&task).await);
    }
}

pub(super) async fn a_lost_wake_whose_hop_was_not_recorded_is_found_again(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(lost(1)).await;
    let retake = 3 * SHORT;
    assert_eq!(trial.sweep(&any(), MANY, retake).await.early, [pending(&task)]);
    trial.pass(retake).await;
    assert_eq!(trial.sweep(&any(), MANY, retake).await.early, [pending(&task)]);
}

pub(super) async fn a_wake_becomes_overdue_as_time_passes(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let row = NewRow {
        overdue_after: 3 * SHORT,
        ..due(1)
    };
    let other = NewRow {
        due: When::After(LONG),
        id: id(2),
        ..row.clone()
    };
    trial.insert(vec![row, other]).await;
    trial.pass(3 * SHORT).await;
    let polled = trial.sweep(&any(), MANY, LONG).await;
    assert_eq!((polled.claimed.len(), polled.early.len()), (1, 1));
}

pub(super) async fn a_sweep_claims_no_more_than_there_is_room_for(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for n in 1..=10 {
        trial.add(overdue(n).of(["a", "b"][n as usize % 2])).await;
    }
    let polled = trial.sweep(&claim(&[("a", 2), ("b", 9)]), MANY, LONG).await;
    assert_eq!(polled.claimed.len(), 7);
    assert_eq!(polled.waiting, BTreeMap::from([("a".into(), 3)]));
}

pub(super) async fn the_limit_is_for_each_kind(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    // The kind of which there are most, and which is longest overdue, starves no other.
    for n in 1..=9 {
        trial.add(lost(n).of("a")).await;
    }
    trial.pass(NONE).await;
    for n in 11..=13 {
        trial.add(lost(n).of("b")).await;
    }
    for (of_a, of_b) in [(2, 2), (2, 1), (2, 0)] {
        let polled = trial.sweep(&nothing(), 2, LONG).await;
        let of = |kind| {
            let early = polled.early.iter();
            early.filter(|pending| pending.wake.kind.as_str() == kind).count()
        };
        assert_eq!((of("a"), of("b")), (of_a, of_b));
    }
}

pub(super) async fn the_limit_is_for_each_state(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for n in 1..=3 {
        let task = trial.add(due(n)).await;
        trial.claim(&task, &fleeting()).await;
    }
    for n in 4..=6 {
        trial.add(lost(n)).await;
    }
    // A row whose lease has ended may be in this sweep or the next, so not each finds a lost wake-up.
    let (mut expired, mut early) = (0, 0);
    for round in 1..=6 {
        let polled = trial.sweep(&any(), 1, LONG).await;
        assert!(polled.early.len() <= 1, "{polled:?}");
        expired += polled.expired;
        early += polled.early.len();
        assert_eq!(expired, round.min(3));
    }
    assert_eq!(early, 3);
    assert_eq!(trial.list(KIND, State::Running, MANY).await.len(), 3);
}

pub(super) async fn a_sweep_looks_ahead_where_asked(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let soon = NewRow {
        due: When::After(LONG / 2),
        ..due(1)
    };
    let soon = trial.add(soon).await;
    let (lost, overdue) = (trial.add(lost(2)).await, trial.add(overdue(3)).await);
    trial
        .add(NewRow {
            due: When::After(2 * LONG),
            ..due(4)
        })
        .await;
    let ahead = |limit| {
        let within = LONG + SHORT * 100;
        let ahead = Some(Ahead { within, limit });
        Sweep {
            ahead,
            ..plain(MANY, LONG)
        }
    };
    let polled = ok(trial.store.sweep(&any(), &ahead(MANY)).await).found;
    assert_eq!(ids(&polled.claimed), [overdue.id]);
    assert_eq!(polled.early, [pending(&lost)]);
    assert_eq!(polled.ahead, [pending(&soon), pending(&lost)]);
    // Also when it finds nothing to do, and up to its limit.
    let polled = ok(trial.store.sweep(&any(), &ahead(1)).await).found;
    let expected = PollResult {
        ahead: vec![pending(&soon)],
        ..PollResult::default()
    };
    assert_eq!(polled, expected);
}

pub(super) async fn finished_rows_are_not_swept(fixture: &dyn StoreFixture) {
    let trial = Trial::keeping(fixture, NONE).await;
    for (n, state) in (1..).zip([State::Done, State::Dead, State::Cancelled]) {
        trial.row_in(state, n, &n.to_string()).await;
    }
    assert_eq!(trial.sweep(&any(), MANY, LONG).await, PollResult::default());
}

pub(super) async fn a_claim_that_had_started_was_an_attempt(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, started) in [(1, true), (2, false)] {
        let task = trial.add(due(n)).await;
        let task = trial.claim(&task, &any()).await;
        let ended = trial.renew_as(&[(id(n), task.version)], NONE, started).await;
        assert_eq!(ended, [true]);
    }
    assert_eq!(trial.sweep(&nothing(), MANY, LONG).await.expired, 2);
    for (n, attempt) in [(1, 1), (2, 0)] {
        let task = trial.get(id(n)).await;
        assert_eq!((task.attempt, task.started, task.stalls), (attempt, false, 1));
    }
}

pub(super) async fn every_end_of_a_lease_is_a_stall_until_a_claim_ends_by_itself(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let mut task = trial.add(due(1)).await;
    for stalls in 1..=3 {
        trial.claim(&task, &fleeting()).await;
        assert_eq!(trial.sweep(&nothing(), MANY, LONG).await.expired, 1);
        task = trial.get(id(1)).await;
        assert_eq!((task.attempt, task.stalls), (0, stalls));
    }
    // Being given back changes nothing else in the task.
    let held = trial.claim(&task, &any()).await;
    assert!(trial.end(&held, Ending::Release).await);
    let task = trial.get(id(1)).await;
    assert_eq!((task.attempt, task.stalls), (0, 3));
    let held = trial.claim(&task, &any()).await;
    let (after, overdue_after) = (NONE, LONG);
    let error = "no luck".to_owned();
    let retry = Ending::Retry {
        after,
        overdue_after,
        error,
    };
    assert!(trial.end(&held, retry).await);
    let task = trial.get(id(1)).await;
    assert_eq!((task.attempt, task.stalls), (1, 0));
}
