//! Rows that cannot be decoded: edited by hand, or written by a later release.

use async_trait::async_trait;

use super::{Fixture, run};
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
}

corrupt_rows!(Fixture);
