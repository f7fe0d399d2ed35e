//! PostgreSQL: tables of the run's own, and bare statements.

use std::sync::Arc;

use delayline::store::PostgresStore;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};
use uuid::Uuid;

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
pub(crate) struct Postgres {
    options: PgConnectOptions,
    names: Names,
}

impl Postgres {
    pub(crate) fn new(options: PgConnectOptions) -> Self {
        let names = Names::new();
        Self { options, names }
    }

    /// The library's store in a new table, over connections as `options` say.
    async fn ours_with(&self, options: PgConnectOptions) -> Result<Ours, Error> {
        let store = PostgresStore::builder(options)
            .table(self.names.next())
            .connect()
            .await?;
        store.migrate().await?;
        Ours::over(Arc::new(store))
    }

    /// Has a command done with each table that this run has made.
    async fn with_each_table(&self, command: &str) -> Result<(), Error> {
        let mut connection = PgConnection::connect_with(&self.options).await?;
        let find = "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
            WHERE schemaname = current_schema() AND starts_with(tablename, $1)";
        let tables: Vec<String> = sqlx::query_scalar(find)
            .bind(self.names.run())
            .fetch_all(&mut connection)
            .await?;
        for table in tables {
            sqlx::raw_sql(AssertSqlSafe(format!("{command} {table}")))
                .execute(&mut connection)
                .await?;
        }
        Ok(connection.close().await?)
    }
}

impl Place for Postgres {
    type Limit = Bare;
    type Ours = Ours;

    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn limit(&self) -> Result<Bare, Error> {
        // A table without statistics looks small, and is not: whoever knows which rows he means goes through an index.
        let others = ["seqscan", "bitmapscan", "hashjoin", "mergejoin"];
        let by_index = others.map(|other| (format!("enable_{other}"), "off"));
        let pool = PgPoolOptions::new()
            .max_connections(CALLERS as u32)
            .min_connections(CALLERS as u32)
            .connect_with(self.options.clone().options(by_index))
            .await?;
        let table = self.names.next();
        let create = format!(
            "CREATE TABLE {table} (id uuid PRIMARY KEY, kind text NOT NULL, key text NOT NULL, state smallint NOT NULL,
                due_at bigint NOT NULL, wake_at bigint NOT NULL, payload bytea NOT NULL);
            CREATE INDEX {table}_wake ON {table} (state, wake_at);
            CREATE UNIQUE INDEX {table}_live ON {table} (kind, key) WHERE state IN (0, 1);"
        );
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&pool).await?;
        Ok(Bare {
            pool,
            ids: Ids::new(),
            statements: Arc::new(Statements::of(&table)),
        })
    }

    async fn ours(&self) -> Result<Ours, Error> {
        self.ours_with(self.options.clone()).await
    }

    async fn version(&self) -> Result<String, Error> {
        let mut connection = PgConnection::connect_with(&self.options).await?;
        Ok(sqlx::query_scalar("SHOW server_version")
            .fetch_one(&mut connection)
            .await?)
    }

    /// What is asked is counted on the way, unless that is encrypted or no port.
    async fn idle(&self, tasks: usize) -> Result<Vec<Measured>, Error> {
        let options = self.options.clone();
        let has_port = options.get_socket().is_none() && !options.get_host().starts_with('/');
        let may_be_plain = matches!(
            options.get_ssl_mode(),
            PgSslMode::Disable | PgSslMode::Allow | PgSslMode::Prefer
        );
        if !has_port || !may_be_plain {
            let ours = self.ours().await?;
            return idle::measure(ours.clone(), ours, tasks, &async || Ok(None)).await;
        }
        let relay = Relay::to(options.get_host(), options.get_port(), Protocol::Postgres).await?;
        let options = options
            .host("127.0.0.1")
            .port(relay.port)
            .ssl_mode(PgSslMode::Disable);
        let ours = self.ours_with(options).await?;
        idle::measure(ours.clone(), ours, tasks, &async || Ok(Some(relay.asked()))).await
    }

    /// Autovacuum would go through what was written, for minutes.
    async fn settle(&self) -> Result<(), Error> {
        self.with_each_table("VACUUM (ANALYZE)").await
    }

    async fn clean(&self) -> Result<(), Error> {
        self.with_each_table("DROP TABLE").await
    }
}

/// A bare table.
#[derive(Clone)]
pub(crate) struct Bare {
    pool: PgPool,
    ids: Ids,
    statements: Arc<Statements>,
}

struct Statements {
    insert: Arc<str>,
    insert_one: Arc<str>,
    claim: Arc<str>,
    finish: Arc<str>,
    cancel: Arc<str>,
    cancel_one: Arc<str>,
    move_to: Arc<str>,
    move_one_to: Arc<str>,
    pending: Arc<str>,
}

