//! The schema: made once, by whomever, and known to be there.

use super::{Fixture, due_rows, in_time, run};
use crate::store::Store;
use crate::store::sql::Each;

#[tokio::test]
async fn many_may_migrate_at_once_and_again() {
    let fixture = Fixture::new().await;
    let migrate = |_| {
        let builder = fixture.builder().table("many");
        tokio::spawn(async move {
            let store = builder.connect().await?;
            store.migrate().await?;
            store.migrate().await?;
            store.check().await
        })
    };
    let migrated: Vec<_> = (0..8).map(migrate).collect();
    for migrated in migrated {
        in_time(migrated).await.unwrap().unwrap();
    }
    let versions: Vec<i32> = sqlx::query_scalar("SELECT version FROM many_migrations")
        .fetch_all(&mut fixture.foreign().await)
        .await
        .unwrap();
    assert_eq!(versions, [1]);
}

#[tokio::test]
async fn a_schema_that_is_not_there_is_said_with_what_to_do() {
    let fixture = Fixture::new().await;
    let store = fixture.builder().table("missing").connect().await.unwrap();
    let error = store.check().await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("missing"), "{error}");
    assert!(error.to_string().contains("migrate"), "{error}");
    let error = store.insert_all(due_rows([1])).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("PostgresStore::migrate"), "{error}");

    let store = fixture.builder().schema("nowhere").connect().await.unwrap();
    assert!(!store.check().await.unwrap_err().is_transient());
    assert!(!store.migrate().await.unwrap_err().is_transient());
}

#[tokio::test]
async fn a_schema_of_another_release_is_refused_and_left_alone() {
    let fixture = Fixture::new().await;
    let mut other = fixture.foreign().await;
    run(
        &mut other,
        "INSERT INTO delayline_tasks_migrations VALUES (99, 0)",
    )
    .await;
    for result in [fixture.store.check().await, fixture.store.migrate().await] {
        let error = result.unwrap_err();
        assert!(!error.is_transient());
        assert!(error.to_string().contains("version 99"), "{error}");
        assert!(error.to_string().contains("later release"), "{error}");
    }
    run(&mut other, "DELETE FROM delayline_tasks_migrations").await;
    let error = fixture.store.check().await.unwrap_err();
    assert!(error.to_string().contains("needs version 1"), "{error}");
}

#[tokio::test]
async fn a_person_may_apply_the_migrations() {
    let fixture = Fixture::new().await;
    let mut person = fixture.foreign().await;
    run(&mut person, "CREATE SCHEMA other").await;
    let store = fixture
        .builder()
        .schema("other")
        .table("mine")
        .connect()
        .await
        .unwrap();
    run(&mut person, &store.migrations()).await;
    store.check().await.unwrap();
    store.migrate().await.unwrap();
    store.insert_all(due_rows([1])).await.unwrap();
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM other.mine")
        .fetch_one(&mut person)
        .await
        .unwrap();
    assert_eq!(rows, 1);
}

#[tokio::test]
async fn a_table_is_found_along_the_search_path() {
    let fixture = Fixture::new().await;
    let mut owner = fixture.foreign().await;
    run(&mut owner, "CREATE SCHEMA first").await;
    let options = fixture.options.clone().options([("search_path", "first,public")]);
    let store = crate::store::PostgresStore::builder(options.clone())
        .connect()
        .await
        .unwrap();
    store.check().await.unwrap();
    assert_eq!(store.database.table.full_name(), "\"public\".\"delayline_tasks\"");
    let store = crate::store::PostgresStore::builder(options)
        .table("fresh")
        .connect()
        .await
        .unwrap();
    assert_eq!(store.database.table.full_name(), "\"first\".\"fresh\"");
}

#[tokio::test]
async fn a_table_of_the_name_that_is_not_ours_is_told_so_by_all() {
    let fixture = Fixture::new().await;
    let mut other = fixture.foreign().await;
    run(
        &mut other,
        "CREATE TABLE theirs (id uuid PRIMARY KEY, state integer)",
    )
    .await;
    let store = fixture.builder().table("theirs").connect().await.unwrap();
    for result in [store.check().await, store.migrate().await, store.check().await] {
        let error = result.unwrap_err();
        assert!(!error.is_transient(), "{error}");
        let said = error.to_string();
        assert!(said.contains("Delayline has not made it"), "{said}");
        assert!(said.contains("--table"), "{said}");
    }
}
