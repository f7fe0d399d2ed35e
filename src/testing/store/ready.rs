//! Cases of [`Store::ready`](crate::store::Store::ready).

use super::StoreFixture;
use super::arrive::{assert_claimed, count};
use super::trial::*;
use crate::store::{Claim, NewRow, When};
use crate::{State, Timestamp};

pub(super) async fn due_rows_are_claimed(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let before = trial.add(due(1).named("a")).await;
    let start = trial.now().await;
    let found = trial.ready(&any()).await;
    let task = trial.get(id(1)).await;
    assert_claimed(&before, &task, (start, trial.now().await));
    assert_eq!(found, [task]);
    assert_eq!(trial.ready(&any()).await, []);
}

pub(super) async fn the_longest_due_come_first(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, millis) in [(1, 500), (2, 100), (3, 400), (4, 200), (5, 300)] {
        trial.add(due(n).at(Timestamp::from_millis(millis))).await;
    }
    let first = trial.ready(&claim(&[(KIND, 2)])).await;
    assert_eq!(ids(&first), [id(2), id(4)]);
    let rest = trial.ready(&claim(&[(KIND, 9)])).await;
    assert_eq!(ids(&rest), [id(5), id(3), id(1)]);
}

pub(super) async fn the_longest_due_come_first_whatever_their_kind(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let rows = [(1, "a", 400), (2, "b", 300), (3, "c", 200), (4, "a", 100)];
    for (n, kind, millis) in rows {
        let row = due(n).of(kind).at(Timestamp::from_millis(millis));
        let payload = vec![b'x'; 1_000];
        trial.add(NewRow { payload, ..row }).await;
    }
    let within = |bytes| Claim {
        bytes,
        ..claim(&[("a", 9), ("b", 9), ("c", 9)])
    };
    assert_eq!(ids(&trial.ready(&within(1_001)).await), [id(4), id(3)]);
    assert_eq!(ids(&trial.ready(&within(1)).await), [id(2)]);
    assert_eq!(ids(&trial.ready(&within(1)).await), [id(1)]);
}

pub(super) async fn no_kind_takes_more_than_its_room(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for n in 1..=15 {
        trial.add(due(n).of(["a", "b", "c"][n as usize % 3])).await;
    }
    let found = trial.ready(&claim(&[("a", 2), ("b", 0)])).await;
    assert_eq!((found.len(), count(&found, "a")), (2, 2));
    let found = trial.ready(&claim(&[("a", 9), ("b", 4)])).await;
    assert_eq!((count(&found, "a"), count(&found, "b")), (3, 4));
    assert_eq!(found.len(), 7);
    assert_eq!(trial.list("c", State::Scheduled, MANY).await.len(), 5);
}

pub(super) async fn a_row_is_ready_whatever_its_wake_at(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.insert(vec![due(1), overdue(2)]).await;
    assert_eq!(trial.ready(&any()).await.len(), 2);
}

pub(super) async fn a_row_is_not_ready_before_it_is_due(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let soon = NewRow {
        due: When::After(3 * SHORT),
        ..due(3)
    };
    trial.insert(vec![later(1), lost(2)]).await;
    assert_eq!(trial.ready(&any()).await, []);
    let soon = trial.add(soon).await;
    trial.pass(3 * SHORT).await;
    assert_eq!(ids(&trial.ready(&any()).await), [soon.id]);
}

pub(super) async fn only_scheduled_rows_are_ready(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let states = [State::Running, State::Done, State::Dead, State::Cancelled];
    for (n, state) in (1..).zip(states) {
        let task = trial.row_in(state, n, &n.to_string()).await;
        assert_eq!(trial.ready(&any()).await, []);
        assert_eq!(trial.get(id(n)).await, task);
    }
}

pub(super) async fn a_lease_that_has_ended_is_left_to_the_sweep(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1)).await;
    let task = trial.claim(&task, &fleeting()).await;
    assert_eq!(trial.ready(&any()).await, []);
    assert_eq!(trial.get(id(1)).await, task);
}

pub(super) async fn no_more_is_claimed_than_there_are_bytes_for(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for n in 1..=6 {
        let payload = vec![b'x'; 1_000];
        trial
            .add(NewRow {
                payload,
                ..overdue(n)
            })
            .await;
    }
    let within = |bytes| Claim { bytes, ..any() };
    assert_eq!(trial.ready(&within(0)).await, []);
    // The second is claimed since the first has fewer; the third is not.
    assert_eq!(trial.ready(&within(1_001)).await.len(), 2);
    let first = trial.get(id(3)).await;
    let second = trial.get(id(4)).await;
    let wakes = [wake(&first), wake(&second)];
    let looked = trial.arrive(&wakes, &within(1_000)).await;
    assert_eq!(ids(&looked.claimed), [id(3)]);
    assert_eq!(looked.waiting, [(KIND.into(), 1)].into());
    let swept = trial.store.sweep(&within(1), &plain(MANY, LONG)).await;
    let swept = ok(swept).found;
    assert_eq!(swept.claimed.len(), 1);
    assert_eq!(swept.waiting, [(KIND.into(), 2)].into());
    assert_eq!(trial.ready(&within(usize::MAX)).await.len(), 2);
}
