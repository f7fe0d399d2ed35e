//! Keeps rows in a table of a MySQL or MariaDB server.

mod advance;
mod builder;
mod claim;
mod codec;
mod connections;
mod errors;
mod guarded;
mod lanes;
mod read;
mod schema;
mod session;
mod sql;
mod sweep;
mod transaction;
mod verbs;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::MySqlConnection;
use sqlx::mysql::MySqlConnectOptions;

pub use self::builder::MySqlBuilder;
use self::connections::Pools;
use self::errors::failed;
use self::lanes::Known;
use self::sql::Sql;
use super::{
    Change, Claim, Guarded, Looked, NewRow, Noted, Page, Renewal, Stamped, Step, Store, Sweep, Target,
    Transaction,
};
use crate::backend::Wake;
use crate::store::merging::Merging;
use crate::store::sql::Verbs as _;
use crate::{Answer, Error, Kind, Scheduled, State, Task, TaskId, Timestamp};

const NAME: &str = "mysql";

/// Keeps rows in a table of a MariaDB or MySQL server, beside the service's own tables.
///
/// It is tested with MariaDB 10.11 and needs 10.6 or later; or MySQL 8.0.19 or later, of which 9.7.4 is tested, and 8.x
/// was not tried. The tables must be InnoDB's.
///
/// A clone is another handle of the same connections, which are the store's own: on them every statement sees what is
/// committed when it begins (`READ COMMITTED`), and what was undone for the sake of somebody else's transaction is tried
/// again. A call that gets no answer within [`defaults::STORE_TIMEOUT`](crate::defaults::STORE_TIMEOUT) fails, and closes
/// what it spoke through; so do calls that fail otherwise.
///
/// A row that a service's transaction keeps locked holds up nobody else. A verb waits for it for about 3 s, on a
/// connection for those who do, and then gives an error that is transient; a worker leaves it for later. On MySQL new rows
/// that come in one batch with such a row wait for some seconds, too: only MariaDB can be told not to wait for a lock.
/// Times are those of the server's clock. A call that comes back is
/// as durable as the server's `innodb_flush_log_at_trx_commit` says. A server that is told to log statements (its general
/// log, its slow log) logs payloads with them, whether they are bound or not; the driver logs none of them.
#[derive(Clone)]
pub struct MySqlStore {
    server: Arc<Server>,
    history: Duration,
    merging: Arc<Merging>,
}

/// One table, and the connections to its server.
struct Server {
    pools: Pools,
    sql: Sql,
    table: String,
    /// The kinds of live rows.
    live: Known,
    /// The kinds of history.
    past: Known,
}

