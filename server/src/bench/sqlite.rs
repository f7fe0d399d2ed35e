//! SQLite: a file of the run's own beside the one that is named, and bare statements in another.

use std::path::PathBuf;
use std::sync::Arc;

use delayline::store::SqliteStore;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection as _, QueryBuilder, SqliteConnection, SqlitePool};

use super::Error;
use super::figure::Measured;
use super::idle;
use super::known::{self, Rows};
use super::ledger::{Ledger, ServerClock};
use super::names::{Ids, Names};
use super::ours::Ours;
use super::side::{Item, KIND, PAYLOAD, Pending, Place, SOON, Side, Verb, key};

const CREATE: &str = "
    CREATE TABLE bare (id BLOB PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, state INTEGER NOT NULL,
        due_at INTEGER NOT NULL, wake_at INTEGER NOT NULL, payload BLOB NOT NULL);
    CREATE INDEX bare_wake ON bare (state, wake_at);
    CREATE UNIQUE INDEX bare_live ON bare (kind, key) WHERE state IN (0, 1);";
/// The live rows of a key, by their index.
const LIVE: &str = "state IN (0, 1) AND +state = 0 AND kind = ?1 AND key";
/// The rows of the ids in a JSON array.
const KNOWN: &str = "id IN (SELECT unhex(value) FROM json_each(?1))";

/// A folder.
pub(crate) struct Sqlite {
    folder: PathBuf,
    names: Names,
}

impl Sqlite {
    /// In the folder of the file that somebody has named: what matters is the disk.
    pub(crate) fn beside(file: PathBuf) -> Result<Self, String> {
        let folder = match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => ".".into(),
        };
        if !folder.is_dir() {
            return Err("--store is not shown, as it may hold a password: allowed is a file in a folder that is there".to_owned());
        }
        let names = Names::new();
        Ok(Self { folder, names })
    }

    fn file(&self) -> PathBuf {
        self.folder.join(self.names.next() + ".db")
    }
}

impl Place for Sqlite {
    type Limit = Bare;
    type Ours = Ours;

    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn limit(&self) -> Result<Bare, Error> {
        let options = SqliteConnectOptions::new()
            .filename(self.file())
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        // One connection, as SQLite has one writer: more would only wait for its lock.
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_with(options)
            .await?;
        sqlx::raw_sql(CREATE).execute(&pool).await?;
        Ok(Bare {
            pool: Arc::new(pool),
            ids: Ids::new(),
        })
    }

    async fn ours(&self) -> Result<Ours, Error> {
        Ours::over(Arc::new(SqliteStore::open(self.file()).await?))
    }

    async fn version(&self) -> Result<String, Error> {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
        Ok(sqlx::query_scalar("SELECT sqlite_version()")
            .fetch_one(&mut connection)
            .await?)
    }

    /// How often it is asked nobody counts: there is no server.
    async fn idle(&self, tasks: usize) -> Result<Vec<Measured>, Error> {
        let ours = self.ours().await?;
        idle::measure(ours.clone(), ours, tasks, &async || Ok(None)).await
    }

    async fn clean(&self) -> Result<(), Error> {
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            // With what SQLite keeps beside a file.
            if entry.file_name().to_string_lossy().starts_with(self.names.run())
                && let Err(error) = std::fs::remove_file(entry.path())
                // SQLite removes some itself when the last connection is closed.
                && error.kind() != std::io::ErrorKind::NotFound
            {
                return Err(error.into());
            }
        }
        Ok(())
    }
}

/// A bare table.
#[derive(Clone)]
pub(crate) struct Bare {
    pool: Arc<SqlitePool>,
    ids: Ids,
}

impl Bare {
    async fn insert(&self, items: &[Item]) -> Result<usize, Error> {
        let mut query =
            QueryBuilder::new("INSERT INTO bare (id, kind, key, state, due_at, wake_at, payload) ");
        query.push_values(items, |mut row, item| {
            row.push_bind(self.ids.of(item.number).to_vec())
                .push_bind(KIND)
                .push_bind(item.key());
            row.push("0")
                .push_bind(item.due)
                .push_bind(item.due)
                .push_bind(&PAYLOAD[..]);
        });
        Ok(query.build().execute(&*self.pool).await?.rows_affected() as usize)
    }

    fn ids(&self, numbers: &[usize]) -> String {
        let hex = |number: &usize| format!("\"{:032x}\"", u128::from_be_bytes(self.ids.of(*number)));
        format!("[{}]", numbers.iter().map(hex).collect::<Vec<_>>().join(","))
    }
}

fn keys(items: &[Item]) -> String {
    let keys = items.iter().map(|item| format!("\"{}\"", key(item.number)));
    format!("[{}]", keys.collect::<Vec<_>>().join(","))
}

impl Rows for Bare {
    async fn claim(&self, numbers: &[usize]) -> Result<usize, Error> {
        let claim = sqlx::AssertSqlSafe(format!(
            "UPDATE bare SET state = 1, wake_at = wake_at + 30000 WHERE {KNOWN} AND +state = 0 RETURNING id, payload"
        ));
        let claimed: Vec<(Vec<u8>, Vec<u8>)> = sqlx::query_as(claim)
            .bind(self.ids(numbers))
            .fetch_all(&*self.pool)
            .await?;
        Ok(claimed.len())
    }

    async fn finish(&self, numbers: &[usize]) -> Result<usize, Error> {
        let finish = sqlx::AssertSqlSafe(format!("UPDATE bare SET state = 2 WHERE {KNOWN} AND +state = 1"));
        let done = sqlx::query(finish)
            .bind(self.ids(numbers))
            .execute(&*self.pool)
            .await?;
        Ok(done.rows_affected() as usize)
    }
}

impl Side for Bare {
    async fn apply(&self, verb: Verb, items: &[Item]) -> Result<usize, Error> {
        let set = match verb {
            Verb::Add => return self.insert(items).await,
            Verb::Cancel => "state = 4",
            Verb::Move => "due_at = ?3, wake_at = ?3",
        };
        let (is, named) = match items {
            [item] => ("= ?2", item.key()),
            items => ("IN (SELECT value FROM json_each(?2))", keys(items)),
        };
        let change = sqlx::AssertSqlSafe(format!("UPDATE bare SET {set} WHERE {LIVE} {is}"));
        let mut change = sqlx::query(change).bind(KIND).bind(named);
        if verb == Verb::Move {
            change = change.bind(items.first().map(|item| item.due));
        }
        Ok(change.execute(&*self.pool).await?.rows_affected() as usize)
    }

    async fn drain(&self, ledger: &Arc<Ledger>) -> Result<usize, Error> {
        known::drain(self, ledger).await
    }

    async fn pending(&self) -> Result<Pending, Error> {
        let soon = super::ledger::now_micros() / 1_000 + SOON;
        let count = "SELECT count(*), coalesce(sum(wake_at <= ?1), 0) FROM bare WHERE state = 0";
        let (all, soon): (i64, i64) = sqlx::query_as(count).bind(soon).fetch_one(&*self.pool).await?;
        Ok(Pending {
            soon: soon as usize,
            all: all as usize,
        })
    }

    async fn clock(&self) -> Result<ServerClock, Error> {
        Ok(ServerClock::default())
    }

    async fn close(self) -> Result<(), Error> {
        self.pool.close().await;
        Ok(())
    }
}
