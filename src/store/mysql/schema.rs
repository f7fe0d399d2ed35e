//! The schema, and how a database gets the newest one.

use std::fmt::Write;

use sqlx::{AssertSqlSafe, Executor, MySqlConnection};

use super::connections::Pool;
use super::errors;
use crate::store::sql::{Made, Unfit};

/// Each takes the schema from the version that is its place in the list to the next. Never edited, only added to:
/// databases out there have them already. MySQL commits every statement of a schema by itself, so each can be repeated
/// after it was broken off.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_tasks.sql")];

const CREATE_VERSIONS: &str = "CREATE TABLE IF NOT EXISTS delayline_tasks_migrations (
    version    INT    NOT NULL PRIMARY KEY,
    applied_at BIGINT NOT NULL -- milliseconds since 1970-01-01T00:00:00Z
) ENGINE = InnoDB;
";

/// A table may take long to be brought up to date, and another process that does so, too.
const PATIENT: &str = "SET SESSION wait_timeout = 3600
    /*M!100600 , idle_transaction_timeout = 0, max_statement_time = 0 */, lock_wait_timeout = 60,
    innodb_lock_wait_timeout = 60";
/// For how many seconds to wait for another process that migrates.
const LOCK_SECONDS: u32 = 60;

fn made(table: &str) -> Made {
    Made {
        table: table.to_owned(),
        store: "MySql",
        tool: "mysql",
        known: MIGRATIONS.len(),
    }
}

/// All statements that make the schema, as a person may apply them.
pub(super) fn text(table: &str) -> String {
    let mut text = named(CREATE_VERSIONS, table);
    for (place, migration) in MIGRATIONS.iter().enumerate() {
        let _ = write!(
            text,
            "\n{}\n{};\n",
            named(migration, table),
            record(table, place + 1)
        );
    }
    text
}

/// Brings the schema up to date; processes that do it at once wait for each other.
pub(super) async fn migrate(connections: &Pool, table: &str) -> Result<(), sqlx::Error> {
    let mut lent = connections.lend().await?;
    run(&mut lent, PATIENT.to_owned()).await?;
    // Names of locks are the whole server's.
    let had: Option<i64> = sqlx::query_scalar(
        "SELECT GET_LOCK(CONCAT('delayline ', LEFT(SHA2(CONCAT(DATABASE(), ' ', ?), 256), 32)), ?)",
    )
    .bind(table.to_owned())
    .bind(LOCK_SECONDS)
    .fetch_one(&mut *lent)
    .await?;
    if had != Some(1) {
        let (made, within) = (made(table), LOCK_SECONDS);
        return Err(Unfit::Busy { made, within }.into());
    }
    refuse_foreign(&mut lent, table).await?;
    run(&mut lent, named(CREATE_VERSIONS, table)).await?;
    let found = version(&mut lent, table).await?;
    made(table).check_known(found)?;
    for (version, migration) in (1..).zip(MIGRATIONS).skip(found) {
        run(&mut lent, named(migration, table)).await?;
        run(&mut lent, record(table, version)).await?;
    }
    // With the connection goes the lock.
    drop(lent);
    Ok(())
}

/// Fails unless the schema is there, of a version that this release works on.
pub(super) async fn check(connections: &Pool, table: &str) -> Result<(), sqlx::Error> {
    let mut lent = connections.lend().await?;
    let found = match version(&mut lent, table).await {
        Err(error) if errors::is_missing_table(&error) => 0,
        found => found?,
    };
    refuse_foreign(&mut lent, table).await?;
    lent.give_back();
    Ok(made(table).check(Some(found).filter(|found| *found > 0))?)
}

/// Fails if there is a table of that name without columns that ours has from the first version on: it would be taken for
/// ours, as each statement of a migration may be repeated.
async fn refuse_foreign(connection: &mut MySqlConnection, table: &str) -> Result<(), sqlx::Error> {
    let found: Option<(i64, i64)> = sqlx::query_as(
        "SELECT COUNT(*), CAST(SUM(column_name IN ('id', 'kind', 'state', 'planned_at', 'wake_at', 'live_key')) AS SIGNED)
        FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ? HAVING COUNT(*) > 0",
    )
    .bind(table.to_owned())
    .fetch_optional(connection)
    .await?;
    match found {
        Some((_, ours)) if ours < 6 => Err(Unfit::Foreign(made(table)).into()),
        _ => Ok(()),
    }
}

async fn version(connection: &mut MySqlConnection, table: &str) -> Result<usize, sqlx::Error> {
    let query = format!("SELECT CAST(COALESCE(MAX(version), 0) AS SIGNED) FROM {table}_migrations");
    let found: i64 = sqlx::query_scalar(AssertSqlSafe(query))
        .fetch_one(connection)
        .await?;
    Ok(usize::try_from(found).unwrap_or(0))
}

async fn run(connection: &mut MySqlConnection, sql: String) -> Result<(), sqlx::Error> {
    connection.execute(AssertSqlSafe(sql)).await?;
    Ok(())
}

fn named(sql: &str, table: &str) -> String {
    sql.replace("delayline_tasks", table)
}

fn record(table: &str, version: usize) -> String {
    format!(
        "INSERT IGNORE INTO {table}_migrations (version, applied_at)
    VALUES ({version}, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"
    )
}
