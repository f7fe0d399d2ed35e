//! A server that is away, and comes back.

use super::{Fixture, claim, due_rows, id, in_time, run, settlement};
use crate::store::database::{Database, Server};
use crate::store::mysql::MySqlStore;
use crate::store::sql::tests::each::Each;
use crate::store::{Ending, Store};

#[tokio::test]
async fn a_server_that_is_away_is_a_transient_error_and_usable_as_soon_as_it_is_back() {
    let server = Server::start(Database::MariaDb);
    let store = MySqlStore::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    // Several idle connections, which will all be dead.
    let found = tokio::join!(store.now(), store.now(), store.now());
    assert!(found.0.is_ok() && found.1.is_ok() && found.2.is_ok());
    store.insert_all(due_rows([1])).await.unwrap();

    server.kill();
    for error in [
        store.insert_all(due_rows([2])).await.unwrap_err(),
        store.find(&id(1).into()).await.unwrap_err(),
        store.check().await.unwrap_err(),
        MySqlStore::connect(&server.url()).await.unwrap_err(),
    ] {
        assert!(error.is_transient(), "{error}");
    }
    server.start_again();
    in_time(store.check()).await.unwrap();
    assert!(store.find(&id(1).into()).await.unwrap().is_some());
    store.insert_all(due_rows([2])).await.unwrap();
}

/// As MariaDB and MySQL put it.
#[tokio::test]
async fn a_server_that_is_full_is_a_transient_error_and_a_damaged_row_is_not() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows([1])).await;
    fixture.store.ready(&claim(1)).await.unwrap();
    for (number, text, is_transient) in [
        (
            1021,
            "Disk full (./a); waiting for someone to free some space...",
            true,
        ),
        (
            1026,
            "Error writing file ''./a7'' (errno: 28 \"No space left on device\")",
            true,
        ),
        (
            1026,
            "Error writing file ''./a (7)'' (errno: 122 - Disk quota exceeded)",
            true,
        ),
        (
            1026,
            "Error writing file ''./a28'' (errno: 27 - File too large)",
            false,
        ),
        (
            1026,
            "写文件''./a28''错误（错误号码：27 \"File too large\"）",
            false,
        ),
        (
            1030,
            "Got error 28 \"No space left on device\" from storage engine Aria",
            true,
        ),
        (1030, "Got error 28 from storage engine", true),
        (
            1030,
            "Got error 122 - ''Disk quota exceeded'' from storage engine",
            true,
        ),
        (
            1030,
            "Got error 127 - ''Record file is crashed'' from storage engine",
            false,
        ),
        (
            1030,
            "Got error 168 - ''Unknown (generic) error from engine'' from storage engine",
            false,
        ),
        (1114, "The table is full", true),
        // No room for locks, or transactions.
        (
            1206,
            "The total number of locks exceeds the lock table size",
            true,
        ),
        (1637, "Too many active concurrent transactions", true),
    ] {
        for event in ["INSERT", "UPDATE"] {
            let mut connection = fixture.foreign().await;
            run(&mut connection, &format!("DROP TRIGGER IF EXISTS full_{event}")).await;
            let refuse = format!(
                "CREATE TRIGGER full_{event} BEFORE {event} ON delayline_tasks FOR EACH ROW
                SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = '{text}'"
            );
            run(&mut connection, &refuse).await;
        }
        for error in [
            fixture.store.insert_all(due_rows([2, 3])).await.unwrap_err(),
            fixture
                .store
                .advance(&[settlement(1, 2, Ending::Done)])
                .await
                .unwrap_err(),
        ] {
            let told = error.to_string();
            assert_eq!(error.is_transient(), is_transient, "{told}");
            assert!(told.contains(&text.replace("''", "'")), "{told}");
        }
    }
}
