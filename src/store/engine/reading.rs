//! Finds and lists rows for callers.

use super::loaded::{unreadable, unreadable_pause};
use super::retry_window::UNREADABLE_TRIES;
use super::table_engine::TableEngine;
use crate::store::rows::Rows;
use crate::store::table::{By, Columns, Found, Range, Start, Table};
use crate::store::{Page, Paused, Target};
use crate::{Error, Task};

impl<T: Table> TableEngine<T> {
    /// As [`Store::find`](crate::store::Store::find).
    pub(super) async fn find(&self, target: &Target) -> Result<Option<Task>, Error> {
        let read = match target {
            Target::Id(id) => self.table.read(&[*id], &[], Columns::All).await?,
            Target::Key(kind, key) => {
                let keys = [(kind.clone(), key.clone())];
                self.table.read(&[], &keys, Columns::All).await?
            }
        };
        if let Some(found) = read.found.unreadable.first() {
            return Err(unreadable(self.table.name(), found));
        }
        let mut rows = Rows::default();
        rows.load(read.found.rows);
        Ok(rows.find(target).cloned())
    }

    /// As [`Store::list`](crate::store::Store::list).
    pub(super) async fn list(&self, page: &Page) -> Result<Vec<Task>, Error> {
        let range = Range {
            by: By::Due,
            state: page.state,
            kind: Some(page.kind.clone()),
            from: page
                .after
                .map_or(Start::First, |(time, id)| Start::After(time, id)),
            within: None,
            backwards: false,
            limit: page.limit,
            bytes: usize::MAX,
        };
        // A page that is not full is the last one: so those that cannot be read must not make it so.
        let mut wider = range.clone();
        let mut found = Found::default();
        let columns = if page.is_lean { Columns::Lean } else { Columns::All };
        for _ in 0..UNREADABLE_TRIES {
            let answer = self.table.range(std::slice::from_ref(&wider), columns).await?;
            found = answer.found.into_iter().next().unwrap_or_default();
            let all = found.rows.len() + found.unreadable.len();
            if found.rows.len() >= page.limit || all < wider.limit {
                break;
            }
            wider.limit = range.limit.saturating_add(2 * found.unreadable.len());
        }
        // What stops a kind must not be missed.
        if page.kind.as_str() == Paused::KIND
            && let Some(row) = found.unreadable.first()
        {
            return Err(unreadable_pause(self.table.name(), row));
        }
        found.rows.truncate(page.limit);
        Ok(found.rows)
    }
}
