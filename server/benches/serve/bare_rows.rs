//! The least that a database must do to hold tasks: one table, and one statement for all rows that wait.

use std::str::FromStr as _;
use std::sync::Arc;

use delayline::clock::Clock;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{PgPool, QueryBuilder, SqlitePool};
use tokio::sync::{Mutex, mpsc, oneshot};
use uuid::Uuid;

use crate::{Error, KIND};

/// The name of the table.
pub(crate) const TABLE: &str = "bare_tasks";
/// How many rows go into one statement.
const MOST: usize = 500;
/// How many callers may wait in the queue.
const QUEUED: usize = 4_096;
/// The time that rows carry; it is not used.
const TIME: i64 = 4_000_000_000_000;

#[derive(Debug)]
pub(crate) struct Row {
    id: Uuid,
    key: String,
    payload: Vec<u8>,
}

impl Row {
    pub(crate) fn new(key: String, payload: Vec<u8>) -> Self {
        // As the library makes them: in the order of time, which is where an index grows.
        let id = Clock::system().new_id();
        Self {
            id: Uuid::from_bytes(*id.as_bytes()),
            key,
            payload,
        }
    }
}

/// The table.
#[derive(Clone, Debug)]
enum Rows {
    /// One connection, as SQLite has one writer: more would only wait for its lock.
    Sqlite(SqlitePool),
    /// Two: one works while the answer of the other travels.
    Postgres(PgPool),
}

const SQLITE: &str = "
    CREATE TABLE bare_tasks (id BLOB PRIMARY KEY, kind TEXT NOT NULL, key TEXT, state INTEGER NOT NULL,
        due_at INTEGER NOT NULL, wake_at INTEGER NOT NULL, payload BLOB NOT NULL);
    CREATE INDEX bare_wake ON bare_tasks (state, wake_at);
    CREATE UNIQUE INDEX bare_live ON bare_tasks (kind, key) WHERE state IN (0, 1);";

const POSTGRES: &str = "
    CREATE TABLE bare_tasks (id uuid PRIMARY KEY, kind text NOT NULL, key text, state smallint NOT NULL,
        due_at bigint NOT NULL, wake_at bigint NOT NULL, payload bytea NOT NULL);
    CREATE INDEX bare_wake ON bare_tasks (state, wake_at);
    CREATE UNIQUE INDEX bare_live ON bare_tasks (kind, key) WHERE state IN (0, 1);";

impl Rows {
    async fn create(url: &str) -> Result<Self, Error> {
        if url.starts_with("sqlite:") {
            let options = SqliteConnectOptions::from_str(url)?
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Full)
                // One for each number of rows.
                .statement_cache_capacity(MOST);
            let pool = SqlitePoolOptions::new()
                .max_connections(1)
                .connect_with(options)
                .await?;
            sqlx::raw_sql(SQLITE).execute(&pool).await?;
            return Ok(Self::Sqlite(pool));
        }
        let pool = PgPoolOptions::new().max_connections(2).connect(url).await?;
        sqlx::raw_sql(POSTGRES).execute(&pool).await?;
        Ok(Self::Postgres(pool))
    }

    fn writers(&self) -> usize {
        match self {
            Self::Sqlite(_) => 1,
            Self::Postgres(_) => 2,
        }
    }

    async fn insert(&self, rows: Vec<Row>) -> Result<(), Error> {
        match self {
            Self::Sqlite(pool) => {
                let mut query = QueryBuilder::new(
                    "INSERT INTO bare_tasks (id, kind, key, state, due_at, wake_at, payload) ",
                );
                query.push_values(rows, |mut values, row| {
                    values.push_bind(row.id.as_bytes().to_vec()).push_bind(KIND);
                    values
                        .push_bind(row.key)
                        .push("0")
                        .push_bind(TIME)
                        .push_bind(TIME);
                    values.push_bind(row.payload);
                });
                query.build().execute(pool).await?;
            }
            Self::Postgres(pool) => {
                let mut columns = (Vec::new(), Vec::new(), Vec::new());
                for Row { id, key, payload } in rows {
                    columns.0.push(id);
                    columns.1.push(key);
                    columns.2.push(payload);
                }
                sqlx::query(
                    "INSERT INTO bare_tasks (id, kind, key, state, due_at, wake_at, payload) \
                     SELECT id, $4, key, 0, $5, $5, payload FROM unnest($1::uuid[], $2::text[], $3::bytea[]) \
                     AS r (id, key, payload)",
                )
                .bind(columns.0)
                .bind(columns.1)
                .bind(columns.2)
                .bind(KIND)
                .bind(TIME)
                .execute(pool)
                .await?;
            }
        }
        Ok(())
    }
}

/// Rows of one caller, who waits until they are durable.
#[derive(Debug)]
struct Waiting {
    rows: Vec<Row>,
    durable: oneshot::Sender<()>,
}

/// Where rows are written. A cheap handle.
#[derive(Clone, Debug)]
pub(crate) struct Writer(mpsc::Sender<Waiting>);

impl Writer {
    /// Makes the table, and writes into it until the last handle is gone.
    pub(crate) async fn start(url: &str) -> Result<Self, Error> {
        let rows = Rows::create(url).await?;
        let (queue, waiting) = mpsc::channel(QUEUED);
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..rows.writers() {
            let (rows, waiting) = (rows.clone(), Arc::clone(&waiting));
            tokio::spawn(async move {
                // The waiting callers learn of it.
                if let Err(error) = write(&rows, &waiting).await {
                    eprintln!("the rows could not be written: {error}");
                }
            });
        }
        Ok(Self(queue))
    }

    /// Returns when they are durable.
    pub(crate) async fn write(&self, rows: Vec<Row>) -> Result<(), Error> {
        let (durable, is_durable) = oneshot::channel();
        self.0.send(Waiting { rows, durable }).await?;
        Ok(is_durable.await?)
    }
}

async fn write(rows: &Rows, waiting: &Mutex<mpsc::Receiver<Waiting>>) -> Result<(), Error> {
    loop {
        let (mut batch, mut callers) = (Vec::new(), Vec::new());
        {
            let mut waiting = waiting.lock().await;
            let mut next = waiting.recv().await;
            if next.is_none() {
                return Ok(());
            }
            while let Some(Waiting { rows, durable }) = next {
                batch.extend(rows);
                callers.push(durable);
                next = match batch.len() < MOST {
                    true => waiting.try_recv().ok(),
                    false => None,
                };
            }
        }
        rows.insert(batch).await?;
        for durable in callers {
            // A caller that has gone away does not want to know.
            let _ = durable.send(());
        }
    }
}
