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

#[tokio::test]
async fn a_server_that_is_full_is_a_transient_error() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows([1])).await;
    fixture.store.ready(&claim(1)).await.unwrap();
    // As a file, an engine and InnoDB say it, and where there is no room for locks or transactions.
    for number in [1021, 1026, 1030, 1114, 1206, 1637] {
        for event in ["INSERT", "UPDATE"] {
            let refuse = format!(
                "CREATE OR REPLACE TRIGGER full_{event} BEFORE {event} ON delayline_tasks FOR EACH ROW
                SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'full'"
            );
            run(&mut fixture.foreign().await, &refuse).await;
        }
        for error in [
            fixture.store.insert_all(due_rows([2, 3])).await.unwrap_err(),
            fixture
                .store
                .advance(&[settlement(1, 2, Ending::Done)])
                .await
                .unwrap_err(),
        ] {
            assert!(
                error.is_transient() && error.to_string().contains("full"),
                "{error}"
            );
        }
    }
}
