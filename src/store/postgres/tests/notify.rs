//! Telling others of rows that are due soon.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPool};

use super::{Fixture, LEASE, change, due_rows, id, in_time, new_row, run};
use crate::store::sql::tests::each::Each;
use crate::store::{Store, Transaction, Verb};

#[tokio::test]
async fn every_waiter_hears_of_rows_that_are_due_soon() {
    let fixture = Fixture::new().await;
    let teller = fixture.builder().notify().connect().await.unwrap();
    let hearer = fixture.builder().notify().connect().await.unwrap();
    // From when it listens.
    in_time(hearer.notified()).await;
    in_time(async {
        let (.., told) = tokio::join!(hearer.notified(), hearer.notified(), teller.insert(due_rows([1])));
        told.unwrap();
    })
    .await;
    let mut other = fixture.foreign().await;
    run(
        &mut other,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND query LIKE 'LISTEN%'",
    )
    .await;
    // What was said in between it has missed, so it says that it may have.
    in_time(hearer.notified()).await;
    in_time(async {
        let (_, told) = tokio::join!(hearer.notified(), teller.insert(due_rows([2])));
        told.unwrap();
    })
    .await;
}

#[tokio::test]
async fn one_batch_tells_once_and_only_of_what_is_due_soon() {
    let fixture = Fixture::new().await;
    let store = fixture.builder().notify().connect().await.unwrap();
    let channel = store.database.channel.clone().unwrap();
    assert_eq!(channel, "public.delayline_tasks");
    let mut listener = PgListener::connect_with(&PgPool::connect_lazy_with(fixture.options.clone()))
        .await
        .unwrap();
    listener.listen(&channel).await.unwrap();
    let mut other = fixture.foreign().await;
    let marked = async |listener: &mut PgListener, other: &mut sqlx::PgConnection| {
        run(other, "SELECT pg_notify('public.delayline_tasks', 'marker')").await;
        let mut count = 0;
        while in_time(listener.recv()).await.unwrap().payload() != "marker" {
            count += 1;
        }
        count
    };

    store
        .insert_all(vec![new_row(1, LEASE), new_row(2, LEASE)])
        .await
        .unwrap();
    fixture.store.insert_all(due_rows([3])).await.unwrap();
    assert_eq!(marked(&mut listener, &mut other).await, 0);
    store.insert_all(due_rows([4, 5, 6])).await.unwrap();
    assert_eq!(marked(&mut listener, &mut other).await, 1);

    let run_now = |number| change(id(number), Verb::RunNow { overdue_after: LEASE });
    store.change_all(vec![run_now(1), run_now(2)]).await.unwrap();
    assert_eq!(marked(&mut listener, &mut other).await, 1);
    let cancel = change(id(1), Verb::Cancel);
    store.change_all(vec![cancel]).await.unwrap();
    assert_eq!(marked(&mut listener, &mut other).await, 0);

    let mut service = fixture.foreign().await;
    run(&mut service, "BEGIN").await;
    store.join(&mut service).insert(due_rows([7])).await.unwrap();
    assert_eq!(marked(&mut listener, &mut other).await, 0);
    run(&mut service, "COMMIT").await;
    assert_eq!(marked(&mut listener, &mut other).await, 1);
}

#[tokio::test]
async fn a_store_without_notify_is_never_notified() {
    let fixture = Fixture::new().await;
    fixture.store.insert_all(due_rows([1])).await.unwrap();
    let heard = tokio::time::timeout(Duration::from_millis(50), fixture.store.notified()).await;
    assert!(heard.is_err());
}
