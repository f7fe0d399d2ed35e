//! Measures MySQL and MariaDB, in tables of the run's own.

use std::sync::Arc;

use async_trait::async_trait;
use delayline::store::{MySqlStore, Store};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySqlConnection};
use uuid::Uuid;

use super::Error;
use super::side::{CALLERS, Item, KIND, PAYLOAD, Place, Side, Verb, id};

super::sql::bare!(
    sqlx::MySql,
    " WHERE state = 0 AND kind = 'bench' AND live = ",
    " WHERE state = 0 AND kind = 'bench' AND live IN (",
    ")",
    false
);

/// A database.
pub(crate) struct MySql(pub(crate) MySqlConnectOptions);

#[async_trait]
impl Place for MySql {
    fn name(&self) -> &'static str {
        "mysql"
    }

    async fn store(&self, name: &str) -> Result<Arc<dyn Store>, Error> {
        let store = MySqlStore::builder(self.0.clone()).table(name).connect().await?;
        store.migrate().await?;
        Ok(Arc::new(store))
    }

    async fn bare(&self, name: &str) -> Result<Arc<dyn Side>, Error> {
        let pool = MySqlPoolOptions::new()
            .max_connections(CALLERS as u32)
            .min_connections(CALLERS as u32)
            .after_connect(|connection, _| {
                // As the library sets it: by default batches would lock the gaps between each other's rows.
                let isolated = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
                Box::pin(async move { connection.execute(isolated).await.map(drop) })
            })
            .connect_with(self.0.clone())
            .await?;
        let create = format!(
            "CREATE TABLE {name} (id BINARY(16) NOT NULL, kind VARBINARY(100) NOT NULL, name VARBINARY(255) NOT NULL,
                state TINYINT UNSIGNED NOT NULL, due_at BIGINT NOT NULL, wake_at BIGINT NOT NULL,
                payload LONGBLOB NOT NULL,
                live VARBINARY(255) AS (CASE WHEN state IN (0, 1) THEN name END) STORED,
                PRIMARY KEY (id), UNIQUE KEY live (kind, live), KEY wake (state, wake_at)) ENGINE = InnoDB"
        );
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&pool).await?;
        let table = name.to_owned();
        Ok(Arc::new(Bare { pool, table }))
    }

    async fn clean(&self, prefix: &str) -> Result<(), Error> {
        let mut connection = MySqlConnection::connect_with(&self.0).await?;
        let find = "SELECT CAST(table_name AS CHAR) FROM information_schema.tables
            WHERE table_schema = DATABASE() AND LEFT(table_name, CHAR_LENGTH(?)) = ?";
        let made: Vec<String> = sqlx::query_scalar(find)
            .bind(prefix)
            .bind(prefix)
            .fetch_all(&mut connection)
            .await?;
        for table in made {
            let statement = AssertSqlSafe(format!("DROP TABLE `{table}`"));
            sqlx::raw_sql(statement).execute(&mut connection).await?;
        }
        Ok(connection.close().await?)
    }
}
