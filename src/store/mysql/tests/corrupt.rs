//! Rows that cannot be decoded: edited by hand, or written by a later release.

use async_trait::async_trait;

use super::{Fixture, claim, due_rows, is, run};
use crate::TaskId;
use crate::store::Store;
use crate::store::sql::codec::hex;
use crate::store::sql::tests::corrupt::{Edited, corrupt_rows};

#[async_trait]
impl Edited for Fixture {
    const WAYS: &'static [&'static str] = &[
        "headers = 'no JSON'",
        "kind = X'FF'",
        "`key` = X'FF'",
        "version = 18446744073709551614",
    ];
    const OF_CLAIMS: &'static [&'static str] =
        &["version = 18446744073709551614", "kind = X'FF'", "`key` = X'FF'"];

    async fn empty() -> Self {
        Self::new().await
    }

    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn forgetful(&self) -> Box<dyn Store> {
        Box::new(self.without_history().await)
    }

    async fn edit(&self, sql: &str) {
        run(&mut self.foreign().await, sql).await;
    }

    fn is(id: TaskId) -> String {
        format!("id = UNHEX('{}')", hex(id.as_bytes()))
    }

    fn has(digits: &str) -> String {
        format!("id = X'{digits}'")
    }
}

corrupt_rows!(Fixture);

#[tokio::test]
async fn claims_are_not_lost_by_a_row_that_cannot_be_set_aside() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows(0..3)).await;
    fixture
        .edit(&format!(
            "UPDATE delayline_tasks SET headers = 'no JSON' WHERE {}",
            is(0)
        ))
        .await;
    let refuse = "CREATE TRIGGER refuse BEFORE UPDATE ON delayline_tasks FOR EACH ROW
        IF OLD.headers = 'no JSON' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF";
    run(&mut fixture.foreign().await, refuse).await;
    let claimed = fixture.store.ready(&claim(9)).await.unwrap().found;
    assert_eq!(claimed.len(), 2);
}
