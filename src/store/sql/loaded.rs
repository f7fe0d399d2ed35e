//! The rows that a batch of verbs may touch.

use std::collections::{BTreeMap, BTreeSet};

use super::ensure::ensure;
use super::obstacle::Why;
use super::session::{Before, Changed, Held, Lock, Session};
use crate::store::rows::Rows;
use crate::store::{Target, row};
use crate::{Key, Kind, Task, TaskId, Timestamp};

/// Rows that were read and locked, over which a batch is decided in memory, row after row as one by one.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) rows: Rows,
    /// What each was like when it was read.
    read: BTreeMap<TaskId, Before>,
    /// Those that are not locked, and until when they hold their leases if they run.
    seen: Vec<Task>,
    /// Of which nothing can be decided.
    ids: BTreeMap<TaskId, Why>,
    keys: BTreeMap<(Kind, Key), Why>,
}

impl Loaded {
    pub(super) async fn ids(
        &mut self,
        session: &mut impl Session,
        ids: BTreeSet<TaskId>,
        lock: Lock,
    ) -> Result<(), sqlx::Error> {
        if !ids.is_empty() {
            self.add(session.rows_of_ids(ids, lock).await?);
        }
        Ok(())
    }

    pub(super) async fn keys(
        &mut self,
        session: &mut impl Session,
        keys: BTreeSet<(Kind, Key)>,
        lock: Lock,
    ) -> Result<(), sqlx::Error> {
        if !keys.is_empty() {
            self.add(session.rows_of_keys(keys, lock).await?);
        }
        Ok(())
    }

    fn add(&mut self, held: Held) {
        // Of rows that were read twice the first reading counts.
        for row in held.locked.iter().chain(&held.seen) {
            self.read.entry(row.id).or_insert_with(|| Before::of(row));
        }
        self.seen.extend(held.seen.iter().cloned());
        self.rows.load(held.locked.into_iter().chain(held.seen));
        for obstacle in held.obstacles {
            self.keys
                .extend(obstacle.key.map(|key| (key, obstacle.why.clone())));
            self.ids.insert(obstacle.id, obstacle.why);
        }
    }

    /// Whether a lease has ended since its row was looked at: then it has to be looked at again, and locked.
    pub(super) fn is_past(&self, now: Timestamp) -> bool {
        self.seen.iter().any(|row| row::lease_has_ended(row, now))
    }

    /// Why nothing can be decided of a target, if so.
    pub(super) fn obstacle(&self, target: &Target) -> Option<&Why> {
        match target {
            Target::Id(id) => self.obstacle_of_id(*id),
            Target::Key(kind, key) => self.obstacle_of_key(kind, key),
        }
    }

    pub(super) fn obstacle_of_id(&self, id: TaskId) -> Option<&Why> {
        self.ids.get(&id)
    }

    pub(super) fn obstacle_of_key(&self, kind: &Kind, key: &Key) -> Option<&Why> {
        self.keys.get(&(kind.clone(), key.clone()))
    }

    /// Why nothing can be decided of the live row of a key, if so.
    pub(super) fn obstacle_of_live(&self, kind: &Kind, key: &Key) -> Option<&Why> {
        let why = self.obstacle_of_key(kind, key);
        why.filter(|why| !matches!(why, Why::GarbledPast(_)))
    }

    /// Writes those of these rows that were there and have changed; gives them.
    pub(super) async fn write(
        &self,
        session: &mut impl Session,
        ids: impl Iterator<Item = TaskId>,
    ) -> Result<Vec<Changed>, sqlx::Error> {
        let ids: BTreeSet<_> = ids.collect();
        let changed = ids.into_iter().filter_map(|id| {
            let (row, before) = (self.rows.get(id)?, self.read.get(&id)?);
            (row.version != before.version).then(|| (before.clone(), row.clone()))
        });
        let changed: Vec<_> = changed.collect();
        if changed.is_empty() {
            return Ok(changed);
        }
        let touched = session.write(&changed).await?;
        ensure("a write", touched, changed.len())?;
        let noted = |(_, row): &Changed| Some((row.id, self.rows.noted(row.id)?.clone()));
        let noted: Vec<_> = changed.iter().filter_map(noted).collect();
        session.note(&noted).await?;
        Ok(changed)
    }
}
