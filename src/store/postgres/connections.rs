//! Connections to one database, and what becomes of errors.

use std::future::Future;
use std::io;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool};

use super::listen::Listener;
use super::sql::Statements;
use super::table::Table;
use crate::{Clock, Error};

/// How long a caller waits for a connection, at the most.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After which idleness a connection is tried before it is used: its server may have gone. One that has just been used
/// is not, as that would be one more round trip for every call.
const TRY_AFTER: Duration = Duration::from_millis(100);
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
const SETTINGS: &str = "
    SET default_transaction_isolation = 'read committed';
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
    SET enable_seqscan = off;
    SET enable_bitmapscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET jit = off;
    SET plan_cache_mode = force_generic_plan;
";

/// In which schema the table is, or would be made; the name of the channel; the version of the server.
const PLACE: &str = "
    SELECT schema, CASE WHEN octet_length(channel) < 64 THEN channel ELSE 'delayline_' || md5(channel) END,
        current_setting('server_version_num')::int
    FROM (SELECT p.schema, p.schema || '.' || $2::text AS channel FROM (SELECT coalesce($1::text,
        (SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.oid = to_regclass(quote_ident($2::text))),
        current_schema()::text) AS schema) p) named";

/// One table in one database, and the connections to it.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) pool: PgPool,
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
    /// Asks the database once where the table is; the other connections, so many at the most, are opened as they are
    /// needed.
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
            Ok(place)
        };
        let place = clock.timeout(CONNECT_TIMEOUT, asked).await;
        let (schema, channel, server) = place.unwrap_or(Err(sqlx::Error::PoolTimedOut))?;
        if server < OLDEST_SERVER {
            return Err(sqlx::Error::Configuration(TooOld(server).into()));
        }
        let schema = schema.ok_or_else(|| sqlx::Error::Configuration(NoSchema.into()))?;
        let channel = channel.filter(|_| notify);
        let table = Table::new(Some(schema), table);
        Ok(Self {
            pool: pool(connections, options.clone()),
            statements: Statements::of(&table),
            table,
            listener: Listener::new(options, channel.clone(), clock.clone()),
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
        let mut retries = self.retries();
        loop {
            match call().await {
                Ok(done) => return Ok(done),
                Err(error) => retries.pause_after(error).await?,
            }
        }
    }

    pub(super) fn retries(&self) -> Retries {
        Retries {
            failed: 0,
            clock: self.clock.clone(),
        }
    }
}

/// How often a call has been given up by the database.
pub(super) struct Retries {
    failed: usize,
    clock: Clock,
}

impl Retries {
    /// Waits a random while, so that two that met do not meet again; passes on any error that is no such end, or one
    /// too many.
    pub(super) async fn pause_after(&mut self, error: sqlx::Error) -> Result<(), sqlx::Error> {
        self.failed += 1;
        if !is_conflict(&error) || self.failed == TRIES {
            return Err(error);
        }
        let most = u64::try_from(self.failed)
            .unwrap_or(u64::MAX)
            .saturating_mul(PAUSE);
        let millis = self.clock.random_below(most);
        self.clock.sleep(Duration::from_millis(millis)).await;
        Ok(())
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

fn pool(connections: u32, options: PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(CONNECT_TIMEOUT)
        .test_before_acquire(false)
        .before_acquire(|connection, found| {
            Box::pin(async move {
                if found.idle_for >= TRY_AFTER {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        .after_connect(|connection, _| Box::pin(set_up(connection)))
        .connect_lazy_with(options)
}

async fn set_up(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(SETTINGS).execute(connection).await?;
    Ok(())
}

/// The code that PostgreSQL gave.
fn code_of(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// Whether the database gave something up in favour of somebody else: a serialization failure, a deadlock, a lock that
/// did not come in time, or another live row of the same key that has just been written.
fn is_conflict(error: &sqlx::Error) -> bool {
    let code = code_of(error);
    matches!(code.as_deref(), Some("40001" | "40P01" | "55P03" | "23505"))
}

fn is_transient(error: &sqlx::Error) -> bool {
    let broken = match error {
        // What the operating system refuses for good, such as a socket that this user may not open.
        sqlx::Error::Io(error) => error.kind() != io::ErrorKind::PermissionDenied,
        sqlx::Error::PoolTimedOut => true,
        _ => false,
    };
    let passes = |code: String| match code.as_str() {
        // The database has been dropped.
        "57P04" => false,
        // A transaction was idle, or took, for too long; or the server does not take writes, now.
        "25P03" | "25P04" | "25006" => true,
        // The connection, resources, the operator, the system.
        code => ["08", "53", "57", "58"]
            .iter()
            .any(|class| code.starts_with(class)),
    };
    broken || is_conflict(error) || code_of(error).is_some_and(passes)
}

/// The store's error for what the driver said.
pub(super) fn failed(error: sqlx::Error) -> Error {
    Error::Store {
        store: super::NAME,
        transient: is_transient(&error),
        source: error.into(),
    }
}
