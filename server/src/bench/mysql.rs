//! MySQL and MariaDB: tables of the run's own, and bare statements.

use std::sync::Arc;

use delayline::store::MySqlStore;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions, MySqlSslMode};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySqlConnection, MySqlPool, QueryBuilder};

use super::Error;
use super::figure::Measured;
use super::idle;
use super::known::{self, Rows};
use super::ledger::{Ledger, ServerClock, now_micros};
use super::names::{Ids, Names};
use super::ours::Ours;
use super::relay::{Protocol, Relay};
use super::side::{Item, KIND, PAYLOAD, Pending, Place, SOON, Side, Verb};
use super::workload::CALLERS;

/// A database.
pub(crate) struct MySql {
    options: MySqlConnectOptions,
    names: Names,
}

impl MySql {
    pub(crate) fn new(options: MySqlConnectOptions) -> Self {
        let names = Names::new();
        Self { options, names }
    }

    /// The library's store in a new table, over connections as `options` say.
    async fn ours_with(&self, options: MySqlConnectOptions) -> Result<Ours, Error> {
        let store = MySqlStore::builder(options)
            .table(self.names.next())
            .connect()
            .await?;
        store.migrate().await?;
        Ours::over(Arc::new(store))
    }
}

impl Place for MySql {
    type Limit = Bare;
    type Ours = Ours;

    fn name(&self) -> &'static str {
        "mysql"
    }

    async fn limit(&self) -> Result<Bare, Error> {
        let pool = MySqlPoolOptions::new()
            .max_connections(CALLERS as u32)
            .min_connections(CALLERS as u32)
            .after_connect(|connection, _| {
                Box::pin(async move {
                    // As the library has it: by default batches would lock the gaps between each other's rows.
                    connection
                        .execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                        .await
                        .map(drop)
                })
            })
            .connect_with(self.options.clone())
            .await?;
        let table = self.names.next();
        let create = format!(
            "CREATE TABLE {table} (id BINARY(16) NOT NULL, kind VARBINARY(100) NOT NULL, `key` VARBINARY(255) NOT NULL,
                state TINYINT UNSIGNED NOT NULL, due_at BIGINT NOT NULL, wake_at BIGINT NOT NULL,
                payload LONGBLOB NOT NULL,
                live_key VARBINARY(255) AS (CASE WHEN state IN (0, 1) THEN `key` END) STORED,
                PRIMARY KEY (id), UNIQUE KEY live (kind, live_key), KEY wake (state, wake_at)) ENGINE = InnoDB"
        );
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&pool).await?;
        Ok(Bare {
            pool,
            ids: Ids::new(),
            table: table.into(),
        })
    }

    async fn ours(&self) -> Result<Ours, Error> {
        self.ours_with(self.options.clone()).await
    }

    async fn version(&self) -> Result<String, Error> {
        let mut connection = MySqlConnection::connect_with(&self.options).await?;
        Ok(sqlx::query_scalar("SELECT version()")
            .fetch_one(&mut connection)
            .await?)
    }

    /// What is asked is counted on the way, unless that is encrypted or no port.
    async fn idle(&self, tasks: usize) -> Result<Vec<Measured>, Error> {
        let options = self.options.clone();
        let may_be_plain = matches!(
            options.get_ssl_mode(),
            MySqlSslMode::Disabled | MySqlSslMode::Preferred
        );
        if options.get_socket().is_some() || !may_be_plain {
            let ours = self.ours().await?;
            return idle::measure(ours.clone(), ours, tasks, &async || Ok(None)).await;
        }
        let relay = Relay::to(options.get_host(), options.get_port(), Protocol::MySql).await?;
        let options = options
            .host("127.0.0.1")
            .port(relay.port)
            .ssl_mode(MySqlSslMode::Disabled);
        let ours = self.ours_with(options).await?;
        idle::measure(ours.clone(), ours, tasks, &async || Ok(Some(relay.asked()))).await
    }

    async fn clean(&self) -> Result<(), Error> {
        let mut connection = MySqlConnection::connect_with(&self.options).await?;
        let find = "SELECT CAST(table_name AS CHAR) FROM information_schema.tables
            WHERE table_schema = DATABASE() AND LEFT(table_name, ?) = ?";
        let run = self.names.run();
        let tables: Vec<String> = sqlx::query_scalar(find)
            .bind(run.len() as i64)
            .bind(run)
            .fetch_all(&mut connection)
            .await?;
        for table in tables {
            sqlx::raw_sql(AssertSqlSafe(format!("DROP TABLE `{table}`")))
                .execute(&mut connection)
                .await?;
        }
        Ok(connection.close().await?)
    }
}

