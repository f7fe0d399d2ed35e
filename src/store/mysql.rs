//! Keeps rows in a table of a MySQL or MariaDB server.

mod builder;
mod claim;
mod connections;
mod driver;
mod errors;
mod insert;
mod joined;
mod ranges;
mod schema;
mod session;
mod sql;
mod write;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::MySqlConnection;
use sqlx::mysql::MySqlConnectOptions;

pub use self::builder::MySqlBuilder;
use self::connections::Dialer;
use self::joined::JoinedSession;
use self::ranges::KnownKinds;
use self::session::OwnSession;
use self::sql::Sql;
use super::delegated::{delegate_store, unchanged};
use super::sql::{Pools, SqlTable};
use super::{Engine, Transaction};
use crate::Error;

const NAME: &str = "mysql";

/// Keeps rows in a table of a MariaDB or MySQL server, beside the service's own tables.
///
/// It is tested with MariaDB 10.11 and needs 10.6 or later; or MySQL 8.0.19 or later, of which 9.7.4 is tested, and 8.x
/// was not tried. The tables must be InnoDB's.
///
/// A clone is another handle of the same connections, which are the store's own: on them every statement sees what is
/// committed when it begins (`READ COMMITTED`), and what was undone in favour of another transaction is tried
/// again. A call that gets no answer within [`defaults::STORE_TIMEOUT`](crate::defaults::STORE_TIMEOUT) fails, and closes
/// what it spoke through; so do calls that fail otherwise.
///
/// A row that a service's transaction keeps locked holds up no other. A verb asks for it again for about 3 s, and then gives
/// an error that is transient; a worker leaves it for later. On MySQL what comes in one batch with such a row waits for some
/// seconds, too: only MariaDB can be told not to wait for a lock. A row that cannot be read, edited by hand or written by a
/// later release, is an error of the verbs that mean it; what claims or sweeps puts it out of the way for a minute or a lease,
/// as running under a lease that no worker has, and logs it.
/// Times are those of the server's clock. A call that comes back is
/// as durable as the server's `innodb_flush_log_at_trx_commit` says. A server that is told to log statements (its general
/// log, its slow log) logs payloads with them, whether they are bound or not; the driver logs none of them.
#[derive(Clone)]
pub struct MySqlStore {
    engine: Engine<SqlTable<OwnSession>>,
    server: Arc<Server>,
    keep_history: Duration,
}

/// One table, and the connections to its server.
struct Server {
    pools: Pools<Dialer>,
    sql: Sql,
    known: KnownKinds,
}

impl Server {
    /// The store's error for what the driver said. If it means that connections are of no use, they are closed.
    fn failed(&self, error: sqlx::Error) -> Error {
        if errors::is_of_server(&error) {
            self.pools.forget();
        }
        errors::failed(error)
    }
}

impl MySqlStore {
    fn new(server: Arc<Server>, keep_history: Duration) -> Self {
        let [callers, workers] =
            [false, true].map(|is_workers| SqlTable(OwnSession::new(&server, is_workers)));
        Self {
            engine: Engine::beside(callers, workers, &server.pools.clock, keep_history),
            server,
            keep_history,
        }
    }

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
        // The driver takes any scheme, and then goes where it was not meant to.
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
        let Server { pools, sql, .. } = &*self.server;
        let migrated = schema::migrate(&pools.callers, &sql.table).await;
        migrated.map_err(|error| self.server.failed(error))
    }

    /// The whole SQL that [`migrate`](Self::migrate) runs on an empty database, to be applied by hand.
    pub fn migrations(&self) -> String {
        schema::text(&self.server.sql.table)
    }

    /// Joins a transaction that the service has begun on a connection of its own to the same database: what the result
    /// is given to happens when the service commits, or not at all.
    ///
    /// The service may begin it at `READ COMMITTED` or at `REPEATABLE READ`, MySQL's default. All verbs decide by rows
    /// as they are now, and lock them until the transaction ends; those that run are not locked, for which the store
    /// looks at them on a connection of its own. A handler may finish its task at every level; but where snapshots are strict
    /// (MariaDB's `innodb_snapshot_isolation`), one whose claim was renewed after its transaction began has to repeat that.
    /// Where another transaction has just changed the same rows it waits, for as long as the service's
    /// `innodb_lock_wait_timeout` allows. [`Transaction::find`] shows rows as they are, and as the transaction itself has
    /// made them.
    ///
    /// At `REPEATABLE READ` InnoDB locks more than that until the transaction ends:
    ///
    /// - a row that is claimed between the look at it and the lock: its lease cannot be renewed (its worker keeps it until
    ///   it would have ended);
    /// - a row whose key or id another transaction writes during an insert of the same;
    /// - the place for new rows next to one that was in the way of an insert.
    pub fn join<'t>(&'t self, connection: &'t mut MySqlConnection) -> impl Transaction + 't {
        self.engine
            .join(SqlTable(JoinedSession::new(&self.server, connection)))
    }
}

impl fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlStore")
            .field("table", &self.server.sql.table)
            .field("keep_history", &self.keep_history)
            .finish_non_exhaustive()
    }
}

delegate_store!(MySqlStore, engine, unchanged);

#[cfg(test)]
mod tests;