impl MySqlStore {
    /// Connects to a database, such as `mysql://user:password@host:3306/database`, with the defaults of the builder.
    ///
    /// It makes no table: that does [`migrate`](Self::migrate).
    ///
    /// Without `?ssl-mode=…` (which is `PREFERRED`) it speaks TLS if the server and the build have it (feature `sql-tls`, or
    /// one of sqlx's own), and silently plaintext otherwise. `REQUIRED` insists on TLS but trusts any certificate;
    /// `VERIFY_CA`, with `&ssl-ca=FILE`, wants one by a trusted authority, and `VERIFY_IDENTITY` also one for this host.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a URL that cannot be used; [`Error::Store`], transient if the server is away. None of them
    /// tells the password.
    ///
    /// ```no_run
    /// use delayline::Scheduler;
    /// use delayline::store::MySqlStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = MySqlStore::connect("mysql://shop:secret@db/shop?ssl-mode=REQUIRED").await?;
    /// store.migrate().await?;
    /// let scheduler = Scheduler::new(store);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(url: &str) -> Result<Self, Error> {
        // The driver takes any scheme, and then goes where nobody has meant.
        let is_meant = ["mysql://", "mariadb://"]
            .iter()
            .any(|scheme| url.starts_with(scheme));
        // What the parser says might quote a part of the password.
        let options: Option<MySqlConnectOptions> = url.parse().ok().filter(|_| is_meant);
        let options = options.ok_or_else(|| {
            Error::invalid(
                "url",
                "(not shown)",
                "allowed is mysql://user:password@host:port/database",
            )
        })?;
        Self::builder(options).connect().await
    }

    /// Sets up a store for the database that these options name.
    ///
    /// The store sets the time zone, SQL mode, isolation level and lock timeout of its connections itself.
    ///
    /// ```no_run
    /// use delayline::store::MySqlStore;
    /// use sqlx::mysql::MySqlConnectOptions;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let database: MySqlConnectOptions = "mysql://shop:secret@db/shop".parse()?;
    /// let store = MySqlStore::builder(database).table("shop_tasks").connections(16).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(options: MySqlConnectOptions) -> MySqlBuilder {
        MySqlBuilder::new(options)
    }

    /// Makes the tables, or brings them up to date. Any number of processes may do it at once, and again.
    ///
    /// # Errors
    ///
    /// [`Error::Store`], also if the tables were made by a later release.
    pub async fn migrate(&self) -> Result<(), Error> {
        let server = &self.server;
        schema::migrate(&server.pools.callers, &server.table)
            .await
            .map_err(failed)
    }

    /// The whole SQL that [`migrate`](Self::migrate) runs on an empty database, for who applies it by hand.
    pub fn migrations(&self) -> String {
        schema::text(&self.server.table)
    }

    /// Joins a transaction that the service has begun on a connection of its own to the same database: what the result
    /// is given to happens when the service commits, or not at all.
    ///
    /// The service may begin it at `READ COMMITTED` or at `REPEATABLE READ`, MySQL's default. All verbs decide by rows
    /// as they are now, and lock them until the transaction ends; those that run are not locked, for which the store
    /// looks at them on a connection of its own. A handler may finish its task at every level: renewals of its claim do not
    /// touch the row. Where somebody else has just changed the same rows it waits, for as long as the service's
    /// `innodb_lock_wait_timeout` allows. Two things remain: at `REPEATABLE READ`, a row that is claimed between that look
    /// and the lock stays locked until the transaction ends, so that its lease cannot be renewed (its worker keeps it until
    /// it would have ended), and so does one whose key, or id, comes to be there while a new row is written; and at
    /// `REPEATABLE READ`, InnoDB keeps others from adding rows next to those that were found by an insert to be in its
    /// way. [`Transaction::find`] shows what the transaction sees, which at `REPEATABLE READ` are the rows as they were
    /// when it first read.
    pub fn join<'t>(&'t self, connection: &'t mut MySqlConnection) -> impl Transaction + 't {
        transaction::Joined::new(self, connection)
    }
}

impl fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlStore")
            .field("table", &self.server.table)
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MySqlStore {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.server.bounded(read::server_now(&self.server)).await
    }

    async fn insert(&self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Result<Scheduled, Error>>>, Error> {
        self.merging.insert(&self.server, rows).await
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Stamped<Vec<Result<Answer, Error>>>, Error> {
        self.merging.change(&self.server, changes, self.history).await
    }

    async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Result<Stamped<Looked>, Error> {
        let looked = claim::arrive(&self.server, wakes, claim);
        self.server.bounded(looked).await
    }

    async fn ready(&self, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
        self.server.bounded(claim::ready(&self.server, claim)).await
    }

    async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Result<Stamped<Looked>, Error> {
        let looked = sweep::sweep(&self.server, claim, sweep);
        self.server.bounded(looked).await
    }

    async fn advance(&self, steps: &[Step]) -> Result<Vec<Guarded>, Error> {
        let advanced = guarded::advance(&self.server, steps, self.history);
        self.server.bounded(advanced).await
    }

    async fn renew(&self, claims: &[Renewal], lease: Duration) -> Result<Vec<Guarded>, Error> {
        let renewed = guarded::renew(&self.server, claims, lease);
        self.server.bounded(renewed).await
    }

    async fn find(&self, target: &Target) -> Result<Option<Task>, Error> {
        self.server.bounded(read::find(&self.server, target)).await
    }

    async fn list(&self, page: &Page) -> Result<Vec<Task>, Error> {
        self.server.bounded(read::list(&self.server, page)).await
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        let kinds = read::kinds(&self.server, state, after, limit);
        self.server.bounded(kinds).await
    }

    async fn due_within(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        let counted = read::due_within(&self.server, kind, state, spans, most);
        self.server.bounded(counted).await
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        self.server.bounded(read::noted(&self.server, id)).await
    }

    async fn purge(&self, limit: usize) -> Result<u64, Error> {
        self.server.bounded(sweep::purge(&self.server, limit)).await
    }

    async fn check(&self) -> Result<(), Error> {
        let server = &self.server;
        let checked = schema::check(&server.pools.callers, &server.table);
        server.bounded(checked).await
    }
}

#[cfg(test)]
mod tests;
