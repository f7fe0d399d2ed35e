//! Rows that cannot be decoded: edited by hand, or written by a later release.

use async_trait::async_trait;
use sqlx::AssertSqlSafe;

use super::{Fixture, change, claim, due_rows, id, run};
use crate::store::sql::codec::hex;
use crate::store::sql::tests::corrupt::{Edited, corrupt_rows};
use crate::store::{Ending, Guarded, Step, Store, Verb};
use crate::{Answer, TaskId};

#[async_trait]
impl Edited for Fixture {
    const WAYS: &'static [&'static str] = &[
        "headers = 'no JSON'",
        "hop = -1",
        "attempt = 'many'",
        "stalls = -1",
        "version = -1",
        "max_attempts = -1",
        "planned_at = 'soon'",
        "started = 'yes'",
        "id = x'00'",
        "kind = x'FF'",
    ];
    const OF_CLAIMS: &'static [&'static str] = &["version = -1", "kind = x'FF'", "planned_at = 'soon'"];

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
        let edit = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        edit.execute(&mut self.foreign().await).await.unwrap();
    }

    fn is(id: TaskId) -> String {
        format!("id = x'{}'", hex(id.as_bytes()))
    }

    fn has(digits: &str) -> String {
        format!("hex(id) = '{digits}'")
    }
}

corrupt_rows!(Fixture);

#[tokio::test]
async fn an_owner_that_is_no_text_keeps_no_row_from_being_claimed() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows([1])).await;
    fixture.edit("UPDATE delayline_tasks SET owner = x'FF'").await;
    assert_eq!(fixture.store.ready(&claim(1)).await.unwrap().found.len(), 1);
}

#[tokio::test]
async fn columns_and_states_of_a_later_release_do_not_stop_an_earlier_one() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    fixture.insert(due_rows(0..4)).await;
    run(
        &mut fixture.foreign().await,
        "ALTER TABLE delayline_tasks ADD COLUMN tenant TEXT NOT NULL DEFAULT ''; \
         UPDATE delayline_tasks SET state = 7 WHERE id = x'00000000000000000000000000000000'; \
         INSERT INTO delayline_migrations VALUES (2, 0)",
    )
    .await;
    fixture.insert(due_rows(4..6)).await;
    let claimed = store.ready(&claim(100)).await.unwrap().found;
    assert_eq!(claimed.len(), 5);
    let ends = claimed
        .iter()
        .map(|task| Step::end(task.id, task.version, Ending::Done));
    assert_eq!(
        store.advance(&ends.collect::<Vec<_>>()).await.unwrap(),
        [Guarded::Done; 5]
    );
    let found = fixture.change(vec![change(id(5), Verb::Cancel)]).await;
    assert!(matches!(found[..], [Answer::Finished(_)]));
    // A process that starts now is told.
    let error = store.check().await.unwrap_err();
    assert!(error.to_string().contains("use a later release"), "{error}");
}
