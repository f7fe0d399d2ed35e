//! The schema, and how a database gets the newest one.

use sqlx::PgConnection;

use super::connections::{Database, Using, Writing};
use super::names::Names;

/// Each takes the schema from the version that is its place in the list to the next. Never edited, only added to:
/// databases out there have them already.
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

/// Why the table cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    #[error(
        "the schema of table {table} is not there: call `PostgresStore::migrate`, run `delayline migrate postgres`, or \
         apply what `delayline migrate postgres --print` prints"
    )]
    Missing { table: String },
    #[error(
        "table {table} is there, and Delayline has not made it, as there is no table of its migrations beside it: name \
         another one by `PostgresBuilder::table`, or `delayline migrate postgres --table`, or rename what is there"
    )]
    Foreign { table: String },
    #[error(
        "table {table} has schema version {found}, this release needs version {known}: call `PostgresStore::migrate`, \
         or run `delayline migrate postgres`"
    )]
    TooOld { table: String, found: i32, known: usize },
    #[error(
        "table {table} has schema version {found}, this release knows versions up to {known}: use a later release"
    )]
    TooNew { table: String, found: i32, known: usize },
    #[error(
        "the database's encoding is {found}, which lacks characters that kinds, keys and headers may have: allowed is {ENCODING} \
         (CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0)"
    )]
    Encoding { found: String },
}

impl From<Unfit> for sqlx::Error {
    fn from(unfit: Unfit) -> Self {
        Self::Configuration(unfit.into())
    }
}

/// Fails unless the schema is the one that this release knows.
pub(super) async fn check(database: &Database) -> Result<(), sqlx::Error> {
    let mut using = Using::lend(&database.callers).await?;
    let found = version(&mut using, &database.names).await?;
    using.give_back().await?;
    let table = database.names.full_name();
    let known = MIGRATIONS.len();
    let Some(found) = found else {
        return Err(Unfit::Missing { table }.into());
    };
    match applied(found) {
        applied if applied < known => Err(Unfit::TooOld { table, found, known }.into()),
        applied if applied > known => Err(Unfit::TooNew { table, found, known }.into()),
        _ => Ok(()),
    }
}

/// Brings the schema up to date.
pub(super) async fn migrate(database: &Database) -> Result<(), sqlx::Error> {
    // Nearly always it is, and then a service needs no right to create tables.
    if check(database).await.is_ok() {
        return Ok(());
    }
    let names = &database.names;
    let mut transaction = Writing::begin(&database.callers).await?;
    sqlx::raw_sql(PATIENT).execute(&mut *transaction).await?;
    sqlx::query(LOCK)
        .persistent(false)
        .bind(names.full_name())
        .execute(&mut *transaction)
        .await?;
    let found = version(&mut transaction, names).await?.unwrap_or(0);
    let Some(missing) = MIGRATIONS.get(applied(found)..) else {
        let (table, known) = (names.full_name(), MIGRATIONS.len());
        return Err(Unfit::TooNew { table, found, known }.into());
    };
    for (version, migration) in (found + 1..).zip(missing) {
        let script = step(version, migration);
        sqlx::raw_sql(names.fill(&script))
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
async fn version(connection: &mut PgConnection, names: &Names) -> Result<Option<i32>, sqlx::Error> {
    let (is_there, is_ours, encoding): (bool, bool, String) = sqlx::query_as(ARE_THERE)
        .persistent(false)
        .bind(names.full_name())
        .bind(names.text("{migrations}"))
        .fetch_one(&mut *connection)
        .await?;
    if encoding != ENCODING {
        return Err(Unfit::Encoding { found: encoding }.into());
    }
    if is_there && !is_ours {
        let table = names.full_name();
        return Err(Unfit::Foreign { table }.into());
    }
    if !is_there {
        return Ok(None);
    }
    let version = sqlx::query_scalar(names.fill(VERSION))
        .persistent(false)
        .fetch_one(connection)
        .await?;
    Ok(Some(version))
}

fn applied(version: i32) -> usize {
    usize::try_from(version).unwrap_or(0)
}
