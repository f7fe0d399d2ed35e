//! Transactions of the service, joined.

use std::time::Duration;

use sqlx::PgConnection;

use super::{Fixture, LEASE, change, claim, due_rows, id, new_row, run};
use crate::store::sql::tests::each::Each;
use crate::store::{NewRow, Note, Store, Transaction, Verb};
use crate::{Scheduled, State};

fn named(number: usize, key: &str, replace: bool) -> NewRow {
    NewRow {
        key: Some(key.into()),
        replace,
        ..new_row(number, LEASE)
    }
}

#[tokio::test]
async fn what_is_rolled_back_never_was() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.insert_all(due_rows([1, 2])).await.unwrap();
    store.ready(&claim(1)).await.unwrap();
    let mut service = fixture.foreign().await;
    for (end, is_kept) in [("ROLLBACK", false), ("COMMIT", true)] {
        run(&mut service, "BEGIN").await;
        let mut joined = store.join(&mut service);
        let inserted = joined
            .insert(vec![named(3, "a", false), named(4, "a", true)])
            .await;
        let inserted = inserted.unwrap().found;
        assert!(matches!(
            inserted.as_slice(),
            [Scheduled::New(_), Scheduled::Replaced(_)]
        ));
        let changed = joined.change(vec![change(id(2), Verb::Cancel)]).await.unwrap();
        assert!(changed.found[0].is_done());
        assert!(!joined.finish(id(1), 1, Note::default()).await.unwrap());
        assert!(joined.finish(id(1), 2, Note::default()).await.unwrap());
        assert!(!joined.finish(id(1), 2, Note::default()).await.unwrap());
        let own = joined.find(&("k", "a").into()).await.unwrap().unwrap();
        assert_eq!((own.id, own.version), (id(3), 2));
        drop(joined);
        assert_eq!(store.find(&id(3).into()).await.unwrap(), None);
        run(&mut service, end).await;

        assert_eq!(store.find(&id(3).into()).await.unwrap().is_some(), is_kept);
        let state = fixture.find(id(2)).await.state;
        assert_eq!(state == State::Cancelled, is_kept);
        assert_eq!(fixture.find(id(1)).await.state == State::Done, is_kept);
    }
}

#[tokio::test]
async fn a_transaction_goes_by_the_present_time() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut service = fixture.foreign().await;
    run(&mut service, "BEGIN; SELECT 1").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = store.now().await.unwrap();
    let mut joined = store.join(&mut service);
    let inserted = joined.insert(due_rows([1])).await.unwrap();
    let changed = joined
        .change(vec![change(id(1), Verb::RunNow { overdue_after: LEASE })])
        .await
        .unwrap();
    drop(joined);
    assert!(inserted.now >= before && changed.now >= inserted.now);
    assert!(inserted.found[0].task().created_at >= before);
    run(&mut service, "COMMIT").await;
    assert!(fixture.find(id(1)).await.due_at >= before);
}

async fn begin(service: &mut PgConnection, level: &str) {
    run(
        service,
        &format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM delayline_tasks"),
    )
    .await;
}

#[tokio::test]
async fn at_a_higher_level_a_conflict_is_transient() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        store
            .insert_all(vec![named(1, "a", false), named(2, "b", false)])
            .await
            .unwrap();
        let mut service = fixture.foreign().await;

        begin(&mut service, level).await;
        store.insert_all(vec![named(3, "c", false)]).await.unwrap();
        let result = store.join(&mut service).insert(vec![named(4, "c", true)]).await;
        let error = result.unwrap_err();
        assert!(error.is_transient(), "{level}: {error}");
        run(&mut service, "ROLLBACK").await;

        begin(&mut service, level).await;
        assert!(
            store
                .change_all(vec![change(id(1), Verb::Cancel)])
                .await
                .unwrap()
                .found[0]
                .is_done()
        );
        let cancel = change(("k", "a"), Verb::Cancel);
        let error = store.join(&mut service).change(vec![cancel]).await.unwrap_err();
        assert!(error.is_transient(), "{level}: {error}");
        run(&mut service, "ROLLBACK").await;

        // Without another transaction it is as ever.
        begin(&mut service, level).await;
        let mut joined = store.join(&mut service);
        let inserted = joined
            .insert(vec![named(5, "b", true), named(6, "e", false)])
            .await;
        let inserted = inserted.unwrap().found;
        assert!(matches!(
            inserted.as_slice(),
            [Scheduled::Replaced(_), Scheduled::New(_)]
        ));
        drop(joined);
        run(&mut service, "COMMIT").await;
        assert_eq!(fixture.find(id(2)).await.version, 2);
    }
}

#[tokio::test]
async fn a_lock_that_does_not_come_in_time_is_transient() {
    let fixture = Fixture::new().await;
    fixture.store.insert_all(due_rows([1])).await.unwrap();
    let mut other = fixture.foreign().await;
    super::lock(&mut other, &[1]).await;
    let mut service = fixture.foreign().await;
    run(&mut service, "BEGIN; SET LOCAL lock_timeout = '20ms'").await;
    let cancel = vec![change(id(1), Verb::Cancel)];
    let error = fixture.store.join(&mut service).change(cancel).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}
