//! The schema: made once, by any process, and known to be there.

use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};

use super::{Fixture, PostgresStore, due_rows, in_time, new_row, run};
use crate::store::Store;
use crate::store::sql::tests::each::Each;
use crate::store::sql::tests::lived;

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
async fn a_database_that_lacks_characters_is_refused_and_one_that_it_lacks_is_invalid_input() {
    let fixture = Fixture::new().await;
    let name = format!("latin1_{:016x}", fastrand::u64(..));
    let create =
        format!("CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
    run(&mut fixture.foreign().await, &create).await;
    let options: PgConnectOptions = fixture.options.clone().database(&name);
    let store = PostgresStore::builder(options.clone()).connect().await.unwrap();
    for refused in [store.check().await, store.migrate().await] {
        let error = refused.unwrap_err();
        assert!(!error.is_transient(), "{error}");
        assert!(error.to_string().contains("encoding is LATIN1"), "{error}");
        assert!(error.to_string().contains("allowed is UTF8"), "{error}");
    }
    // Made by hand, and not checked.
    let mut person = PgConnection::connect_with(&options).await.unwrap();
    run(&mut person, &store.migrations()).await;
    let with_key = |number, key: &str| {
        let mut row = new_row(number, Duration::ZERO);
        row.key = Some(key.into());
        row
    };
    let rows = vec![with_key(1, "é"), with_key(2, "\u{1F600}")];
    let answers = store.insert(rows).await.unwrap().found;
    assert!(answers[0].is_ok(), "{answers:?}");
    let refused = answers[1].as_ref().unwrap_err();
    assert!(refused.is_invalid(), "{refused}");
    let target = (crate::Kind::from("k"), crate::Key::from("\u{1F600}"));
    let refused = store.find(&target.into()).await.unwrap_err();
    assert!(refused.is_invalid(), "{refused}");
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
    assert_eq!(store.database.names.full_name(), "\"public\".\"delayline_tasks\"");
    let store = crate::store::PostgresStore::builder(options)
        .table("fresh")
        .connect()
        .await
        .unwrap();
    assert_eq!(store.database.names.full_name(), "\"first\".\"fresh\"");
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

#[tokio::test]
async fn a_later_release_may_add_a_column_while_this_one_works() {
    let fixture = Fixture::new().await;
    let store = fixture.without_history().await;
    let mut service = fixture.foreign().await;
    for first in [1_000, 2_000, 3_000] {
        lived::live(&store, first).await;
        let claimed = lived::claimed(&store, first).await;
        run(&mut service, "BEGIN").await;
        lived::join(&mut store.join(&mut service), claimed, first).await;
        run(&mut service, "COMMIT").await;
        // Statements that are prepared, and then those that are prepared anew.
        if first == 1_000 {
            let mut other = fixture.foreign().await;
            run(&mut other, "ALTER TABLE delayline_tasks ADD COLUMN later TEXT").await;
            run(&mut other, "INSERT INTO delayline_tasks_migrations VALUES (2, 0)").await;
        }
    }
    let error = store.check().await.unwrap_err();
    assert!(error.to_string().contains("later release"), "{error}");
}
