//! Cases of names and health, and of calls that may do nothing.

use std::time::Duration;

use super::{BackendFixture, Case, wakes};
use crate::backend::Reach;

/// It has a name of one word, and can hold the fixture's delay.
pub async fn is_named(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    let name = case.backend.name();
    assert!(
        !name.is_empty() && !name.contains(char::is_whitespace),
        "{name:?}"
    );
    match case.backend.delays().reach {
        Reach::Any { max } => assert!(case.delay() <= max, "longer than {max:?}"),
        Reach::Levels(table) => assert!(table.level_of(case.delay()).is_some(), "not a level of {table}"),
    }
    case.close().await;
}

/// It is healthy while it is open and its server is up.
pub async fn is_healthy_while_open(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    case.backend.health().await.expect("it is healthy");
    case.close().await;
}

/// Batches without wake-ups are fine, and change nothing.
pub async fn empty_batches_are_fine(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    case.backend.send(&[]).await.expect("sending nothing works");
    case.backend.remove(&[]).await.expect("removing nothing works");
    case.backend.acknowledge(Vec::new()).await;
    let sent = wakes(1);
    case.send(&sent).await;
    assert_eq!(case.receive_all(&sent, 10, &[]).await, sent);
    case.close().await;
}

/// One that is removed in time does not arrive, where removing does anything; the others do.
pub async fn a_removed_wake_up_is_forgotten(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    let sent = wakes(20);
    case.send(&sent).await;
    let (removed, kept) = sent.split_at(10);
    case.backend.remove(removed).await.expect("removing works");
    let mut received = case.receive_all(kept, 100, &[]).await;
    received.extend(case.what_still_comes(Duration::ZERO).await);
    if fixture.forgets_what_is_removed() {
        assert!(
            received.iter().all(|wake| kept.contains(wake)),
            "a removed one arrived"
        );
    }
    case.close().await;
}

/// Removing a wake-up that was never sent, has arrived, or has another version, is fine and changes nothing.
pub async fn removing_what_is_not_there_is_fine(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    let sent = wakes(2);
    let mut others = wakes(2);
    others.extend(sent.iter().cloned().map(|mut wake| {
        wake.version += 1;
        wake
    }));
    case.send(&sent).await;
    case.backend.remove(&others).await.expect("removing works");
    case.receive_all(&sent, 10, &[]).await;
    case.backend.remove(&sent).await.expect("removing works");
    case.close().await;
}