impl Statements {
    fn of(table: &str) -> Self {
        let columns = "(id, kind, key, state, due_at, wake_at, payload)";
        let one = "WHERE kind = $1 AND state = 0 AND key = $2";
        let many = format!(
            "FROM unnest($2::text[]) AS k (named) CROSS JOIN LATERAL (
                SELECT l.id FROM {table} l WHERE l.kind = $1 AND l.key = k.named AND l.state IN (0, 1) LIMIT 1) l
            WHERE {table}.id = l.id AND {table}.state = 0"
        );
        Self {
            insert: format!(
                "INSERT INTO {table} {columns} SELECT id, $1, key, 0, due, due, payload
                FROM unnest($2::uuid[], $3::text[], $4::bigint[], $5::bytea[]) AS r (id, key, due, payload)"
            )
            .into(),
            insert_one: format!("INSERT INTO {table} {columns} VALUES ($2, $1, $3, 0, $4, $4, $5)").into(),
            // By the id: a sum is in no index.
            claim: format!(
                "UPDATE {table} SET state = 1, wake_at = wake_at + 30000 WHERE id = ANY($1) AND state + 0 = 0
                RETURNING id, payload"
            )
            .into(),
            finish: format!("UPDATE {table} SET state = 2 WHERE id = ANY($1) AND state + 0 = 1").into(),
            cancel: format!("UPDATE {table} SET state = 4 {many}").into(),
            cancel_one: format!("UPDATE {table} SET state = 4 {one}").into(),
            move_to: format!("UPDATE {table} SET due_at = $3, wake_at = $3 {many}").into(),
            move_one_to: format!("UPDATE {table} SET due_at = $3, wake_at = $3 {one}").into(),
            pending: format!(
                "SELECT count(*), count(*) FILTER (WHERE wake_at <= $1) FROM {table} WHERE state = 0"
            )
            .into(),
        }
    }
}

impl Bare {
    fn id(&self, number: usize) -> Uuid {
        Uuid::from_bytes(self.ids.of(number))
    }

    fn known(&self, numbers: &[usize]) -> Vec<Uuid> {
        numbers.iter().map(|&number| self.id(number)).collect()
    }

    async fn insert(&self, items: &[Item]) -> Result<usize, Error> {
        let done = match items {
            [item] => {
                sqlx::query(AssertSqlSafe(Arc::clone(&self.statements.insert_one)))
                    .bind(KIND)
                    .bind(self.id(item.number))
                    .bind(item.key())
                    .bind(item.due)
                    .bind(&PAYLOAD[..])
                    .execute(&self.pool)
                    .await?
            }
            items => {
                sqlx::query(AssertSqlSafe(Arc::clone(&self.statements.insert)))
                    .bind(KIND)
                    .bind(items.iter().map(|item| self.id(item.number)).collect::<Vec<_>>())
                    .bind(keys(items))
                    .bind(items.iter().map(|item| item.due).collect::<Vec<_>>())
                    .bind(vec![&PAYLOAD[..]; items.len()])
                    .execute(&self.pool)
                    .await?
            }
        };
        Ok(done.rows_affected() as usize)
    }
}

fn keys(items: &[Item]) -> Vec<String> {
    items.iter().map(|item| item.key()).collect()
}

impl Rows for Bare {
    async fn claim(&self, numbers: &[usize]) -> Result<usize, Error> {
        let claimed: Vec<(Uuid, Vec<u8>)> = sqlx::query_as(AssertSqlSafe(Arc::clone(&self.statements.claim)))
            .bind(self.known(numbers))
            .fetch_all(&self.pool)
            .await?;
        Ok(claimed.len())
    }

    async fn finish(&self, numbers: &[usize]) -> Result<usize, Error> {
        let done = sqlx::query(AssertSqlSafe(Arc::clone(&self.statements.finish)))
            .bind(self.known(numbers))
            .execute(&self.pool)
            .await?;
        Ok(done.rows_affected() as usize)
    }
}

impl Side for Bare {
    async fn apply(&self, verb: Verb, items: &[Item]) -> Result<usize, Error> {
        let statements = &self.statements;
        let statement = match (verb, items) {
            (Verb::Add, _) => return self.insert(items).await,
            (Verb::Cancel, [_]) => &statements.cancel_one,
            (Verb::Cancel, _) => &statements.cancel,
            (Verb::Move, [_]) => &statements.move_one_to,
            (Verb::Move, _) => &statements.move_to,
        };
        let mut change = sqlx::query(AssertSqlSafe(Arc::clone(statement))).bind(KIND);
        change = match items {
            [item] => change.bind(item.key()),
            items => change.bind(keys(items)),
        };
        if verb == Verb::Move {
            change = change.bind(items.first().map(|item| item.due));
        }
        Ok(change.execute(&self.pool).await?.rows_affected() as usize)
    }

    async fn drain(&self, ledger: &Arc<Ledger>) -> Result<usize, Error> {
        known::drain(self, ledger).await
    }

    async fn pending(&self) -> Result<Pending, Error> {
        let (all, soon): (i64, i64) = sqlx::query_as(AssertSqlSafe(Arc::clone(&self.statements.pending)))
            .bind(now_micros() / 1_000 + SOON)
            .fetch_one(&self.pool)
            .await?;
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
