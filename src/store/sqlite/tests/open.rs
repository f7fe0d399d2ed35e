//! Opening a file: new, known, too new, impossible.

use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use super::{Fixture, change, claim, due_rows, id, in_time, run};
use crate::Scheduled;
use crate::store::sql::tests::lived;
use crate::store::sqlite::SqliteStore;
use crate::store::{Store, Verb};

#[tokio::test]
async fn rows_are_there_when_the_file_is_opened_again() {
    let fixture = Fixture::new().await;
    fixture.store.insert(due_rows([1])).await.unwrap();
    let row = fixture.find(id(1)).await;
    let Fixture { folder, store } = fixture;
    drop(store);

    let store = SqliteStore::open(folder.path().join("tasks.db")).await.unwrap();
    assert_eq!(store.find(&id(1).into()).await.unwrap(), Some(row));
}

#[tokio::test]
async fn a_file_may_have_tables_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true);
    let mut app = options.connect().await.unwrap();
    run(
        &mut app,
        "PRAGMA user_version = 7; CREATE TABLE orders (id INTEGER PRIMARY KEY)",
    )
    .await;

    let store = SqliteStore::open(&path).await.unwrap();
    store.insert(due_rows([1])).await.unwrap();
    run(&mut app, "INSERT INTO orders DEFAULT VALUES").await;
    let version: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut app)
        .await
        .unwrap();
    assert_eq!(version, 7);
}

#[tokio::test]
async fn a_table_of_the_name_that_is_not_ours_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true);
    let mut app = options.connect().await.unwrap();
    run(&mut app, "CREATE TABLE delayline_tasks (id INTEGER PRIMARY KEY)").await;
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("Delayline has not made"), "{error}");
}

#[tokio::test]
async fn a_schema_of_a_later_release_is_refused_and_left_alone() {
    let fixture = Fixture::new().await;
    let mut other = fixture.foreign().await;
    run(&mut other, "INSERT INTO delayline_migrations VALUES (99, 0)").await;
    let error = SqliteStore::open(fixture.path()).await.unwrap_err();
    assert!(!error.is_transient());
    assert!(error.to_string().contains("version 99"), "{error}");
    assert!(error.to_string().contains("later release"), "{error}");

    run(&mut other, "DELETE FROM delayline_migrations WHERE version = 99").await;
    SqliteStore::open(fixture.path()).await.unwrap();
}

#[tokio::test]
async fn many_may_open_a_new_file_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let open = |number| {
        let path = path.clone();
        tokio::spawn(async move {
            let store = SqliteStore::open(path).await?;
            store.insert(due_rows([number])).await
        })
    };
    let opened: Vec<_> = (0..8).map(open).collect();
    for opened in opened {
        in_time(opened).await.unwrap().unwrap();
    }
    let store = SqliteStore::open(path).await.unwrap();
    let found = store.ready(&claim(100)).await.unwrap().found;
    assert_eq!(found.len(), 8);
}

#[tokio::test]
async fn a_path_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no database at all, but longer than a header would be").unwrap();
    let missing = folder.path().join("missing").join("tasks.db");
    for path in [missing, folder.path().to_owned(), text, ":memory:".into()] {
        let error = SqliteStore::open(&path).await.unwrap_err();
        assert!(!error.is_transient(), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[tokio::test]
async fn a_file_that_was_deleted_or_replaced_is_written_to_no_more() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    fixture.insert(due_rows([1])).await;
    let (path, aside) = (fixture.path(), fixture.folder.path().join("aside.db"));
    let fails = async |told: &str| {
        for error in [
            store.insert(due_rows([2])).await.unwrap_err(),
            store.ready(&claim(1)).await.unwrap_err(),
            store.find(&id(1).into()).await.unwrap_err(),
            store.check().await.unwrap_err(),
        ] {
            assert!(error.is_transient(), "{error}");
            let error = error.to_string();
            assert!(error.contains(told) && error.contains("tasks.db"), "{error}");
        }
    };
    std::fs::rename(&path, &aside).unwrap();
    fails("deleted").await;
    // As a restored backup does.
    std::fs::copy(&aside, &path).unwrap();
    fails("replaced").await;
    std::fs::rename(&aside, &path).unwrap();
    fixture.find(id(1)).await;
    fixture.insert(due_rows([3])).await;
    let again = SqliteStore::open(&path).await.unwrap();
    assert_eq!(again.find(&id(2).into()).await.unwrap(), None);
    assert!(again.find(&id(3).into()).await.unwrap().is_some());
}

#[tokio::test]
async fn what_was_committed_to_a_file_that_went_meanwhile_is_not_acknowledged() {
    let fixture = Fixture::new().await;
    let writing = fixture.store.file.write().await.unwrap();
    std::fs::remove_file(fixture.path()).unwrap();
    let error = writing.commit().await.unwrap_err();
    assert!(error.to_string().contains("would be lost"), "{error}");
}

#[tokio::test]
async fn a_later_release_may_add_a_column_while_this_one_works() {
    let fixture = Fixture::new().await;
    let store = fixture.without_history().await;
    let mut service = fixture.foreign().await;
    for first in [1_000, 2_000, 3_000] {
        lived::live(&store, first).await;
        let claimed = lived::claimed(&store, first).await;
        run(&mut service, "BEGIN IMMEDIATE").await;
        lived::join(&mut store.join(&mut service), claimed, first).await;
        run(&mut service, "COMMIT").await;
        // Statements that are prepared, and then those that are prepared anew.
        if first == 1_000 {
            let mut other = fixture.foreign().await;
            run(&mut other, "ALTER TABLE delayline_tasks ADD COLUMN later TEXT").await;
            run(&mut other, "INSERT INTO delayline_migrations VALUES (2, 0)").await;
        }
    }
    let error = store.check().await.unwrap_err();
    assert!(error.to_string().contains("later release"), "{error}");
}

#[test]
fn a_store_serves_callers_after_the_runtime_of_the_first_has_ended() {
    let mut fixture = None;
    for number in 1..4 {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        fixture = runtime.unwrap().block_on(async {
            let fixture = match fixture {
                Some(fixture) => fixture,
                None => Fixture::new().await,
            };
            let added = fixture.insert(due_rows([number])).await;
            let cancelled = fixture.change(vec![change(id(number), Verb::Cancel)]).await;
            assert!(matches!(added[..], [Scheduled::New(_)]) && cancelled[0].is_done());
            Some(fixture)
        });
    }
}
