//! The databases: a store, and bare statements, on a new table each.

#[cfg(any(feature = "postgres", feature = "mysql"))]
use std::sync::atomic::{AtomicUsize, Ordering};

use delayline::store::Store;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::limit::{Limit, all};
use crate::{Error, KIND};

/// One database with one new table.
pub(crate) trait Side: Sized {
    const NAME: &'static str;
    type Limit: Limit;

    async fn fresh(place: &str) -> Result<Self, Error>;
    fn store(&self) -> impl Store + Clone + 'static;
    async fn limit(&self, connections: usize) -> Result<Self::Limit, Error>;
    async fn remove(self) -> Result<(), Error>;
}

/// A name that no other run, and no other turn of this one, has.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn new_table() -> String {
    static TABLES: AtomicUsize = AtomicUsize::new(0);
    let number = TABLES.fetch_add(1, Ordering::Relaxed);
    format!("bench_{}_{number}", std::process::id())
}

/// The time that bare rows carry; nobody looks at it.
const TIME: i64 = 4_000_000_000_000;

#[cfg(feature = "sqlite")]
pub(crate) use sqlite::Sqlite;

#[cfg(feature = "sqlite")]
mod sqlite {
    use std::sync::Arc;

    use delayline::store::SqliteStore;
    use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
    use sqlx::{QueryBuilder, SqlitePool};
    use tempfile::TempDir;

    use super::*;

    pub(crate) struct Sqlite {
        folder: TempDir,
        store: SqliteStore,
    }

    #[derive(Clone)]
    pub(crate) struct Bare(Arc<SqlitePool>);

    impl Side for Sqlite {
        const NAME: &'static str = "SQLite (WAL, synchronous=FULL)";
        type Limit = Bare;

        async fn fresh(_place: &str) -> Result<Self, Error> {
            let folder = tempfile::tempdir()?;
            let store = SqliteStore::open(folder.path().join("bench.db")).await?;
            Ok(Self { folder, store })
        }

        fn store(&self) -> impl Store + Clone + 'static {
            self.store.clone()
        }

        /// One connection, as SQLite has one writer: more would only wait for its lock.
        async fn limit(&self, _connections: usize) -> Result<Bare, Error> {
            let options = SqliteConnectOptions::new()
                .filename(self.folder.path().join("bench.db"))
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Full);
            let pool = SqlitePoolOptions::new()
                .max_connections(1)
                .connect_with(options)
                .await?;
            Ok(Bare(Arc::new(pool)))
        }

        async fn remove(self) -> Result<(), Error> {
            Ok(self.folder.close()?)
        }
    }

    impl Limit for Bare {
        async fn insert(&self, ids: &[Uuid]) -> Result<(), Error> {
            let mut query = QueryBuilder::new(
                "INSERT INTO delayline_tasks (id, kind, state, version, due_at, planned_at, wake_at, attempt, hop, \
                 created_at, updated_at, headers, payload) ",
            );
            query.push_values(ids, |mut row, id| {
                row.push_bind(id.as_bytes().to_vec()).push_bind(KIND).push("0, 1");
                row.push_bind(TIME).push_bind(TIME).push_bind(TIME).push("0, 0");
                row.push_bind(TIME)
                    .push_bind(TIME)
                    .push("'{}'")
                    .push_bind(vec![b'x'; 100]);
            });
            let done = query.build().execute(&*self.0).await?;
            all(done.rows_affected() as usize, ids)
        }

        async fn claim(&self, ids: &[Uuid]) -> Result<(), Error> {
            let claimed: Vec<(Vec<u8>, Vec<u8>)> = sqlx::query_as(
                "UPDATE delayline_tasks SET state = 1, version = version + 1, attempt = attempt + 1, owner = 'bench', \
                 wake_at = ?2, updated_at = ?2 WHERE id IN (SELECT unhex(value) FROM json_each(?1)) AND state = 0 \
                 RETURNING id, payload",
            )
            .bind(json(ids))
            .bind(TIME)
            .fetch_all(&*self.0)
            .await?;
            all(claimed.len(), ids)
        }

        async fn finish(&self, ids: &[Uuid]) -> Result<(), Error> {
            let done = sqlx::query(
                "UPDATE delayline_tasks SET state = 2, version = version + 1, wake_at = ?2, finished_at = ?2, \
                 updated_at = ?2 WHERE id IN (SELECT unhex(value) FROM json_each(?1)) AND state = 1",
            )
            .bind(json(ids))
            .bind(TIME)
            .execute(&*self.0)
            .await?;
            all(done.rows_affected() as usize, ids)
        }
    }

    fn json(ids: &[Uuid]) -> String {
        let ids: Vec<_> = ids.iter().map(|id| format!("\"{}\"", id.simple())).collect();
        format!("[{}]", ids.join(","))
    }
}

