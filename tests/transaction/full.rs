//! A service's own pool, where SQLite has ended a transaction by itself.

use crate::service::{OnSqlite, Service};

#[tokio::test]
async fn a_service_goes_on_after_a_full_disk_has_ended_its_transaction() {
    let service = OnSqlite::new().await;
    let mut tx = service.begin().await.unwrap();
    // This connection's file may not grow any more.
    service
        .run(&mut tx, "PRAGMA max_page_count = 1".to_owned())
        .await
        .unwrap();
    let large = "INSERT INTO effects (name) VALUES (hex(zeroblob(100000)))".to_owned();
    let full = service.run(&mut tx, large).await.unwrap_err();
    assert_eq!(
        full.as_database_error().unwrap().code().unwrap(),
        "13",
        "SQLITE_FULL"
    );
    drop(tx);

    // The pool has several connections, and lends that one again in its turn.
    for _ in 0..100 {
        let mut tx = service.begin().await.unwrap();
        service.effect(&mut tx, "after").await.unwrap();
        service.commit(tx).await.unwrap();
    }
    assert_eq!(service.effects().await, ["after"; 100]);
}
