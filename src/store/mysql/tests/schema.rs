//! Making the tables, and finding them as they must be.

use sqlx::Executor;

use super::{Fixture, due_rows, in_time, run};
use crate::Error;
use crate::store::Store;
use crate::store::mysql::MySqlStore;
use crate::store::sql::tests::each::Each as _;
use crate::store::sql::tests::lived;

#[tokio::test]
async fn a_missing_schema_is_told_and_what_to_do() {
    let fixture = Fixture::empty().await;
    let error = fixture.store.check().await.unwrap_err();
    assert!(!error.is_transient());
    assert!(error.to_string().contains("migrate"), "{error}");
    fixture.store.migrate().await.unwrap();
    fixture.store.check().await.unwrap();
}

#[tokio::test]
async fn migrating_again_changes_nothing() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows([1])).await;
    let row = fixture.find(1).await;
    fixture.store.migrate().await.unwrap();
    assert_eq!(fixture.find(1).await, row);
}

#[tokio::test]
async fn a_verb_without_tables_says_how_they_are_made() {
    let fixture = Fixture::empty().await;
    let error = fixture.store.insert_all(due_rows(1..2)).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("MySqlStore::migrate"), "{error}");
}

#[tokio::test]
async fn many_may_migrate_at_once() {
    let fixture = Fixture::empty().await;
    let migrate = |_| {
        let url = fixture.url.clone();
        tokio::spawn(async move { MySqlStore::connect(&url).await?.migrate().await })
    };
    let all: Vec<_> = (0..8).map(migrate).collect();
    for one in all {
        in_time(one).await.unwrap().unwrap();
    }
    fixture.store.check().await.unwrap();
    let mut other = fixture.foreign().await;
    let versions = other.fetch_all("SELECT * FROM delayline_tasks_migrations").await;
    assert_eq!(versions.unwrap().len(), 1);
}

#[tokio::test]
async fn a_migration_that_was_broken_off_is_done_again() {
    let fixture = Fixture::new().await;
    let mut other = fixture.foreign().await;
    run(&mut other, "DELETE FROM delayline_tasks_migrations").await;
    assert!(fixture.store.check().await.is_err());
    fixture.store.migrate().await.unwrap();
    fixture.store.check().await.unwrap();
}

#[tokio::test]
async fn the_sql_may_be_applied_by_hand() {
    let fixture = Fixture::empty().await;
    let mut other = fixture.foreign().await;
    run(&mut other, &fixture.store.migrations()).await;
    fixture.store.check().await.unwrap();
    fixture.insert(due_rows([1])).await;
    fixture.store.migrate().await.unwrap();
    fixture.find(1).await;
}

#[tokio::test]
async fn a_schema_of_a_later_release_is_refused() {
    let fixture = Fixture::new().await;
    let mut other = fixture.foreign().await;
    run(
        &mut other,
        "INSERT INTO delayline_tasks_migrations VALUES (99, 0)",
    )
    .await;
    for error in [
        fixture.store.check().await.unwrap_err(),
        fixture.store.migrate().await.unwrap_err(),
    ] {
        assert!(!error.is_transient());
        assert!(error.to_string().contains("version 99"), "{error}");
        assert!(error.to_string().contains("later release"), "{error}");
    }
}

#[tokio::test]
async fn two_tables_in_one_database_do_not_meet() {
    let fixture = Fixture::new().await;
    let builder = MySqlStore::builder(fixture.url.parse().unwrap());
    let other = builder.table("other").connect().await.unwrap();
    assert!(other.check().await.is_err());
    other.migrate().await.unwrap();
    fixture.insert(due_rows([1])).await;
    assert_eq!(other.find(&super::id(1).into()).await.unwrap(), None);
    assert!(!other.migrations().contains("delayline_tasks"));
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_named() {
    let fixture = Fixture::empty().await;
    let builder = || MySqlStore::builder(fixture.url.parse().unwrap());
    let long = "a".repeat(41);
    for name in ["", "Tasks", "1a", "a-b", "a`b", "a.b", long.as_str()] {
        let error = builder().table(name).connect().await.unwrap_err();
        assert!(
            matches!(error, Error::Invalid { field: "table", .. }),
            "{name}: {error}"
        );
    }
    let fits = "a".repeat(40);
    let store = builder().table(fits).connect().await.unwrap();
    store.migrate().await.unwrap();
    store.check().await.unwrap();
    let error = builder().connections(0).connect().await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Invalid {
                field: "connections",
                ..
            }
        ),
        "{error}"
    );
    let error = MySqlStore::connect("mysql://u:geheim@127.0.0.1:1")
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Invalid {
                field: "database",
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn no_error_tells_the_password() {
    let fixture = Fixture::empty().await;
    let wrong = fixture.url.replace("delayline@", "delayline:geheim@");
    let urls = [
        wrong.as_str(),
        "mysql://u:geheim@127.0.0.1:1/d",
        "mysql://u:geheim@127.0.0.1:99999999/d",
        "mysql://u:geheim@h:geheim/d?ssl-mode=geheim",
        "geheim",
    ];
    for url in urls {
        let error = MySqlStore::connect(url).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("geheim"), "{error:?}");
    }
    let builder = MySqlStore::builder(urls[1].parse().unwrap());
    assert!(!format!("{builder:?}").contains("geheim"));
    let error = builder.connect().await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[tokio::test]
async fn a_table_of_the_name_that_is_not_ours_is_told_so_by_all() {
    let fixture = Fixture::empty().await;
    let mut other = fixture.foreign().await;
    run(
        &mut other,
        "CREATE TABLE delayline_tasks (id BIGINT PRIMARY KEY, kind TEXT, state INT)",
    )
    .await;
    let refused = async |what: &str| {
        for result in [fixture.store.check().await, fixture.store.migrate().await] {
            let error = result.unwrap_err();
            assert!(!error.is_transient(), "{what}: {error}");
            let said = error.to_string();
            assert!(said.contains("Delayline has not made"), "{what}: {said}");
            assert!(said.contains("--table"), "{what}: {said}");
        }
    };
    refused("at first").await;
    // As earlier releases left it.
    run(
        &mut other,
        "CREATE TABLE delayline_tasks_migrations (version INT NOT NULL PRIMARY KEY, applied_at BIGINT NOT NULL)",
    )
    .await;
    run(&mut other, "INSERT INTO delayline_tasks_migrations VALUES (1, 0)").await;
    refused("once it is marked").await;
}

#[tokio::test]
async fn a_later_release_may_add_a_column_while_this_one_works() {
    let fixture = Fixture::new().await;
    let store = fixture.without_history().await;
    let mut service = fixture.foreign().await;
    for first in [1_000, 2_000, 3_000] {
        lived::live(&store, first).await;
        let claimed = lived::claimed(&store, first).await;
        run(&mut service, "START TRANSACTION").await;
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
