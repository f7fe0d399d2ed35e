//! A server that is away, and comes back.

use super::{due_rows, id, in_time};
use crate::store::Store;
use crate::store::database::{Database, Server};
use crate::store::mysql::MySqlStore;
use crate::store::sql::tests::each::Each;

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
