//! New rows, and changes of rows, for callers who share calls.

use std::time::Duration;

use async_trait::async_trait;

use super::change::change;
use super::database::Database;
use super::insert::insert;
use crate::clock::Clock;
use crate::redis::NAME;
use crate::store::merging::{Answers, Batched};
use crate::store::{Change, NewRow};
use crate::{Answer, Error, Scheduled};

#[async_trait]
impl Batched for Database {
    fn name(&self) -> &'static str {
        NAME
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn insert_alone(&self, rows: Vec<NewRow>) -> Result<Answers<Scheduled>, Error> {
        self.within(insert(self, rows)).await
    }

    async fn change_alone(&self, changes: Vec<Change>, history: Duration) -> Result<Answers<Answer>, Error> {
        self.within(change(self, changes, history)).await
    }
}
