//! Cases of close.

use tokio::time::timeout;

use super::{BackendFixture, Case, departure, patiently, wake};
use crate::Error;

/// A waiting `receive` ends at once when the backend is closed, with an error that is not transient.
pub async fn close_ends_a_waiting_receive(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    let mut receiving = std::pin::pin!(case.backend.receive(10));
    assert!(
        timeout(case.delay(), &mut receiving).await.is_err(),
        "nothing was sent"
    );
    case.backend.close().await.expect("closing works");
    let ended = patiently(receiving).await;
    is_final(ended.expect_err("it was closed"));
}

/// After close, `receive`, `send` and `health` fail with an error that is not transient.
pub async fn nothing_works_after_close(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    let batch = [departure(&wake(), case.delay()), departure(&wake(), case.delay())];
    case.send_all(batch.to_vec()).await;
    case.backend.close().await.expect("closing works");
    is_final(
        patiently(case.backend.receive(10))
            .await
            .expect_err("it was closed"),
    );
    is_final(patiently(case.backend.health()).await.expect_err("it was closed"));
    let unsent = patiently(case.backend.send(&batch))
        .await
        .expect_err("it was closed");
    assert_eq!(unsent.failed, [0, 1]);
    is_final(unsent.cause);
}

fn is_final(error: Error) {
    assert!(!error.is_transient(), "{error}");
}

/// Closing a closed backend does nothing.
pub async fn closing_again_does_nothing(fixture: &dyn BackendFixture) {
    let case = Case::open(fixture).await;
    case.backend.close().await.expect("closing works");
    patiently(case.backend.close())
        .await
        .expect("closing again works");
}
