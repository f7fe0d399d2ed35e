//! Rows that cannot be decoded: edited by hand, or written by a later release.

use async_trait::async_trait;

use super::{Fixture, run};
use crate::TaskId;
use crate::store::Store;
use crate::store::sql::tests::corrupt::{Edited, corrupt_rows};

/// What a later release might allow.
const LOOSEN: &str = "DO $$ DECLARE c text; BEGIN
    FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = 'delayline_tasks'::regclass AND contype = 'c' LOOP
        EXECUTE 'ALTER TABLE delayline_tasks DROP CONSTRAINT ' || c;
    END LOOP;
    ALTER TABLE delayline_tasks ALTER COLUMN planned_at DROP NOT NULL, ALTER COLUMN started DROP NOT NULL;
END $$";

#[async_trait]
impl Edited for Fixture {
    const WAYS: &'static [&'static str] = &[
        "headers = 'no JSON'",
        "hop = -1",
        "attempt = 1099511627776",
        "stalls = -1",
        "max_attempts = -1",
        "planned_at = NULL",
        "started = NULL",
    ];
    const OF_CLAIMS: &'static [&'static str] = &["version = -1", "hop = -1", "planned_at = NULL"];

    async fn empty() -> Self {
        let fixture = Self::new().await;
        run(&mut fixture.foreign().await, LOOSEN).await;
        fixture
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
        format!("id = '{}'", uuid::Uuid::from_bytes(*id.as_bytes()))
    }

    fn has(digits: &str) -> String {
        format!("id = '{digits}'")
    }
}

corrupt_rows!(Fixture);
