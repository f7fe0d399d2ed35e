//! Connections to one server.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, MySqlConnection, Row};

use crate::clock::Clock;
use crate::defaults;
use crate::store::sql::{Connections, Dial, Pools};

/// For how many seconds a statement waits for a lock that it should not wait for, as it may be one that its owner forgot: the least that
/// MySQL knows. MariaDB knows none at all, but may then undo a transaction that has left a locked row out.
const LOCK_TIMEOUT: u64 = 1;

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
    IF(@@lock_wait_timeout < @@wait_timeout, NULL, 'lock_wait_timeout'),
    IF(@@time_zone = '+00:00', NULL, 'time_zone'))";

/// A connection does not have the settings that were made on it.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server has not taken settings of a session, without which writes may be lost: {0}; a proxy in between has to pass \
     on `SET SESSION`, and keep one connection for one session"
)]
struct NotSet(String);

/// Connections of one purpose.
pub(super) type Pool = Arc<Connections<Dialer>>;

/// So many connections at the most for callers, and as many for workers.
pub(super) fn pools(options: &MySqlConnectOptions, count: usize) -> Pools<Dialer> {
    let options = options.clone().timezone(Some("+00:00".to_owned()));
    let options = options
        .statement_cache_capacity(STATEMENTS)
        .disable_statement_logging();
    Pools::new([Dialer(options.clone()), Dialer(options)], count, Clock::system())
}

/// Where connections lead.
pub(super) struct Dialer(MySqlConnectOptions);

#[async_trait]
impl Dial for Dialer {
    type Connection = MySqlConnection;

    /// What the store relies on, whatever is set for the server, and whatever its `init_connect` does. The time zone and the
    /// character set are set by the driver.
    ///
    /// - A statement outside of a transaction is committed when it is done, and after a commit there is none.
    /// - Every statement sees what is committed when it begins, and locks only the rows that it chooses.
    /// - Values that do not fit are refused, and no statement because of how much it reads or what it goes by.
    /// - The server gives up what no caller waits for any more, also for a table that is being altered, and connections whose
    ///   other end has vanished.
    async fn dial(&self) -> Result<MySqlConnection, sqlx::Error> {
        let mut connection = self.0.connect().await?;
        let limit = defaults::STORE_TIMEOUT.as_secs();
        let settings = format!(
            "SET SESSION autocommit = 1, completion_type = NO_CHAIN;
            SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
            SET SESSION sql_mode = '{SQL_MODE}',
                sql_safe_updates = 0, sql_big_selects = 1, sql_select_limit = {}, sql_auto_is_null = 0,
                unique_checks = 1, innodb_lock_wait_timeout = {}, lock_wait_timeout = {limit}, wait_timeout = {}
                /*M!100600 , idle_transaction_timeout = {limit}, max_statement_time = {limit} */
                /*!80000 , max_execution_time = 0 */;
            {CHECK}",
            u64::MAX,
            LOCK_TIMEOUT,
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

    async fn run(connection: &mut MySqlConnection, sql: String) -> Result<(), sqlx::Error> {
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await;
        done.map(drop)
    }
}
