//! Keeps rows in a PostgreSQL database.

mod builder;
mod change;
mod claim;
mod codec;
mod connections;
mod errors;
mod guarded;
mod listen;
mod read;
mod schema;
mod session;
mod settings;
mod sql;
mod sweep;
mod table;
mod transaction;
mod verbs;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;

pub use self::builder::PostgresBuilder;
use self::connections::Database;
use super::{
    Change, Claim, Guarded, Looked, NewRow, Noted, Page, Renewal, Stamped, Step, Store, Sweep, Target,
    Transaction,
};
use crate::backend::Wake;
use crate::store::merging::Merging;
use crate::store::sql::Verbs as _;
use crate::{Answer, Error, Kind, Scheduled, State, Task, TaskId, Timestamp};

const NAME: &str = "postgres";

/// Keeps rows in a table of a PostgreSQL database (12 or later), beside the service's own tables.
///
/// A clone is another handle of the same connections. Any number of processes may use one table. Times are those of
/// the database's clock; a call that comes back has been written to the database's disk. The table is made by
/// [`migrate`](Self::migrate), not by connecting. The store's own connections keep prepared statements and settings. A pooler
/// that gives them to others after each transaction, as PgBouncer does in its transaction mode, is found out when the store
/// connects: then nothing is kept in them, which costs time, and [`notify`](PostgresBuilder::notify) does not hear.
///
/// What the database asks to be repeated, such as the victim of a deadlock, is repeated here. A database that is away
/// gives errors that are transient; when it is back, so is the store. A call that gets no answer within
/// [`defaults::STORE_TIMEOUT`](crate::defaults::STORE_TIMEOUT) fails, and closes what it spoke through; so do calls that
/// fail otherwise, so no connection stays that leads to a server which has become a standby.
///
/// A row that a service's transaction keeps locked holds up nobody else. A verb waits for it for about 3 s, on a
/// connection for those who do, and then gives an error that is transient; a worker leaves it for later.
#[derive(Clone)]
pub struct PostgresStore {
    database: Arc<Database>,
    history: Duration,
    merging: Arc<Merging>,
}

impl PostgresStore {
    /// Connects to `postgres://user:password@host:port/database`, with the defaults of [`builder`](Self::builder).
    ///
    /// Without `?sslmode=…` it speaks TLS if the server and the build have it (feature `sql-tls`, or one of sqlx's own), and
    /// silently plaintext otherwise. `require` insists on TLS but trusts any certificate; `verify-ca`, with
    /// `&sslrootcert=FILE`, wants one by a trusted authority, and `verify-full` also one for this host.
    ///
    /// ```no_run
    /// use delayline::Scheduler;
    /// use delayline::store::PostgresStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = PostgresStore::connect("postgres://shop:secret@db/shop?sslmode=require").await?;
    /// store.migrate().await?;
    /// let scheduler = Scheduler::new(store);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(url: &str) -> Result<Self, Error> {
        // The driver takes any scheme, and then goes where nobody has meant.
        let is_meant = ["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| url.starts_with(scheme));
        // The URL may hold a password, and what the parser says might quote a part of it.
        let options: Option<PgConnectOptions> = url.parse().ok().filter(|_| is_meant);
        let options = options.ok_or_else(|| {
            let allowed = "allowed is postgres://user:password@host:port/database";
            Error::invalid("url", "(not shown)", allowed)
        })?;
        Self::builder(options).connect().await
    }

    /// A store with settings of its own, on a database that `options` lead to.
    ///
    /// ```no_run
    /// use delayline::store::PostgresStore;
    /// use sqlx::postgres::PgConnectOptions;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let database: PgConnectOptions = "postgres://shop:secret@db/shop".parse()?;
    /// let store = PostgresStore::builder(database).table("shop_tasks").notify().connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(options: PgConnectOptions) -> PostgresBuilder {
        PostgresBuilder::new(options)
    }

    /// Makes the table, or brings it up to date; does nothing if it is. Any number of processes may call it at once.
    ///
    /// Only when there is something to do it needs the right to create tables in the schema, which must be there.
    pub async fn migrate(&self) -> Result<(), Error> {
        schema::migrate(&self.database).await.map_err(errors::failed)
    }

    /// The SQL by which a person makes the table in place of [`migrate`](Self::migrate): all of it, from an empty
    /// schema on.
    pub fn migrations(&self) -> String {
        schema::script(&self.database.table)
    }

    /// Joins a transaction that the service has begun on a connection of its own to the same database: what the result
    /// is given to happens when the service commits, or not at all.
    ///
    /// At `READ COMMITTED`, the default, it waits where somebody else has just changed the same rows, for as long as the
    /// service's `lock_timeout` allows. At a higher level that is an error, which is transient: the service may repeat its
    /// transaction. A handler may finish its task at every level: renewals of its claim do not touch the row. Verbs set a
    /// savepoint, by which they let go what they need not lock. How long the service's own connection may take is the
    /// service's to say.
    pub fn join<'t>(&'t self, connection: &'t mut PgConnection) -> impl Transaction + 't {
        transaction::Joined::new(self, connection)
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("table", &self.database.table.full_name())
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.database.bounded(read::now(&self.database)).await
    }

    async fn insert(&self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Result<Scheduled, Error>>>, Error> {
        self.merging.insert(&self.database, rows).await
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Stamped<Vec<Result<Answer, Error>>>, Error> {
        self.merging.change(&self.database, changes, self.history).await
    }

    async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Result<Stamped<Looked>, Error> {
        let looked = claim::arrive(&self.database, wakes, claim);
        self.database.bounded(looked).await
    }

    async fn ready(&self, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
        let claimed = claim::ready(&self.database, claim);
        self.database.bounded(claimed).await
    }

    async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Result<Stamped<Looked>, Error> {
        let looked = sweep::sweep(&self.database, claim, sweep);
        self.database.bounded(looked).await
    }

    async fn advance(&self, steps: &[Step]) -> Result<Vec<Guarded>, Error> {
        let advanced = guarded::advance(&self.database, steps, self.history);
        self.database.bounded(advanced).await
    }

    async fn renew(&self, claims: &[Renewal], lease: Duration) -> Result<Vec<Guarded>, Error> {
        let renewed = guarded::renew(&self.database, claims, lease);
        self.database.bounded(renewed).await
    }

    async fn find(&self, target: &Target) -> Result<Option<Task>, Error> {
        self.database.bounded(read::find(&self.database, target)).await
    }

    async fn list(&self, page: &Page) -> Result<Vec<Task>, Error> {
        self.database.bounded(read::list(&self.database, page)).await
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        let kinds = read::kinds(&self.database, state, after, limit);
        self.database.bounded(kinds).await
    }

    async fn due_within(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        let counted = read::due_within(&self.database, kind, state, spans, most);
        self.database.bounded(counted).await
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        self.database.bounded(read::noted(&self.database, id)).await
    }

    async fn purge(&self, limit: usize) -> Result<u64, Error> {
        self.database.bounded(sweep::purge(&self.database, limit)).await
    }

    async fn check(&self) -> Result<(), Error> {
        self.database.bounded(schema::check(&self.database)).await
    }

    async fn notified(&self) {
        self.database.listener.notified().await;
    }
}

#[cfg(test)]
mod tests;
