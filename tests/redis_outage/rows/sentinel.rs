//! Tests a master that sentinels replace.

use std::sync::Arc;
use std::time::Duration;

use delayline::State;
use delayline::store::{Page, RedisStore};
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

use super::callers::Callers;
use super::shop::Shop;
use crate::servers::RedisSentinel;
use crate::shop::KIND;
use crate::{ROOM, SAFETY, rate, until};

/// Loses a master under load by `lose`, which returns which one it was. Asserts that what its replica has comes to its
/// end, and that the service goes on.
async fn replaced(lose: impl FnOnce(&mut RedisSentinel) -> usize) {
    let _room = ROOM.acquire().await.unwrap();
    let mut servers = block_in_place(RedisSentinel::start);
    let shop = Arc::new(Shop::open(RedisStore::new(&servers.url()).unwrap()));
    let callers = Callers::start(&shop);
    until("tasks run", || shop.started() > rate() / 2).await;

    block_in_place(|| {
        let former = lose(&mut servers);
        servers.wait_for_promotion(former);
    });
    let before = shop.started();
    until("tasks run again", || shop.started() > before + rate() / 2).await;
    callers.end().await;
    timeout(SAFETY, until_none_is_live(&shop))
        .await
        .expect("no row is stuck");
    let losses = Arc::into_inner(shop).unwrap().end(None).await;
    println!("{losses:?}");
    losses.assert_only_the_last_moments();
}

async fn until_none_is_live(shop: &Shop) {
    for state in [State::Scheduled, State::Running] {
        let page = Page::new(KIND, state).limit(1);
        while !shop
            .repeat(|| shop.scheduler.list(&page))
            .await
            .unwrap()
            .is_empty()
        {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies() {
    replaced(RedisSentinel::kill_master).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_hangs() {
    replaced(RedisSentinel::stop_master).await;
}
