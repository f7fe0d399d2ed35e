//! What another transaction has locked holds up nothing that has nothing to do with it.

use async_trait::async_trait;
use sqlx::PgConnection;

use super::{Fixture, LEASE, PostgresStore, change, lock, new_row, run};
use crate::store::sql::tests::each::Each;
use crate::store::sql::tests::locked::{Locking, locked_rows};
use crate::store::{NewRow, Store, Transaction, Verb};
use crate::{Answer, Error, Scheduled};

#[async_trait]
impl Locking for Fixture {
    type Store = PostgresStore;
    type Connection = PgConnection;

    async fn empty() -> Self {
        Self::new().await
    }

    fn store(&self) -> &PostgresStore {
        &self.store
    }

    async fn with_one_connection(&self) -> PostgresStore {
        self.builder().connections(1).connect().await.unwrap()
    }

    async fn locking(&self, numbers: &[usize]) -> PgConnection {
        let mut other = self.foreign().await;
        lock(&mut other, numbers).await;
        other
    }

    async fn inserting(&self, row: NewRow) -> PgConnection {
        let mut other = self.foreign().await;
        run(&mut other, "BEGIN").await;
        self.store.join(&mut other).insert(vec![row]).await.unwrap();
        other
    }

    async fn end(other: &mut PgConnection, how: &'static str) {
        run(other, how).await;
    }

    async fn until_none_waits(&self) {
        self.no_session_waits().await;
    }
}

locked_rows!(Fixture);

fn named(number: usize, key: &str) -> NewRow {
    NewRow {
        key: Some(key.into()),
        ..new_row(number, LEASE)
    }
}

#[tokio::test]
async fn a_name_that_cannot_be_kept_is_refused_and_found_nowhere() {
    let fixture = Fixture::new().await;
    let found = fixture
        .store
        .insert(vec![named(1, "a\0b"), named(2, "b")])
        .await
        .unwrap()
        .found;
    assert!(
        matches!(
            found.as_slice(),
            [Err(Error::Invalid { field: "key", .. }), Ok(Scheduled::New(_))]
        ),
        "{found:?}"
    );
    let cancel = vec![
        change(("k", "a\0b"), Verb::Cancel),
        change(("k", "b"), Verb::Cancel),
    ];
    let answers = fixture.store.change_all(cancel).await.unwrap().found;
    assert!(
        matches!(answers.as_slice(), [Answer::NotFound, Answer::Done(_)]),
        "{answers:?}"
    );
    assert_eq!(fixture.store.find(&("k", "a\0b").into()).await.unwrap(), None);
}
