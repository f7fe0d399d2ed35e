//! Connections to one database.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

use super::errors;
use super::listen::Listener;
use super::read::Query;
use super::sql::Statements;
use super::table::Table;
use crate::clock::Clock;
use crate::defaults;
use crate::store::sql::{Away, Connections, Dial, LOCK_WAIT, Lent, TURN_WAIT, WAITING, Why};

/// For how long the server may take to be reached and to say where the table is.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// For how long a verb waits for a lock while it may hold up others: for what comes and goes all the time.
const HARDLY: Duration = Duration::from_millis(50);
/// For how long a worker does. It leaves out rows that are locked; what remains are the server's own locks.
const SHORTLY: Duration = Duration::from_secs(1);
/// How often something is begun anew that the database gave up in favour of somebody else.
const TRIES: usize = 10;
/// For how many milliseconds to wait before, at the most, for each time that it has failed.
const PAUSE: u64 = 20;
/// PostgreSQL 12: `MATERIALIZED`, and plans that are good enough without.
const OLDEST_SERVER: i32 = 120_000;

/// What a connection needs whatever is set for its user or its database.
///
/// - Rows are locked and looked at again where somebody has changed them, which is `READ COMMITTED`.
/// - What a call has written is durable when it returns.
/// - Only indexes are used, one row after another: with the statistics of a table that was small once, the planner would
///   read all of it. A plan is made once for each statement, as no better one depends on the values.
/// - The server gives up what nobody waits for any more: a caller that goes away closes its connection, which servers
///   from 14 on notice within half a second; and so it does with connections whose other end has vanished.
const SETTINGS: &str = "
    SET default_transaction_isolation = 'read committed';
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
    SET enable_seqscan = off;
    SET enable_bitmapscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET jit = off;
    SET plan_cache_mode = force_generic_plan;
    SELECT set_config(name, '500', false) FROM pg_settings WHERE name = 'client_connection_check_interval';
    SET tcp_keepalives_idle = 10;
    SET tcp_keepalives_interval = 5;
    SET tcp_keepalives_count = 3;
";

/// In which schema the table is, or would be made; the name of the channel; the version of the server.
const PLACE: &str = "
    SELECT schema, CASE WHEN octet_length(channel) < 64 THEN channel ELSE 'delayline_' || md5(channel) END,
        current_setting('server_version_num')::int
    FROM (SELECT p.schema, p.schema || '.' || $2::text AS channel FROM (SELECT coalesce($1::text,
        (SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.oid = to_regclass(quote_ident($2::text))),
        current_schema()::text) AS schema) p) named";

/// Connections of one purpose.
pub(super) type Pool = Connections<Server>;

/// One table in one database, and the connections to it.
pub(super) struct Database {
    /// For verbs and what is read. None waits here for a row that somebody else keeps locked.
    pub(super) callers: Pool,
    /// For what workers do, so that no caller keeps a claim from being kept or ended.
    pub(super) workers: Pool,
    /// For verbs that wait for a row that somebody else has locked.
    pub(super) waiting: Pool,
    pub(super) table: Table,
    pub(super) statements: Statements,
    /// Who is told of rows that are due soon; none: nobody.
    pub(super) channel: Option<String>,
    pub(super) listener: Listener,
    pub(super) clock: Clock,
}

/// The connection has no schema to make a table in.
#[derive(Debug, thiserror::Error)]
#[error("none of the schemas in search_path is there: name one")]
struct NoSchema;

/// The server is too old.
#[derive(Debug, thiserror::Error)]
#[error("the server is PostgreSQL {}: needed is 12 or later", .0 / 10_000)]
struct TooOld(i32);

impl Database {
    /// Asks the database once where the table is; the other connections, so many at the most for callers and as many for
    /// workers, are opened as they are needed.
    pub(super) async fn connect(
        options: PgConnectOptions,
        connections: u32,
        schema: Option<String>,
        table: String,
        notify: bool,
    ) -> Result<Self, sqlx::Error> {
        let clock = Clock::system();
        let asked = async {
            let mut connection = options.connect().await?;
            let place: (Option<String>, Option<String>, i32) = sqlx::query_as(PLACE)
                .bind(schema)
                .bind(&table)
                .fetch_one(&mut connection)
                .await?;
            connection.close().await?;
            Ok::<_, sqlx::Error>(place)
        };
        let place = clock.timeout(CONNECT_WITHIN, asked).await;
        let (schema, channel, server) = place.unwrap_or_else(|| Err(Away(CONNECT_WITHIN).into()))?;
        if server < OLDEST_SERVER {
            return Err(sqlx::Error::Configuration(TooOld(server).into()));
        }
        let schema = schema.ok_or_else(|| sqlx::Error::Configuration(NoSchema.into()))?;
        let channel = channel.filter(|_| notify);
        let table = Table::new(Some(schema), table);
        let count = usize::try_from(connections).unwrap_or(usize::MAX);
        let pool = |count, lock_timeout| {
            let options = options.clone();
            let server = Server {
                options,
                lock_timeout,
            };
            Connections::new(server, count, clock.clone())
        };
        Ok(Self {
            callers: pool(count, HARDLY),
            workers: pool(count, SHORTLY),
            waiting: pool(WAITING, Duration::from_secs(LOCK_WAIT)),
            statements: Statements::of(&table),
            table,
            listener: Listener::new(options.clone(), channel.clone(), clock.clone()),
            channel,
            clock,
        })
    }

