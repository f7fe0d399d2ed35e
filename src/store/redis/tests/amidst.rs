//! The contract of a store in the middle of a change: before every operation another one is begun, so that all that there
//! was is in former slots.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;

use super::redis_server::RedisServer;
use super::*;
use crate::store::redis::mover;
use crate::store::{Ahead, Hop, Looked, Page, Pending, Renewal, Stamped};
use crate::testing::store::StoreFixture;
use crate::{Error, Kind, Target, Timestamp};

crate::store_conformance!(between_one_slot_and_several, Fixture::new(&[1, 5]));
crate::store_conformance!(from_several_slots_to_several, Fixture::new(&[3, 7, 4]));

/// The server of the cases that run at the same time, which goes with the last of them.
static SERVER: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());
static STORES: AtomicUsize = AtomicUsize::new(0);

/// Stores whose number of slots goes around in a circle.
#[derive(Debug)]
struct Fixture {
    server: Arc<RedisServer>,
    slots: &'static [u16],
}

impl Fixture {
    fn new(slots: &'static [u16]) -> Self {
        let mut running = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        let server = running
            .upgrade()
            .unwrap_or_else(|| Arc::new(RedisServer::start()));
        *running = Arc::downgrade(&server);
        Self { server, slots }
    }
}

#[async_trait]
impl StoreFixture for Fixture {
    async fn store(&self, history: Duration) -> Arc<dyn Store> {
        let number = STORES.fetch_add(1, Ordering::Relaxed);
        let store = RedisStore::connect(&self.server.url())
            .and_then(|store| store.prefix(&format!("store-{number}")))
            .and_then(|store| store.slots(self.slots[0]))
            .expect("good settings")
            .keep_history(history);
        Arc::new(Amidst {
            store,
            slots: self.slots,
            changing: tokio::sync::Mutex::new(1),
        })
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// A store that begins a change before every operation, once the one before has ended.
#[derive(Debug)]
struct Amidst {
    store: RedisStore,
    slots: &'static [u16],
    changing: tokio::sync::Mutex<usize>,
}

impl Amidst {
    async fn amidst(&self) -> Result<&RedisStore, Error> {
        let mut count = self.changing.lock().await;
        let database = &self.store.database;
        let layouts = database.layouts_now().await?;
        if layouts.former.is_some() {
            let told = &mut |_| ();
            mover::finish(
                database,
                layouts,
                &mut crate::backend::Resharding::default(),
                told,
            )
            .await?;
        }
        let current = database.layouts_now().await?.current;
        mover::begin(database, current, self.slots[*count % self.slots.len()]).await?;
        *count += 1;
        Ok(&self.store)
    }
}

#[async_trait]
impl Store for Amidst {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.amidst().await?.now().await
    }

    async fn insert(&self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, Error> {
        self.amidst().await?.insert(rows).await
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Stamped<Vec<Answer>>, Error> {
        self.amidst().await?.change(changes).await
    }

    async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Result<Stamped<Looked>, Error> {
        self.amidst().await?.arrive(wakes, claim).await
    }

    async fn hop(&self, hops: &[Hop]) -> Result<Vec<bool>, Error> {
        self.amidst().await?.hop(hops).await
    }

    async fn ready(&self, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
        self.amidst().await?.ready(claim).await
    }

    async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Result<Stamped<Looked>, Error> {
        self.amidst().await?.sweep(claim, sweep).await
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<bool>, Error> {
        self.amidst().await?.settle(settlements).await
    }

    async fn renew(&self, claims: &[(TaskId, u64)], lease: Duration) -> Result<Vec<Renewal>, Error> {
        self.amidst().await?.renew(claims, lease).await
    }

    async fn upcoming(&self, ahead: Ahead) -> Result<Stamped<Vec<Pending>>, Error> {
        self.amidst().await?.upcoming(ahead).await
    }

    async fn find(&self, target: &Target) -> Result<Option<Task>, Error> {
        self.amidst().await?.find(target).await
    }

    async fn list(&self, page: &Page) -> Result<Vec<Task>, Error> {
        self.amidst().await?.list(page).await
    }

    async fn kinds(&self, state: State) -> Result<Vec<Kind>, Error> {
        self.amidst().await?.kinds(state).await
    }

    async fn purge(&self, limit: usize) -> Result<u64, Error> {
        self.amidst().await?.purge(limit).await
    }

    async fn check(&self) -> Result<(), Error> {
        self.amidst().await?.check().await
    }
}
