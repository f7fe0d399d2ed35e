//! Connections to one database.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, Row};

use super::errors;
use super::listen::Listener;
use super::names::Names;
use super::settings;
use super::sql::Statements;
use crate::Error;
use crate::clock::Clock;
use crate::store::sql::{Away, Dial, Pools};

/// For how long the server may take to be reached and to say where the table is.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// For how long a caller's call waits for a lock that cannot be passed over, as of a key that another transaction is writing.
const CALLERS_LOCK_TIMEOUT: Duration = Duration::from_millis(50);
/// For how long a worker does. It leaves out rows that are locked; what remains are the server's own locks.
const WORKERS_LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// PostgreSQL 12: `MATERIALIZED`, and plans that are good enough without.
const OLDEST_SERVER: i32 = 120_000;

/// In which schema the table is, or would be made; the name of the channel; the version of the server.
const PLACE: &str = "
    SELECT schema, CASE WHEN octet_length(channel) < 64 THEN channel ELSE 'delayline_' || md5(channel) END,
        current_setting('server_version_num')::int
    FROM (SELECT p.schema, p.schema || '.' || $2::text AS channel FROM (SELECT coalesce($1::text,
        (SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.oid = to_regclass(quote_ident($2::text))),
        current_schema()::text) AS schema) p) named";

/// One table in one database, and the connections to it.
pub(super) struct Database {
    pub(super) pools: Pools<Server>,
    pub(super) names: Names,
    pub(super) statements: Statements,
    /// Whether statements stay prepared.
    pub(super) is_prepared: bool,
    /// Which channel is told of rows that are due soon, if one is.
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
        connections: usize,
        schema: Option<String>,
        table: String,
        notify: bool,
    ) -> Result<Self, sqlx::Error> {
        let clock = Clock::system();
        let asked = async {
            let mut connection = options.connect().await?;
            // As a transaction, and unprepared: the session may be shared.
            Server::run(&mut connection, settings::of_transaction(WORKERS_LOCK_TIMEOUT)).await?;
            let place: (Option<String>, Option<String>, i32) = sqlx::query_as(PLACE)
                .persistent(false)
                .bind(schema)
                .bind(&table)
                .fetch_one(&mut connection)
                .await?;
            Server::run(&mut connection, "COMMIT".to_owned()).await?;
            let shared = is_shared(&mut connection, &options).await?;
            connection.close().await?;
            Ok::<_, sqlx::Error>((place, shared))
        };
        let asked = clock.timeout(CONNECT_WITHIN, asked).await;
        let asked = asked.unwrap_or_else(|| Err(Away(CONNECT_WITHIN).into()))?;
        let ((schema, channel, server), shared) = asked;
        if server < OLDEST_SERVER {
            return Err(sqlx::Error::Configuration(TooOld(server).into()));
        }
        let schema = schema.ok_or_else(|| sqlx::Error::Configuration(NoSchema.into()))?;
        let channel = channel.filter(|_| notify);
        if shared {
            tell_of_pooler(notify);
        }
        let names = Names::new(Some(schema), table);
        let servers = [CALLERS_LOCK_TIMEOUT, WORKERS_LOCK_TIMEOUT].map(|lock_timeout| Server {
            options: options.clone(),
            lock_timeout,
            shared,
        });
        Ok(Self {
            pools: Pools::new(servers, connections, clock.clone()),
            statements: Statements::of(&names),
            is_prepared: !shared,
            names,
            // A store that shares a session cannot listen, and can tell others.
            listener: Listener::new(
                options.clone(),
                channel.clone().filter(|_| !shared),
                clock.clone(),
            ),
            channel,
            clock,
        })
    }

    /// The store's error for what the driver said. If it means that connections are of no use, they are closed.
    pub(super) fn failed(&self, error: sqlx::Error) -> Error {
        if errors::is_of_server(&error) {
            self.pools.forget();
        }
        errors::failed(error)
    }
}

/// Where connections lead: a pooler may give a session to another client after each transaction.
pub(super) struct Server {
    options: PgConnectOptions,
    lock_timeout: Duration,
    /// Whether a pooler gives a session to another after each transaction. Then nothing may be left in it: neither settings,
    /// which the next one would have, nor prepared statements.
    shared: bool,
}

#[async_trait]
impl Dial for Server {
    type Connection = PgConnection;

    async fn dial(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        if !self.shared {
            Self::run(&mut connection, settings::of_session(self.lock_timeout)).await?;
        }
        Ok(connection)
    }

    async fn run(connection: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await;
        done.map(drop)
    }

    fn begin(&self) -> String {
        match self.shared {
            true => settings::of_transaction(self.lock_timeout),
            false => "BEGIN".to_owned(),
        }
    }
}

/// The caller's options, completed.
pub(super) fn prepare(options: PgConnectOptions) -> PgConnectOptions {
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("delayline"),
    };
    // No number here is a broken one, and PgBouncer refuses a client that asks for this.
    options.extra_float_digits(None).disable_statement_logging()
}

/// How often two connections are compared.
const COMPARISONS: usize = 4;

/// Whether a pooler gives sessions of the server to another after each transaction, as PgBouncer does in its transaction
/// mode: then two connections that are both open have the same session, or one has another than before.
async fn is_shared(one: &mut PgConnection, options: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    // Where there is only one connection to be had, nothing is to be found out.
    let Ok(mut other) = options.connect().await else {
        return Ok(false);
    };
    let mut before = None;
    for _ in 0..COMPARISONS {
        let sessions = (session(one).await?, session(&mut other).await?);
        if sessions.0 == sessions.1 || before.is_some_and(|before| before != sessions) {
            return Ok(true);
        }
        before = Some(sessions);
    }
    other.close().await?;
    Ok(false)
}

/// By what the server knows the session that a connection has now.
async fn session(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    let told = sqlx::raw_sql("SELECT pg_backend_pid()")
        .fetch_one(connection)
        .await?;
    told.try_get(0)
}

fn tell_of_pooler(notify: bool) {
    tracing::info!(
        "a pooler gives connections of PostgreSQL to others after each transaction: so nothing is kept prepared, and every \
         call is a transaction that makes its own settings, which costs time; a pooler of sessions, or none, costs less"
    );
    if notify {
        tracing::warn!(
            "a pooler gives connections of PostgreSQL to others after each transaction, so this process cannot LISTEN: \
             what other processes schedule for now it finds when it sweeps; lead the store past the pooler, or have \
             that pool sessions"
        );
    }
}