    /// What `call` gives, which is repeated where the database gave it up in favour of somebody else. Nothing of it has
    /// happened then.
    pub(super) async fn retried<T, F>(&self, call: impl Fn() -> F) -> Result<T, sqlx::Error>
    where
        F: Future<Output = Result<T, sqlx::Error>>,
    {
        let mut failed = 0;
        loop {
            let error = match call().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            failed += 1;
            if !errors::is_conflict(&error) || failed == TRIES {
                return Err(error);
            }
            // For a random while, so that two that met do not meet again.
            let most = u64::try_from(failed).unwrap_or(u64::MAX).saturating_mul(PAUSE);
            let millis = self.clock.random_below(most);
            self.clock.sleep(Duration::from_millis(millis)).await;
        }
    }
}

/// What a statement finds, on a connection of its own.
pub(super) async fn fetch(pool: &Pool, query: Query<'_>) -> Result<Vec<PgRow>, sqlx::Error> {
    let mut lent = pool.lend().await?;
    let rows = query.fetch_all(&mut *lent).await?;
    lent.give_back();
    Ok(rows)
}

/// A transaction; it is undone unless it is committed.
pub(super) struct Writing<'a> {
    lent: Lent<'a, Server>,
}

impl<'a> Writing<'a> {
    pub(super) async fn begin(pool: &'a Pool) -> Result<Self, sqlx::Error> {
        let mut lent = pool.lend().await?;
        sqlx::raw_sql("BEGIN").execute(&mut *lent).await?;
        Ok(Self { lent })
    }

    /// Begins one that waits for rows, if its turn comes.
    pub(super) async fn in_turn(database: &'a Database) -> Result<Option<Self>, sqlx::Error> {
        let mut writing = Self::begin(&database.waiting).await?;
        let limit = |seconds| AssertSqlSafe(format!("SET LOCAL lock_timeout = '{seconds}s'"));
        sqlx::raw_sql(limit(TURN_WAIT)).execute(&mut *writing).await?;
        let turn = sqlx::query(database.statements.turn.clone()).bind(database.table.full_name());
        match turn.execute(&mut *writing).await {
            Err(error) if matches!(errors::blame(&error), Some(Why::Locked(_))) => return Ok(None),
            came => came?,
        };
        sqlx::raw_sql(limit(LOCK_WAIT)).execute(&mut *writing).await?;
        Ok(Some(writing))
    }

    /// Undoes all that it has done, and begins another.
    pub(super) async fn begin_again(&mut self) -> Result<(), sqlx::Error> {
        sqlx::raw_sql("ROLLBACK; BEGIN").execute(&mut *self.lent).await?;
        Ok(())
    }

    /// Makes it durable.
    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        sqlx::raw_sql("COMMIT").execute(&mut *self.lent).await?;
        self.lent.give_back();
        Ok(())
    }
}

impl Deref for Writing<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.lent
    }
}

impl DerefMut for Writing<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.lent
    }
}

/// Where connections lead.
pub(super) struct Server {
    options: PgConnectOptions,
    lock_timeout: Duration,
}

#[async_trait]
impl Dial for Server {
    type Connection = PgConnection;

    async fn dial(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        let limit = defaults::STORE_TIMEOUT.as_millis();
        let limits = format!(
            "SET lock_timeout = {}; SET statement_timeout = {limit}; SET idle_in_transaction_session_timeout = {limit};
             SET tcp_user_timeout = {limit};",
            self.lock_timeout.as_millis()
        );
        let settings = AssertSqlSafe(limits + SETTINGS);
        sqlx::raw_sql(settings).execute(&mut connection).await?;
        Ok(connection)
    }
}

/// The caller's options, completed.
pub(super) fn prepare(options: PgConnectOptions) -> PgConnectOptions {
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("delayline"),
    };
    options.disable_statement_logging()
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