#[cfg(feature = "postgres")]
pub(crate) use postgres::Postgres;

#[cfg(feature = "postgres")]
mod postgres {
    use std::sync::Arc;

    use delayline::store::PostgresStore;
    use sqlx::PgPool;
    use sqlx::postgres::PgPoolOptions;

    use super::*;

    pub(crate) struct Postgres {
        url: String,
        table: String,
        store: PostgresStore,
    }

    #[derive(Clone)]
    pub(crate) struct Bare {
        pool: PgPool,
        insert: Arc<str>,
        claim: Arc<str>,
        finish: Arc<str>,
    }

    impl Side for Postgres {
        const NAME: &'static str = "PostgreSQL";
        type Limit = Bare;

        async fn fresh(place: &str) -> Result<Self, Error> {
            let (url, table) = (place.to_owned(), new_table());
            let store = PostgresStore::builder(url.parse()?)
                .table(&table)
                .connect()
                .await?;
            store.migrate().await?;
            Ok(Self { url, table, store })
        }

        fn store(&self) -> impl Store + Clone + 'static {
            self.store.clone()
        }

        async fn limit(&self, connections: usize) -> Result<Bare, Error> {
            let pool = PgPoolOptions::new()
                .max_connections(connections as u32)
                .min_connections(connections as u32)
                .connect(&self.url)
                .await?;
            let table = &self.table;
            let insert = format!(
                "INSERT INTO {table} (id, kind, state, version, due_at, planned_at, wake_at, attempt, hop, created_at, \
                 updated_at, headers, payload) SELECT id, '{KIND}', 0, 1, $2, $2, $2, 0, 0, $2, $2, '{{}}', payload \
                 FROM unnest($1::uuid[], $3::bytea[]) AS r (id, payload)"
            );
            let claim = format!(
                "UPDATE {table} SET state = 1, version = version + 1, attempt = attempt + 1, owner = 'bench', \
                 wake_at = $2, updated_at = $2 WHERE id = ANY($1) AND state = 0 RETURNING id, payload"
            );
            let finish = format!(
                "UPDATE {table} SET state = 2, version = version + 1, wake_at = $2, finished_at = $2, updated_at = $2 \
                 WHERE id = ANY($1) AND state = 1"
            );
            Ok(Bare {
                pool,
                insert: insert.into(),
                claim: claim.into(),
                finish: finish.into(),
            })
        }

        async fn remove(self) -> Result<(), Error> {
            let pool = PgPool::connect(&self.url).await?;
            let drop = format!("DROP TABLE {0}, {0}_migrations", self.table);
            sqlx::query(AssertSqlSafe(drop)).execute(&pool).await?;
            Ok(())
        }
    }

    impl Limit for Bare {
        async fn insert(&self, ids: &[Uuid]) -> Result<(), Error> {
            let done = sqlx::query(AssertSqlSafe(self.insert.clone()))
                .bind(ids.to_vec())
                .bind(TIME)
                .bind(vec![vec![b'x'; 100]; ids.len()])
                .execute(&self.pool)
                .await?;
            all(done.rows_affected() as usize, ids)
        }

        async fn claim(&self, ids: &[Uuid]) -> Result<(), Error> {
            let claimed: Vec<(Uuid, Vec<u8>)> = sqlx::query_as(AssertSqlSafe(self.claim.clone()))
                .bind(ids.to_vec())
                .bind(TIME)
                .fetch_all(&self.pool)
                .await?;
            all(claimed.len(), ids)
        }

        async fn finish(&self, ids: &[Uuid]) -> Result<(), Error> {
            let done = sqlx::query(AssertSqlSafe(self.finish.clone()))
                .bind(ids.to_vec())
                .bind(TIME)
                .execute(&self.pool)
                .await?;
            all(done.rows_affected() as usize, ids)
        }
    }
}

