//! The rows that a batch of verbs may touch.

use std::collections::{BTreeMap, BTreeSet};

use super::ensure::ensure;
use super::session::{Changed, Session};
use crate::store::rows::Rows;
use crate::{Key, Kind, Task, TaskId};

/// Rows that were read and locked, over which a batch is decided in memory, row after row as one by one.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) rows: Rows,
    /// The version of each when it was read.
    read_at: BTreeMap<TaskId, u64>,
}

impl Loaded {
    pub(super) async fn ids(
        &mut self,
        session: &mut impl Session,
        ids: BTreeSet<TaskId>,
    ) -> Result<(), sqlx::Error> {
        if !ids.is_empty() {
            self.add(session.rows_of_ids(ids).await?);
        }
        Ok(())
    }

    pub(super) async fn keys(
        &mut self,
        session: &mut impl Session,
        keys: BTreeSet<(Kind, Key)>,
    ) -> Result<(), sqlx::Error> {
        if !keys.is_empty() {
            self.add(session.rows_of_keys(keys).await?);
        }
        Ok(())
    }

    fn add(&mut self, rows: Vec<Task>) {
        self.read_at.extend(rows.iter().map(|row| (row.id, row.version)));
        self.rows.load(rows);
    }

    /// Writes those of these rows that were there and have changed; gives them.
    pub(super) async fn write(
        &self,
        session: &mut impl Session,
        ids: impl Iterator<Item = TaskId>,
    ) -> Result<Vec<Changed>, sqlx::Error> {
        let ids: BTreeSet<_> = ids.collect();
        let changed = ids.into_iter().filter_map(|id| {
            let (row, &read_at) = (self.rows.get(id)?, self.read_at.get(&id)?);
            (row.version != read_at).then(|| (read_at, row.clone()))
        });
        let changed: Vec<_> = changed.collect();
        if changed.is_empty() {
            return Ok(changed);
        }
        let touched = session.write(&changed).await?;
        ensure("a write", touched, changed.len())?;
        Ok(changed)
    }
}
