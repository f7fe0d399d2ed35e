//! The schema, and how a file gets the newest one.

use sqlx::SqliteConnection;

use super::File;

/// Each takes the schema from the version that is its place in the list to the next. Never edited, only added to:
/// files out there have them already.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_tasks.sql")];

/// The file is an application's own as well, so its `user_version` is not ours to use.
const CREATE_VERSIONS: &str = "CREATE TABLE IF NOT EXISTS delayline_migrations (
    version    INTEGER PRIMARY KEY,
    applied_at INTEGER NOT NULL -- milliseconds since 1970-01-01T00:00:00Z
)";
const VERSION: &str = "SELECT coalesce(max(version), 0) FROM delayline_migrations";
const IS_THERE: &str = "SELECT count(*) FROM sqlite_schema WHERE name = 'delayline_tasks'";
const RECORD: &str = "INSERT INTO delayline_migrations (version, applied_at) VALUES (?1, ?2)";

/// The file was written by another release.
#[derive(Debug, thiserror::Error)]
#[error(
    "the file has schema version {found}, this release knows versions up to {known}: {}",
    if *found > 0 { "use a later release" } else { "it is another file than the one that was opened" }
)]
struct Other {
    found: i64,
    known: usize,
}

/// The file has a table of the same name that is another's.
#[derive(Debug, thiserror::Error)]
#[error(
    "the file has a table delayline_tasks that Delayline has not made: use another file, or rename that table"
)]
struct Foreign;

/// All migrations, as a person would apply them.
pub(super) fn text() -> String {
    let mut text = format!("BEGIN;\n\n{CREATE_VERSIONS};\n\n");
    for (version, migration) in (1..).zip(MIGRATIONS) {
        text += &format!(
            "{migration}\nINSERT INTO delayline_migrations (version, applied_at) \
             VALUES ({version}, CAST(unixepoch('subsec') * 1000 AS INTEGER));\n\n"
        );
    }
    text + "COMMIT;\n"
}

/// Fails unless the schema is the one of this release.
pub(super) async fn check(file: &File) -> Result<(), sqlx::Error> {
    let mut reading = file.readers.lend().await?;
    let found: i64 = sqlx::query_scalar(VERSION).fetch_one(&mut *reading).await?;
    reading.give_back();
    let known = MIGRATIONS.len();
    match usize::try_from(found) {
        Ok(found) if found == known => Ok(()),
        _ => Err(sqlx::Error::Configuration(Other { found, known }.into())),
    }
}

/// Brings the schema up to date; the caller has begun a transaction, and commits it.
pub(super) async fn migrate(connection: &mut SqliteConnection, now: i64) -> Result<(), sqlx::Error> {
    sqlx::query(CREATE_VERSIONS).execute(&mut *connection).await?;
    let found: i64 = sqlx::query_scalar(VERSION).fetch_one(&mut *connection).await?;
    let applied = usize::try_from(found).unwrap_or(0);
    let Some(missing) = MIGRATIONS.get(applied..) else {
        let known = MIGRATIONS.len();
        return Err(sqlx::Error::Configuration(Other { found, known }.into()));
    };
    if found == 0 {
        let there: i64 = sqlx::query_scalar(IS_THERE).fetch_one(&mut *connection).await?;
        if there > 0 {
            return Err(sqlx::Error::Configuration(Foreign.into()));
        }
    }
    for (version, &migration) in (found + 1..).zip(missing) {
        sqlx::raw_sql(migration).execute(&mut *connection).await?;
        let record = sqlx::query(RECORD).bind(version).bind(now);
        record.execute(&mut *connection).await?;
    }
    Ok(())
}
