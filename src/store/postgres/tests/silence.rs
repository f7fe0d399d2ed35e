//! Servers that fall silent, and those that take no writes for a while.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::{Fixture, claim, due_rows, id, in_time, run};
use crate::store::proxy::{Network, Proxy};
use crate::store::sql::tests::each::Each;
use crate::store::{PostgresBuilder, PostgresStore, Store};

async fn proxied(fixture: &Fixture) -> (Proxy, PostgresStore) {
    let (proxy, builder) = proxy(fixture).await;
    (proxy, builder.connect().await.unwrap())
}

/// The same with a store that listens, and does so.
async fn listening(fixture: &Fixture) -> (Proxy, PostgresStore) {
    let (proxy, builder) = proxy(fixture).await;
    let store = builder.notify().connect().await.unwrap();
    // That it may have missed something is said twice.
    in_time(store.notified()).await;
    in_time(store.notified()).await;
    (proxy, store)
}

async fn proxy(fixture: &Fixture) -> (Proxy, PostgresBuilder) {
    let proxy = Proxy::start(server(fixture)).await;
    let options = fixture.options.clone().host("127.0.0.1");
    let builder = PostgresStore::builder(options.port(proxy.address().port()));
    (proxy, builder)
}

fn server(fixture: &Fixture) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, fixture.options.get_port()))
}

/// Lets so much time pass at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

const MINUTE: Duration = Duration::from_secs(60);

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
    let mut lent = store.database.pools.callers.lend().await.unwrap();
    run(&mut lent, "SET default_transaction_read_only = on").await;
    lent.give_back();
    let error = store.insert_all(due_rows([1])).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    store.insert_all(due_rows([1])).await.unwrap();

    let mut lent = store.database.pools.workers.lend().await.unwrap();
    run(&mut lent, "SET default_transaction_read_only = on").await;
    lent.give_back();
    let error = store.ready(&claim(1)).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(store.ready(&claim(1)).await.unwrap().found.len(), 1);
}

/// As after a failover by DNS, where the server that was meant before goes on.
#[tokio::test]
async fn a_name_that_leads_elsewhere_is_followed_within_half_an_hour() {
    let fixture = Fixture::new().await;
    let (proxy, store) = proxied(&fixture).await;
    let elsewhere = Proxy::start(server(&fixture)).await;
    let call = async || {
        in_time(store.find(&id(1).into())).await.unwrap();
        in_time(store.ready(&claim(1))).await.unwrap();
    };
    call().await;
    proxy.lead_to(elsewhere.address());
    // They are in use all the time.
    for _ in 0..5 {
        pass(5 * MINUTE).await;
        call().await;
        assert_eq!(elsewhere.connections(), 0);
    }
    pass(6 * MINUTE).await;
    call().await;
    assert_eq!(elsewhere.connections(), 2);
}

#[tokio::test]
async fn a_listener_follows_a_name_as_well() {
    let fixture = Fixture::new().await;
    let (proxy, store) = listening(&fixture).await;
    let elsewhere = Proxy::start(server(&fixture)).await;
    proxy.lead_to(elsewhere.address());
    pass(31 * MINUTE).await;
    in_time(store.notified()).await;
    assert_eq!(elsewhere.connections(), 1);
}

#[tokio::test]
async fn a_listener_replaces_a_connection_that_fell_silent() {
    let fixture = Fixture::new().await;
    let (proxy, store) = listening(&fixture).await;
    let before = proxy.connections();
    proxy.set(Network::FrozenSoFar);
    // It is asked whether it is there, and does not answer.
    for _ in 0..2 {
        pass(Duration::from_secs(11)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    in_time(store.notified()).await;
    assert_eq!(proxy.connections(), before + 1);
}
