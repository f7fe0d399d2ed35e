//! Servers that fall silent, and those that take no writes for a while.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sqlx::SqlSafeStr;
use sqlx::mysql::MySqlConnectOptions;

use super::{Fixture, claim, due_rows, in_time, run};
use crate::defaults;
use crate::store::proxy::{Network, Proxy};
use crate::store::sql::tests::each::Each;
use crate::store::sql::{Driver, Value};
use crate::store::{MySqlStore, Store};

async fn proxied(fixture: &Fixture) -> (Proxy, MySqlStore) {
    let options: MySqlConnectOptions = fixture.url.parse().unwrap();
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, options.get_port()));
    let proxy = Proxy::start(server).await;
    let options = options.host("127.0.0.1").port(proxy.address().port());
    let store = MySqlStore::builder(options).connect().await.unwrap();
    (proxy, store)
}

#[tokio::test]
async fn idle_connections_that_fell_silent_are_replaced() {
    let fixture = Fixture::new().await;
    let (proxy, store) = proxied(&fixture).await;
    let (one, two) = tokio::join!(store.insert_all(due_rows([1])), store.insert_all(due_rows([2])));
    one.and(two).unwrap();
    store.ready(&claim(1)).await.unwrap();
    // Only those that were idle for a moment are tried.
    tokio::time::sleep(Duration::from_millis(150)).await;
    proxy.set(Network::FrozenSoFar);
    in_time(store.insert_all(due_rows([3]))).await.unwrap();
    assert_eq!(in_time(store.ready(&claim(9))).await.unwrap().found.len(), 2);
}

#[tokio::test]
async fn a_call_that_gets_no_answer_fails_and_its_connection_is_not_used_again() {
    let fixture = Fixture::new().await;
    let (proxy, store) = proxied(&fixture).await;
    store.ready(&claim(1)).await.unwrap();
    proxy.set(Network::FrozenSoFar);
    let error = in_time(store.ready(&claim(1))).await.unwrap_err();
    assert!(
        error.is_transient() && error.to_string().contains("no answer"),
        "{error}"
    );
    in_time(store.ready(&claim(1))).await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_a_transient_error() {
    let fixture = Fixture::new().await;
    let (proxy, store) = proxied(&fixture).await;
    for network in [Network::Frozen, Network::Unanswered] {
        proxy.set(network);
        let error = in_time(store.check()).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
    proxy.set(Network::Open);
    in_time(store.check()).await.unwrap();
}

/// As after a failover, when a session is still with a server that only reads now.
#[tokio::test]
async fn connections_on_which_nothing_may_be_written_are_replaced() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut lent = store.server.pools.callers.lend().await.unwrap();
    run(&mut lent, "SET SESSION TRANSACTION READ ONLY").await;
    lent.give_back();
    let error = store.insert_all(due_rows([1])).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    store.insert_all(due_rows([1])).await.unwrap();

    let mut lent = store.server.pools.workers.lend().await.unwrap();
    run(&mut lent, "SET SESSION TRANSACTION READ ONLY").await;
    lent.give_back();
    let error = store.ready(&claim(1)).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(store.ready(&claim(1)).await.unwrap().found.len(), 1);
}

#[tokio::test]
async fn no_statement_waits_for_a_table_for_longer_than_its_caller() {
    let fixture = Fixture::new().await;
    let mut lent = fixture.store.server.pools.callers.lend().await.unwrap();
    let rows = lent
        .fetch("SELECT @@lock_wait_timeout".into_sql_str(), &[])
        .await
        .unwrap();
    let waits = i64::try_from(defaults::STORE_TIMEOUT.as_secs()).unwrap();
    assert!(
        matches!(rows[0][..], [Value::Int(longest)] if longest == waits),
        "{rows:?}"
    );
}
