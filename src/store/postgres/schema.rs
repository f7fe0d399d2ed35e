//! The schema, and how a database gets the newest one.

use sqlx::PgConnection;

use super::connections::Database;
use super::names::Names;
use crate::store::sql::{Made, Unfit};

/// Each takes the schema from the version that is its place in the list to the next. Never edited, only added to: databases out
/// there have them already, and the release before works on until its processes are replaced.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_tasks.sql")];

const CREATE_VERSIONS: &str =
    "-- Which versions of the schema have been applied, and when: milliseconds since 1970-01-01T00:00:00Z.
CREATE TABLE IF NOT EXISTS {migrations} (
    version    integer PRIMARY KEY,
    applied_at bigint  NOT NULL
);
";
const RECORD: &str =
    "INSERT INTO {migrations} (version, applied_at) VALUES ({version}, floor(extract(epoch FROM clock_timestamp()) * 1000));
";
/// By what is committed: what the server remembers of names may be from before the lock.
const ARE_THERE: &str = r#"SELECT coalesce(bool_or(t.name = $1), false), coalesce(bool_or(t.name = $2), false),
        current_setting('server_encoding')
    FROM (SELECT format('"%s"."%s"', replace(n.nspname, '"', '""'), c.relname) AS name
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace) t WHERE t.name IN ($1, $2)"#;
const VERSION: &str = "SELECT coalesce(max(version), 0) FROM {migrations}";
/// The one encoding that has all characters of kinds, keys and headers.
const ENCODING: &str = "UTF8";
/// A table may take long to be brought up to date, and another process that does so, too.
const PATIENT: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0";
/// One process at a time, for as long as its transaction lasts.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('delayline ' || $1::text, 0))";

/// The database cannot keep all texts.
#[derive(Debug, thiserror::Error)]
#[error(
    "the database's encoding is {0}, which lacks characters that kinds, keys and headers may have: allowed is {ENCODING} \
     (CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0)"
)]
struct Encoding(String);

fn made(names: &Names) -> Made {
    Made {
        table: names.full_name(),
        store: "Postgres",
        tool: "postgres",
        known: MIGRATIONS.len(),
    }
}

/// Fails unless the schema is one that this release works on.
pub(super) async fn check(database: &Database) -> Result<(), sqlx::Error> {
    let found = found(database).await?;
    Ok(made(&database.names).check(found)?)
}

async fn found(database: &Database) -> Result<Option<usize>, sqlx::Error> {
    let mut transaction = database.pools.callers.begin().await?;
    let found = version(&mut transaction, &database.names).await?;
    transaction.commit().await?;
    Ok(found)
}

/// Brings the schema up to date.
pub(super) async fn migrate(database: &Database) -> Result<(), sqlx::Error> {
    // Nearly always it is, and then a service needs no right to create tables.
    if matches!(found(database).await, Ok(Some(version)) if version == MIGRATIONS.len()) {
        return Ok(());
    }
    let names = &database.names;
    let mut transaction = database.pools.callers.begin().await?;
    sqlx::raw_sql(PATIENT).execute(&mut *transaction).await?;
    sqlx::query(LOCK)
        .persistent(false)
        .bind(names.full_name())
        .execute(&mut *transaction)
        .await?;
    let found = version(&mut transaction, names).await?.unwrap_or(0);
    made(names).check_known(found)?;
    for (version, migration) in (1..).zip(MIGRATIONS).skip(found) {
        sqlx::raw_sql(names.fill(&step(version, migration)))
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await
}

/// All migrations, for a person to apply.
pub(super) fn script(names: &Names) -> String {
    let steps = (1..)
        .zip(MIGRATIONS)
        .map(|(version, migration)| step(version, migration));
    names.text(&format!("BEGIN;\n\n{}COMMIT;\n", steps.collect::<String>()))
}

fn step(version: i32, migration: &str) -> String {
    let first = if version == 1 { CREATE_VERSIONS } else { "" };
    let record = RECORD.replace("{version}", &version.to_string());
    format!("{first}\n{migration}\n{record}\n")
}

/// The version of the schema; none if its table is not there, and an error if that is another's, or if the database cannot
/// keep all texts.
async fn version(connection: &mut PgConnection, names: &Names) -> Result<Option<usize>, sqlx::Error> {
    let (is_there, is_ours, encoding): (bool, bool, String) = sqlx::query_as(ARE_THERE)
        .persistent(false)
        .bind(names.full_name())
        .bind(names.text("{migrations}"))
        .fetch_one(&mut *connection)
        .await?;
    if encoding != ENCODING {
        return Err(sqlx::Error::Configuration(Encoding(encoding).into()));
    }
    if is_there && !is_ours {
        return Err(Unfit::Foreign(made(names)).into());
    }
    if !is_there {
        return Ok(None);
    }
    let version: i32 = sqlx::query_scalar(names.fill(VERSION))
        .persistent(false)
        .fetch_one(connection)
        .await?;
    Ok(Some(usize::try_from(version).unwrap_or(0)))
}
