//! Connections to one server.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, MySqlConnection, Row};

use super::errors;
use crate::clock::Clock;
use crate::defaults;
use crate::store::sql::{Connections, Dial, Lent as Lending};

/// How often a transaction that was undone for somebody else's sake is tried in all.
const TRIES: u32 = 10;
/// For how many milliseconds to wait before that, at the most, the first time; it doubles a few times.
const PAUSE: u64 = 4;

/// For how many seconds who should not wait for a lock does so, as it may be one that its owner forgot: the least that
/// MySQL knows. MariaDB knows none at all, but may then undo a transaction that has left a locked row out.
const HARDLY: u64 = 1;

/// How many statements stay prepared on a connection: of those that name ids there are some for each number of them.
const STATEMENTS: usize = 250;

/// How values and names are taken.
const SQL_MODE: &str = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION";

/// Names those settings that were set and are not so: a proxy in between may have kept them to itself.
const CHECK: &str = "SELECT CONCAT_WS(', ',
    IF(@@autocommit = 1, NULL, 'autocommit'),
    IF(@@completion_type IN ('NO_CHAIN', '0'), NULL, 'completion_type'),
    IF(/*M! @@tx_isolation *//*!80000 @@transaction_isolation */ = 'READ-COMMITTED', NULL, 'transaction_isolation'),
    IF(/*M! @@tx_read_only *//*!80000 @@transaction_read_only */ = 0, NULL, 'transaction_read_only'),
    IF(FIND_IN_SET('STRICT_ALL_TABLES', @@sql_mode) > 0, NULL, 'sql_mode'),
    IF(@@sql_safe_updates = 0, NULL, 'sql_safe_updates'),
    IF(@@sql_big_selects = 1, NULL, 'sql_big_selects'),
    IF(@@unique_checks = 1, NULL, 'unique_checks'),
    IF(@@time_zone = '+00:00', NULL, 'time_zone'))";

/// A connection does not have the settings that were made on it.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server has not taken settings of a session, without which writes may be lost: {0}; a proxy in between has to pass \
     on `SET SESSION`, and keep one connection for one session"
)]
struct NotSet(String);

/// Connections of one purpose.
pub(super) type Pool = Connections<Place>;
pub(super) type Lent<'a> = Lending<'a, Place>;

/// The connections to one server, by what they are for.
pub(super) struct Pools {
    /// For verbs and what is read.
    pub(super) callers: Pool,
    /// For what workers do, so that no caller keeps a claim from being kept or ended.
    pub(super) workers: Pool,
    pub(super) clock: Clock,
}

impl Pools {
    /// So many at the most for callers, and as many for workers.
    pub(super) fn new(options: &MySqlConnectOptions, count: usize) -> Self {
        let options = options.clone().timezone(Some("+00:00".to_owned()));
        let options = options
            .statement_cache_capacity(STATEMENTS)
            .disable_statement_logging();
        let clock = Clock::system();
        let pool = || Connections::new(Place(options.clone()), count, clock.clone());
        Self {
            callers: pool(),
            workers: pool(),
            clock,
        }
    }

    /// What `call` gives, which is repeated where the server undid it for somebody else's sake.
    pub(super) async fn retried<T, F>(&self, call: impl Fn() -> F) -> Result<T, sqlx::Error>
    where
        F: Future<Output = Result<T, sqlx::Error>>,
    {
        let mut tries = 0_u32;
        loop {
            let error = match call().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            tries += 1;
            if !errors::is_crossed(&error) || tries >= TRIES {
                return Err(error);
            }
            // For a random while, so that two that met do not meet again.
            let millis = self.clock.random_below(PAUSE << tries.min(5));
            self.clock.sleep(Duration::from_millis(millis)).await;
        }
    }
}

/// Where connections lead.
pub(super) struct Place(MySqlConnectOptions);

#[async_trait]
impl Dial for Place {
    type Connection = MySqlConnection;

    /// What the store relies on, whatever is set for the server, and whatever its `init_connect` does. The time zone and the
    /// character set are set by the driver.
    ///
    /// - A statement outside of a transaction is committed when it is done, and after a commit there is none.
    /// - Every statement sees what is committed when it begins, and locks only the rows that it chooses.
    /// - Values that do not fit are refused, and no statement because of how much it reads or what it goes by.
    /// - The server gives up what nobody waits for any more, and connections whose other end has vanished.
    async fn dial(&self) -> Result<MySqlConnection, sqlx::Error> {
        let mut connection = self.0.connect().await?;
        let limit = defaults::STORE_TIMEOUT.as_secs();
        let settings = format!(
            "SET SESSION autocommit = 1, completion_type = NO_CHAIN;
            SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
            SET SESSION sql_mode = '{SQL_MODE}',
                sql_safe_updates = 0, sql_big_selects = 1, sql_select_limit = {}, sql_auto_is_null = 0,
                unique_checks = 1, innodb_lock_wait_timeout = {}, wait_timeout = {}
                /*M!100600 , idle_transaction_timeout = {limit}, max_statement_time = {limit} */
                /*!80000 , max_execution_time = 0 */;
            {CHECK}",
            u64::MAX,
            HARDLY,
            6 * limit,
        );
        let told = sqlx::raw_sql(AssertSqlSafe(settings))
            .fetch_one(&mut connection)
            .await?;
        match told.try_get::<String, _>(0)? {
            others if others.is_empty() => Ok(connection),
            others => Err(sqlx::Error::Configuration(NotSet(others).into())),
        }
    }
}

/// A transaction; it is undone unless it is committed.
pub(super) struct Writing<'a>(Lent<'a>);

impl<'a> Writing<'a> {
    pub(super) async fn begin(pool: &'a Pool) -> Result<Self, sqlx::Error> {
        let mut lent = pool.lend().await?;
        sqlx::raw_sql("START TRANSACTION").execute(&mut *lent).await?;
        Ok(Self(lent))
    }

    /// Makes it durable.
    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        sqlx::raw_sql("COMMIT").execute(&mut *self.0).await?;
        self.0.give_back();
        Ok(())
    }
}

impl Deref for Writing<'_> {
    type Target = MySqlConnection;

    fn deref(&self) -> &MySqlConnection {
        &self.0
    }
}

impl DerefMut for Writing<'_> {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        &mut self.0
    }
}