/// A bare table.
#[derive(Clone)]
pub(crate) struct Bare {
    pool: MySqlPool,
    ids: Ids,
    table: Arc<str>,
}

impl Bare {
    fn query(&self, before: &str, after: &str) -> QueryBuilder<sqlx::MySql> {
        QueryBuilder::new(format!("{before} {} {after}", self.table))
    }

    async fn insert(&self, items: &[Item]) -> Result<usize, Error> {
        let mut query = self.query(
            "INSERT INTO",
            "(id, kind, `key`, state, due_at, wake_at, payload) ",
        );
        query.push_values(items, |mut row, item| {
            row.push_bind(self.ids.of(item.number).to_vec())
                .push_bind(KIND)
                .push_bind(item.key());
            row.push("0")
                .push_bind(item.due)
                .push_bind(item.due)
                .push_bind(&PAYLOAD[..]);
        });
        Ok(query.build().execute(&self.pool).await?.rows_affected() as usize)
    }

    /// Adds the ids to a query that ends with `IN (`.
    fn push_ids(&self, query: &mut QueryBuilder<sqlx::MySql>, numbers: &[usize]) {
        let mut list = query.separated(", ");
        for &number in numbers {
            list.push_bind(self.ids.of(number).to_vec());
        }
        query.push(")");
    }
}

impl Rows for Bare {
    async fn claim(&self, numbers: &[usize]) -> Result<usize, Error> {
        let mut transaction = self.pool.begin().await?;
        let mut query = self.query("SELECT id, payload FROM", "WHERE id IN (");
        self.push_ids(&mut query, numbers);
        query.push(" AND state = 0 FOR UPDATE SKIP LOCKED");
        let claimed: Vec<(Vec<u8>, Vec<u8>)> = query.build_query_as().fetch_all(&mut *transaction).await?;
        let mut query = self.query("UPDATE", "SET state = 1, wake_at = wake_at + 30000 WHERE id IN (");
        self.push_ids(&mut query, numbers);
        query.build().execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(claimed.len())
    }

    async fn finish(&self, numbers: &[usize]) -> Result<usize, Error> {
        let mut query = self.query("UPDATE", "SET state = 2 WHERE id IN (");
        self.push_ids(&mut query, numbers);
        query.push(" AND state = 1");
        Ok(query.build().execute(&self.pool).await?.rows_affected() as usize)
    }
}

impl Side for Bare {
    async fn apply(&self, verb: Verb, items: &[Item]) -> Result<usize, Error> {
        let mut query = match verb {
            Verb::Add => return self.insert(items).await,
            Verb::Cancel => self.query("UPDATE", "SET state = 4"),
            Verb::Move => {
                let due = items.first().map(|item| item.due);
                let mut query = self.query("UPDATE", "SET due_at = ");
                query.push_bind(due).push(", wake_at = ").push_bind(due);
                query
            }
        };
        query
            .push(" WHERE kind = ")
            .push_bind(KIND)
            .push(" AND state = 0 AND live_key IN (");
        let mut list = query.separated(", ");
        for item in items {
            list.push_bind(item.key());
        }
        query.push(")");
        Ok(query.build().execute(&self.pool).await?.rows_affected() as usize)
    }

    async fn drain(&self, ledger: &Arc<Ledger>) -> Result<usize, Error> {
        known::drain(self, ledger).await
    }

    async fn pending(&self) -> Result<Pending, Error> {
        let mut query = QueryBuilder::new("SELECT count(*), count(CASE WHEN wake_at <= ");
        query.push_bind(now_micros() / 1_000 + SOON);
        query.push(format!(" THEN 1 END) FROM {} WHERE state = 0", self.table));
        let (all, soon): (i64, i64) = query.build_query_as().fetch_one(&self.pool).await?;
        Ok(Pending {
            soon: soon as usize,
            all: all as usize,
        })
    }

    /// Its times are this program's.
    async fn clock(&self) -> Result<ServerClock, Error> {
        Ok(ServerClock::default())
    }

    async fn close(self) -> Result<(), Error> {
        self.pool.close().await;
        Ok(())
    }
}
