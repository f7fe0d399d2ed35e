//! Cases of [`Store::due_within`](crate::store::Store::due_within).

use std::time::Duration;

use super::StoreFixture;
use super::trial::*;
use crate::store::{NewRow, When};
use crate::{State, Timestamp};

const MINUTE: Duration = Duration::from_secs(60);

/// A row that is due in so long.
fn coming(n: u64, delay: Duration) -> NewRow {
    let due = When::After(delay);
    NewRow { due, ..self::due(n) }
}

pub(super) async fn rows_are_counted_within_each_span(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, minutes) in [(1, 30), (2, 5), (3, 90), (4, 5), (5, 30), (6, 90)] {
        trial.add(coming(n, minutes * MINUTE)).await;
    }
    trial.add(due(7).at(Timestamp::MAX)).await;
    let before = trial.list(KIND, State::Scheduled, MANY).await;
    // In whatever order, and one of them twice.
    let spans = [LONG, NONE, 10 * MINUTE, Duration::MAX, 2 * LONG, LONG];
    assert_eq!(trial.due_within(KIND, &spans, MANY).await, [4, 0, 2, 7, 6, 4]);
    assert_eq!(trial.due_within(KIND, &[10 * MINUTE], MANY).await, [2]);
    assert_eq!(trial.list(KIND, State::Scheduled, MANY).await, before);
}

pub(super) async fn what_is_overdue_is_due_within_every_span(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let first = Timestamp::from_millis(1_000);
    trial
        .insert(vec![due(1), overdue(2).at(first), due(3).at(first)])
        .await;
    // Its wake-up is overdue, and its time is still to come.
    trial.insert(vec![later(4), lost(5)]).await;
    let spans = [NONE, Duration::from_millis(1), MINUTE, 2 * LONG];
    assert_eq!(trial.due_within(KIND, &spans, MANY).await, [3, 3, 3, 5]);
}

pub(super) async fn only_scheduled_rows_of_the_kind_are_counted(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let others = [
        "order.cance",
        "order.cancel.",
        "order.cancel2",
        "Order.cancel",
        "a",
    ];
    for (n, kind) in (1..).zip(others) {
        trial.add(due(n).of(kind)).await;
        trial.add(later(n + 10).of(kind)).await;
    }
    for (n, state) in (21..).zip(State::ALL) {
        trial.row_in(state, n, &n.to_string()).await;
    }
    trial.add(later(31)).await;
    let spans = [NONE, 2 * LONG];
    assert_eq!(trial.due_within(KIND, &spans, MANY).await, [1, 2]);
    assert_eq!(trial.due_within(others[0], &spans, MANY).await, [1, 2]);
    assert_eq!(trial.due_within("b", &spans, MANY).await, [0, 0]);
}

pub(super) async fn rows_of_another_state_are_counted_as_well(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let mut n = 0;
    for (rows, state) in (1..).zip(State::ALL) {
        for _ in 0..rows {
            n += 1;
            trial.row_in(state, n, &n.to_string()).await;
        }
    }
    let far = trial.add(later(n + 1)).await;
    trial.bring(&far, State::Cancelled).await;
    let (mut counts, kind) = (Vec::new(), KIND.into());
    for state in State::ALL {
        let spans = [NONE, 2 * LONG, Duration::MAX];
        let counted = trial.store.due_within(&kind, state, &spans, MANY).await;
        counts.push(ok(counted).found);
    }
    assert_eq!(counts, [[1; 3], [2; 3], [3; 3], [4; 3], [5, 6, 6]]);
}

pub(super) async fn a_count_ends_at_its_limit(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.insert((1..=2).map(due).collect()).await;
    trial.insert((3..=6).map(later).collect()).await;
    let counts = async |most| trial.due_within(KIND, &[2 * LONG, NONE, MINUTE], most).await;
    assert_eq!(counts(usize::MAX).await, [6, 2, 2]);
    assert_eq!(counts(6).await, [6, 2, 2]);
    assert_eq!(counts(5).await, [5, 2, 2]);
    assert_eq!(counts(2).await, [2, 2, 2]);
    assert_eq!(counts(1).await, [1, 1, 1]);
    assert_eq!(counts(0).await, [0, 0, 0]);
}

pub(super) async fn counting_follows_the_clock_of_the_store(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.add(coming(1, LONG)).await;
    trial.add(coming(2, LONG + MINUTE)).await;
    trial.pass(SHORT).await;
    let spans = [LONG - SHORT, LONG, LONG + MINUTE];
    assert_eq!(trial.due_within(KIND, &spans, MANY).await, [1, 1, 2]);
}
