//! What another transaction has locked holds up nothing that has nothing to do with it.

use async_trait::async_trait;
use sqlx::MySqlConnection;

use super::locks::no_session_waits;
use super::{Fixture, MySqlStore, is, run};
use crate::store::sql::tests::locked::{Locking, locked_rows};
use crate::store::{NewRow, Transaction};

#[async_trait]
impl Locking for Fixture {
    type Store = MySqlStore;
    type Connection = MySqlConnection;

    async fn empty() -> Self {
        Self::new().await
    }

    fn store(&self) -> &MySqlStore {
        &self.store
    }

    async fn with_one_connection(&self) -> MySqlStore {
        let builder = MySqlStore::builder(self.url.parse().unwrap());
        builder.connections(1).connect().await.unwrap()
    }

    async fn locking(&self, numbers: &[usize]) -> MySqlConnection {
        let mut other = self.foreign().await;
        run(&mut other, "START TRANSACTION").await;
        // One by one: a condition of several may have the server read, and lock, the whole table.
        for number in numbers {
            let lock = format!("SELECT * FROM delayline_tasks WHERE {} FOR UPDATE", is(*number));
            run(&mut other, &lock).await;
        }
        other
    }

    async fn inserting(&self, row: NewRow) -> MySqlConnection {
        let mut other = self.foreign().await;
        run(&mut other, "START TRANSACTION").await;
        self.store.join(&mut other).insert(vec![row]).await.unwrap();
        other
    }

    async fn end(other: &mut MySqlConnection, how: &'static str) {
        run(other, how).await;
    }

    async fn until_none_waits(&self) {
        no_session_waits(&mut self.foreign().await).await;
    }
}

locked_rows!(Fixture);
