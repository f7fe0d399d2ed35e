//! Connecting: names, secrets, settings of others, servers that go away.

use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;

use super::{Fixture, due_rows, id, run};
use crate::Error;
use crate::store::Store;
use crate::store::database::{Database, Server};
use crate::store::postgres::PostgresStore;
use crate::store::sql::tests::each::Each;

#[tokio::test]
async fn a_name_that_cannot_be_used_is_refused() {
    let options = || PgConnectOptions::new().host("127.0.0.1").port(1);
    for name in [
        "",
        "Tasks",
        "1st",
        "a-b",
        "a\"b",
        "a.b",
        "ä",
        "a b",
        &"x".repeat(41),
    ] {
        for (field, builder) in [
            ("table", PostgresStore::builder(options()).table(name)),
            ("schema", PostgresStore::builder(options()).schema(name)),
        ] {
            let error = builder.connect().await.unwrap_err();
            assert!(
                matches!(&error, Error::Invalid { field: of, value, .. } if *of == field && value == name),
                "{error}"
            );
        }
    }
    let none = PostgresStore::builder(options()).connections(0).connect().await;
    assert!(matches!(
        none.unwrap_err(),
        Error::Invalid {
            field: "connections",
            ..
        }
    ));
}

#[tokio::test]
async fn every_name_that_is_allowed_works() {
    let fixture = Fixture::new().await;
    for name in ["order", "_", "select", &"x".repeat(40)] {
        let store = fixture.builder().table(name).connect().await.unwrap();
        store.migrate().await.unwrap();
        store.insert_all(due_rows([1])).await.unwrap();
        store.check().await.unwrap();
    }
}

#[tokio::test]
async fn a_password_is_never_shown() {
    let away = "postgres://me:s3cret@127.0.0.1:1/db";
    let error = PostgresStore::connect(away).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    for url in [
        "postgres://me:s3cret@127.0.0.1:port/db",
        "me:s3cret@127.0.0.1",
        // The parser's own words are about a value that it does not know.
        "postgres://me@127.0.0.1/db?sslmode=s3cret",
    ] {
        let error = PostgresStore::connect(url).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { field: "url", .. }), "{error}");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    }
    let builder = PostgresStore::builder(away.parse().unwrap());
    assert!(!format!("{builder:?}").contains("s3cret"));

    let fixture = Fixture::new().await;
    let store = fixture.builder().connect().await.unwrap();
    let missing = fixture.options.clone().password("s3cret").database("missing");
    let error = PostgresStore::builder(missing).connect().await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(!format!("{error} {error:?} {store:?}").contains("s3cret"));
}

#[tokio::test]
async fn what_the_server_says_is_told_once_and_without_a_line_of_its_source() {
    let fixture = Fixture::new().await;
    let missing = fixture.options.clone().database("missing");
    let error = PostgresStore::builder(missing).connect().await.unwrap_err();
    let told = "store postgres: database \"missing\" does not exist (SQLSTATE 3D000)";
    assert_eq!([error.to_string(), format!("{error:?}")], [told, told]);
    assert!(std::error::Error::source(&error).is_none());
}

#[tokio::test]
async fn settings_of_the_database_do_not_reach_the_store() {
    let fixture = Fixture::new().await;
    let mut other = fixture.foreign().await;
    run(
        &mut other,
        "DO $$ BEGIN
            EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database());
            EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database());
            EXECUTE format('ALTER DATABASE %I SET timezone = ''America/St_Johns''', current_database());
        END $$",
    )
    .await;
    let store = fixture.builder().connect().await.unwrap();
    for (setting, value) in [
        ("transaction_isolation", "read committed"),
        ("synchronous_commit", "on"),
        ("application_name", "delayline"),
    ] {
        let found: String = sqlx::query_scalar("SELECT current_setting($1)")
            .bind(setting)
            .fetch_one(&mut *store.database.pools.callers.lend().await.unwrap())
            .await
            .unwrap();
        assert_eq!(found, value);
    }
    let before = fixture.store.now().await.unwrap();
    let now = store.insert_all(due_rows([1])).await.unwrap().now;
    assert!((before..=fixture.store.now().await.unwrap()).contains(&now));

    let mine = fixture.options.clone().application_name("mine");
    let store = PostgresStore::builder(mine).connect().await.unwrap();
    let name: String = sqlx::query_scalar("SELECT current_setting('application_name')")
        .fetch_one(&mut *store.database.pools.callers.lend().await.unwrap())
        .await
        .unwrap();
    assert_eq!(name, "mine");
}

#[tokio::test]
async fn a_server_that_is_back_is_used_at_once() {
    let server = Server::start(Database::Postgres);
    let store = PostgresStore::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    // Several connections, all of which are lost.
    let (one, two) = tokio::join!(store.insert_all(due_rows([1])), store.insert_all(due_rows([2])));
    one.and(two).unwrap();

    server.kill();
    let error = store.insert_all(due_rows([3])).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let error = PostgresStore::connect(&server.url()).await.unwrap_err();
    assert!(error.is_transient(), "{error}");

    server.start_again();
    let (one, two) = tokio::join!(store.insert_all(due_rows([4])), store.insert_all(due_rows([5])));
    one.and(two).unwrap();
    for number in [1, 2, 4, 5] {
        assert!(store.find(&id(number).into()).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_connection_that_was_terminated_is_replaced() {
    let fixture = Fixture::new().await;
    fixture.store.insert_all(due_rows([1])).await.unwrap();
    let mut other: PgConnection = fixture.foreign().await;
    run(
        &mut other,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    .await;
    // As many calls may meet the end of a connection as there were.
    for _ in 0..8 {
        match fixture.store.insert_all(due_rows([2])).await {
            Ok(_) => break,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
    fixture.store.insert_all(due_rows([3])).await.unwrap();
}
