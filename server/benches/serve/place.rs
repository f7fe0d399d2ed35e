//! Where the tasks are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use delayline::clock::Clock;
use delayline::store::{PostgresStore, RedisStore, SqliteStore, Store};
use delayline::{NewTask, Scheduler};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use tempfile::TempDir;

use crate::{Error, KIND};

const BATCH: usize = 500;

#[derive(Clone, Debug)]
pub(crate) enum Place {
    Sqlite,
    Postgres(String),
    Redis(String),
}

impl Place {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres(_) => "PostgreSQL",
            Self::Redis(_) => "Redis",
        }
    }

    /// An empty one, whose tables are there.
    pub(crate) async fn fresh(&self) -> Result<Fresh, Error> {
        let folder = tempfile::tempdir()?;
        let url = match self {
            Self::Sqlite => format!("sqlite:{}", folder.path().join("tasks.db").display()),
            Self::Postgres(server) => new_database(server).await?,
            Self::Redis(server) => {
                let mut connection = redis::Client::open(server.as_str())?
                    .get_multiplexed_async_connection()
                    .await?;
                redis::cmd("FLUSHALL").exec_async(&mut connection).await?;
                server.clone()
            }
        };
        let place = self.clone();
        Ok(Fresh {
            url,
            place,
            _folder: folder,
        })
    }
}

/// Makes a database with a unique name, and the tables in it.
async fn new_database(server: &str) -> Result<String, Error> {
    static DATABASES: AtomicUsize = AtomicUsize::new(0);
    let number = DATABASES.fetch_add(1, Ordering::Relaxed);
    let name = format!("bench_{}_{number}", std::process::id());
    let mut connection = PgConnection::connect(server).await?;
    sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}")))
        .execute(&mut connection)
        .await?;
    let (before, _) = server
        .rsplit_once('/')
        .ok_or("a URL of PostgreSQL names a database")?;
    let url = format!("{before}/{name}");
    PostgresStore::connect(&url).await?.migrate().await?;
    Ok(url)
}

/// An empty place for one run.
pub(crate) struct Fresh {
    /// As a server's configuration has it.
    pub(crate) url: String,
    place: Place,
    _folder: TempDir,
}

impl Fresh {
    /// Schedules so many tasks for one time, and waits for nothing.
    pub(crate) async fn fill(&self, count: usize, after: Duration) -> Result<(), Error> {
        let scheduler = scheduler(&self.url).await?;
        let due = Clock::system().now().after(after);
        let task = |_| NewTask::from_bytes(KIND, [b'x'; 100]).at(due);
        for first in (0..count).step_by(BATCH) {
            let tasks: Vec<_> = (first..count.min(first + BATCH)).map(task).collect();
            scheduler.schedule_all(tasks).await?;
        }
        Ok(scheduler.close().await?)
    }

    /// Schedules so many tasks, and waits until they are due.
    pub(crate) async fn fill_with_due(&self, count: usize) -> Result<(), Error> {
        // Time enough to write them all before.
        let lead = Duration::from_secs(3 + count as u64 / 5_000);
        let begun = Instant::now();
        self.fill(count, lead).await?;
        let left = (begun + lead).checked_duration_since(Instant::now());
        let left = left.ok_or("writing the rows took longer than expected")?;
        tokio::time::sleep(left + Duration::from_millis(100)).await;
        Ok(())
    }

    /// Fails unless a table of a database has so many rows, each with a key of its own.
    pub(crate) async fn has(&self, table: &str, expected: usize) -> Result<(), Error> {
        let count = AssertSqlSafe(format!("SELECT count(*), count(DISTINCT key) FROM {table}"));
        let counted: (i64, i64) = match &self.place {
            Place::Sqlite => {
                let mut connection = SqliteConnection::connect(&self.url).await?;
                sqlx::query_as(count).fetch_one(&mut connection).await?
            }
            Place::Postgres(_) => {
                let mut connection = PgConnection::connect(&self.url).await?;
                sqlx::query_as(count).fetch_one(&mut connection).await?
            }
            Place::Redis(_) => return Err("the rows in a Redis are not counted".into()),
        };
        let expected = i64::try_from(expected)?;
        match counted == (expected, expected) {
            true => Ok(()),
            false => Err(format!(
                "{table} has {} rows of {} keys, and {expected} were written",
                counted.0, counted.1
            )
            .into()),
        }
    }

    pub(crate) async fn remove(self) -> Result<(), Error> {
        if let Place::Postgres(server) = &self.place
            && let Some((_, name)) = self.url.rsplit_once('/')
        {
            let mut connection = PgConnection::connect(server).await?;
            // With killed clients, whose sessions have not noticed it yet.
            sqlx::query(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)")))
                .execute(&mut connection)
                .await?;
        }
        Ok(())
    }
}

/// A scheduler over a store that is there, as a server has it.
pub(crate) async fn scheduler(url: &str) -> Result<Scheduler, Error> {
    let store: Arc<dyn Store> = match url.split_once(':') {
        Some(("sqlite", path)) => Arc::new(SqliteStore::open(path).await?),
        Some(("postgres", _)) => Arc::new(PostgresStore::connect(url).await?),
        _ => Arc::new(RedisStore::new(url)?),
    };
    Ok(Scheduler::builder(store).build()?)
}