#[cfg(feature = "mysql")]
pub(crate) use mysql::MySql;

#[cfg(feature = "mysql")]
mod mysql {
    use delayline::store::MySqlStore;
    use sqlx::mysql::MySqlPoolOptions;
    use sqlx::{MySqlPool, QueryBuilder};

    use super::*;

    pub(crate) struct MySql {
        url: String,
        table: String,
        store: MySqlStore,
    }

    #[derive(Clone)]
    pub(crate) struct Bare {
        pool: MySqlPool,
        table: String,
    }

    impl Side for MySql {
        const NAME: &'static str = "MariaDB or MySQL";
        type Limit = Bare;

        async fn fresh(place: &str) -> Result<Self, Error> {
            let (url, table) = (place.to_owned(), new_table());
            let store = MySqlStore::builder(url.parse()?).table(&table).connect().await?;
            store.migrate().await?;
            Ok(Self { url, table, store })
        }

        fn store(&self) -> impl Store + Clone + 'static {
            self.store.clone()
        }

        async fn limit(&self, connections: usize) -> Result<Bare, Error> {
            let pool = MySqlPoolOptions::new()
                .max_connections(connections as u32)
                .min_connections(connections as u32)
                .connect(&self.url)
                .await?;
            let table = self.table.clone();
            Ok(Bare { pool, table })
        }

        async fn remove(self) -> Result<(), Error> {
            let pool = MySqlPool::connect(&self.url).await?;
            let drop = format!("DROP TABLE {0}, {0}_migrations", self.table);
            sqlx::query(AssertSqlSafe(drop)).execute(&pool).await?;
            Ok(())
        }
    }

    impl Limit for Bare {
        async fn insert(&self, ids: &[Uuid]) -> Result<(), Error> {
            let mut query = QueryBuilder::new(format!(
                "INSERT INTO {} (id, kind, state, version, due_at, planned_at, wake_at, attempt, hop, created_at, \
                 updated_at, headers, payload) ",
                self.table
            ));
            query.push_values(ids, |mut row, id| {
                row.push_bind(id.as_bytes().to_vec()).push_bind(KIND).push("0, 1");
                row.push_bind(TIME).push_bind(TIME).push_bind(TIME).push("0, 0");
                row.push_bind(TIME)
                    .push_bind(TIME)
                    .push("'{}'")
                    .push_bind(vec![b'x'; 100]);
            });
            let done = query.build().execute(&self.pool).await?;
            all(done.rows_affected() as usize, ids)
        }

        async fn claim(&self, ids: &[Uuid]) -> Result<(), Error> {
            let mut tx = self.pool.begin().await?;
            let mut query =
                QueryBuilder::new(format!("SELECT id, payload FROM {} WHERE id IN (", self.table));
            push(&mut query, ids);
            query.push(" AND state = 0 FOR UPDATE SKIP LOCKED");
            let claimed: Vec<(Vec<u8>, Vec<u8>)> = query.build_query_as().fetch_all(&mut *tx).await?;
            let mut query = QueryBuilder::new(format!(
                "UPDATE {} SET state = 1, version = version + 1, attempt = attempt + 1, owner = 'bench', \
                 wake_at = {TIME}, updated_at = {TIME} WHERE id IN (",
                self.table
            ));
            push(&mut query, ids);
            query.build().execute(&mut *tx).await?;
            tx.commit().await?;
            all(claimed.len(), ids)
        }

        async fn finish(&self, ids: &[Uuid]) -> Result<(), Error> {
            let mut query = QueryBuilder::new(format!(
                "UPDATE {} SET state = 2, version = version + 1, wake_at = {TIME}, finished_at = {TIME}, \
                 updated_at = {TIME} WHERE id IN (",
                self.table
            ));
            push(&mut query, ids);
            query.push(" AND state = 1");
            let done = query.build().execute(&self.pool).await?;
            all(done.rows_affected() as usize, ids)
        }
    }

    fn push(query: &mut QueryBuilder<sqlx::MySql>, ids: &[Uuid]) {
        let mut list = query.separated(", ");
        for id in ids {
            list.push_bind(id.as_bytes().to_vec());
        }
        query.push(")");
    }
}
