//! Measures PostgreSQL, in tables of the run's own.

use std::sync::Arc;

use async_trait::async_trait;
use delayline::store::{PostgresStore, Store};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use uuid::Uuid;

use super::Error;
use super::side::{CALLERS, Item, KIND, PAYLOAD, Place, Side, Verb, id};

// By default the planner reads all rows of the kind for the names.
super::sql::bare!(
    sqlx::Postgres,
    " WHERE state = 0 AND kind = 'bench' AND name = ",
    " FROM unnest(ARRAY[",
    "]) AS named (name) CROSS JOIN LATERAL (SELECT l.id FROM TABLE l
        WHERE l.state IN (0, 1) AND l.kind = 'bench' AND l.name = named.name LIMIT 1) live
    WHERE TABLE.id = live.id AND TABLE.state = 0",
    true
);

/// A database.
pub(crate) struct Postgres(pub(crate) PgConnectOptions);

#[async_trait]
impl Place for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn store(&self, name: &str) -> Result<Arc<dyn Store>, Error> {
        let store = PostgresStore::builder(self.0.clone())
            .table(name)
            .connect()
            .await?;
        store.migrate().await?;
        Ok(Arc::new(store))
    }

    async fn bare(&self, name: &str) -> Result<Arc<dyn Side>, Error> {
        // A table without statistics looks small, and is not: a statement that names its rows goes through an index.
        let by_index = ["seqscan", "bitmapscan", "hashjoin", "mergejoin"]
            .map(|other| (format!("enable_{other}"), "off"));
        let pool = PgPoolOptions::new()
            .max_connections(CALLERS as u32)
            .min_connections(CALLERS as u32)
            .connect_with(self.0.clone().options(by_index))
            .await?;
        let create = format!(
            "CREATE TABLE {name} (id uuid PRIMARY KEY, kind text NOT NULL, name text NOT NULL, state smallint NOT NULL,
                due_at bigint NOT NULL, wake_at bigint NOT NULL, payload bytea NOT NULL);
            CREATE INDEX {name}_wake ON {name} (state, wake_at);
            CREATE UNIQUE INDEX {name}_live ON {name} (kind, name) WHERE state IN (0, 1);"
        );
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&pool).await?;
        let table = name.to_owned();
        Ok(Arc::new(Bare { pool, table }))
    }

    async fn clean(&self, prefix: &str) -> Result<(), Error> {
        let mut connection = PgConnection::connect_with(&self.0).await?;
        let drop_each = format!(
            "DO $$ DECLARE made text; BEGIN
                FOR made IN SELECT tablename FROM pg_tables
                    WHERE schemaname = current_schema() AND starts_with(tablename, '{prefix}')
                LOOP EXECUTE format('DROP TABLE %I', made); END LOOP;
            END $$"
        );
        sqlx::raw_sql(AssertSqlSafe(drop_each))
            .execute(&mut connection)
            .await?;
        Ok(connection.close().await?)
    }
}
