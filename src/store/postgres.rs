//! Keeps rows in a PostgreSQL database.

mod builder;
mod columns;
mod connections;
mod driver;
mod errors;
mod executor;
mod listen;
mod names;
mod range;
mod schema;
mod session;
mod settings;
mod sql;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;

pub use self::builder::PostgresBuilder;
use self::connections::Database;
use self::executor::{JoinedExecutor, OwnExecutor};
use self::session::PgSession;
use super::delegated::{delegate_store, unchanged};
use super::sql::SqlTable;
use super::{Engine, Transaction};
use crate::Error;

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
/// A row that a service's transaction keeps locked holds up no other. A verb asks for it again for about 3 s, and then gives
/// an error that is transient; a worker leaves it for later. A row that cannot be read, edited by hand or written by a later
/// release, is an error of the verbs that mean it; what claims or sweeps puts it out of the way for a minute or a lease, as
/// running under a lease that no worker has, and logs it.
#[derive(Clone)]
pub struct PostgresStore {
    engine: Engine<SqlTable<PgSession<OwnExecutor>>>,
    database: Arc<Database>,
    keep_history: Duration,
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
        // The driver takes any scheme, and then goes where it was not meant to.
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

    fn new(database: Arc<Database>, keep_history: Duration) -> Self {
        let table = |is_workers| SqlTable(PgSession(OwnExecutor::new(&database, is_workers)));
        let [callers, workers] = [false, true].map(table);
        Self {
            engine: Engine::beside(callers, workers, &database.clock, keep_history),
            database,
            keep_history,
        }
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
        schema::script(&self.database.names)
    }

    /// Joins a transaction that the service has begun on a connection of its own to the same database: what the result
    /// is given to happens when the service commits, or not at all.
    ///
    /// Verbs lock what they can change, scheduled and dead rows, so that what they answer is true when the service commits. They
    /// leave running rows to their workers. At `READ COMMITTED`, the default, they wait where another transaction has just changed
    /// the same rows, for as long as the service's `lock_timeout` allows. At a higher level that is an error, which is
    /// transient: the service may repeat its transaction. So may a handler at such a level have to, whose claim was renewed
    /// after its transaction began. Verbs set a savepoint, by which they let go what they need not lock. How long the service's
    /// own connection may take is the service's to say.
    pub fn join<'t>(&'t self, connection: &'t mut PgConnection) -> impl Transaction + 't {
        let joined = PgSession(JoinedExecutor::new(&self.database, connection));
        self.engine.join(SqlTable(joined))
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("table", &self.database.names.full_name())
            .field("keep_history", &self.keep_history)
            .finish_non_exhaustive()
    }
}

delegate_store!(PostgresStore, engine, unchanged);

#[cfg(test)]
mod tests;
