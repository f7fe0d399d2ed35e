//! New rows, and changes of rows, for their callers.
//!
//! A batch is decided in memory, over the rows that it may touch, row after row as one by one; then it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sqlx::SqliteConnection;

use super::connections::Writing;
use super::write::{self, Changed};
use super::{File, read};
use crate::store::rows::Rows;
use crate::store::{Change, NewRow, Stamped, Verb, row};
use crate::{Answer, Key, Kind, Scheduled, Target, Task, TaskId};

pub(super) async fn insert(file: &File, new: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    let now = writing.now;
    // Nearly always all of them are new, and then nothing has to be looked up.
    let rows: Vec<_> = new.iter().map(|new| row::new(new.clone(), now)).collect();
    sqlx::query("SAVEPOINT before").execute(&mut *writing).await?;
    let added = write::add(&mut writing, &rows).await?;
    let found = if usize::try_from(added) == Ok(rows.len()) {
        rows.into_iter().map(Scheduled::New).collect()
    } else {
        sqlx::query("ROLLBACK TO before").execute(&mut *writing).await?;
        insert_among(&mut writing, new).await?
    };
    writing.commit().await?;
    Ok(Stamped { now, found })
}

/// Inserts rows of which some are there.
async fn insert_among(writing: &mut Writing<'_>, new: Vec<NewRow>) -> Result<Vec<Scheduled>, sqlx::Error> {
    let ids = new.iter().map(|new| new.id).collect();
    let keys = new
        .iter()
        .filter_map(|new| Some((new.kind.clone(), new.key.clone()?)));
    let mut rows = Loaded::default();
    rows.load_ids(writing, ids).await?;
    rows.load_keys(writing, keys.collect()).await?;
    let now = writing.now;
    let found: Vec<_> = new.into_iter().map(|new| rows.all.insert(new, now)).collect();

    let touched = found.iter().map(|answer| answer.task().id);
    let (added, changed) = rows.touched(touched);
    let count = write::add(writing, &added).await?;
    write::ensure("an insert", count, added.len())?;
    write::write(writing, &changed).await?;
    for (_, row) in &changed {
        write::refill(writing, row).await?;
    }
    Ok(found)
}

pub(super) async fn change(
    file: &File,
    changes: &[Change],
    history: Duration,
) -> Result<Stamped<Vec<Answer>>, sqlx::Error> {
    let mut ids = BTreeSet::new();
    let mut keys = BTreeSet::new();
    let mut redriven = BTreeSet::new();
    for change in changes {
        match &change.target {
            Target::Id(id) => {
                ids.insert(*id);
                if matches!(change.verb, Verb::Redrive { .. }) {
                    redriven.insert(*id);
                }
            }
            Target::Key(kind, key) => {
                keys.insert((kind.clone(), key.clone()));
            }
        }
    }

    let mut writing = file.writer.write().await?;
    let now = writing.now;
    let mut rows = Loaded::default();
    rows.load_ids(&mut writing, ids).await?;
    // A row to redrive may be in the way of another live row of its key.
    let redriven = redriven.into_iter().filter_map(|id| rows.all.get(id));
    keys.extend(redriven.filter_map(|row| Some((row.kind.clone(), row.key.clone()?))));
    rows.load_keys(&mut writing, keys).await?;

    let answer = |change: &Change| rows.all.answer(change, now, history);
    let found: Vec<_> = changes.iter().map(answer).collect();
    let touched = found.iter().filter_map(|answer| Some(answer.task()?.id));
    let (_, changed) = rows.touched(touched);
    write::write(&mut writing, &changed).await?;
    writing.commit().await?;
    Ok(Stamped { now, found })
}

/// The rows that a batch may touch.
#[derive(Default)]
struct Loaded {
    all: Rows,
    /// The version of each when it was read.
    read_at: BTreeMap<TaskId, u64>,
}

impl Loaded {
    async fn load_ids(
        &mut self,
        connection: &mut SqliteConnection,
        ids: BTreeSet<TaskId>,
    ) -> Result<(), sqlx::Error> {
        if !ids.is_empty() {
            self.add(read::by_ids(connection, ids).await?);
        }
        Ok(())
    }

    async fn load_keys(
        &mut self,
        connection: &mut SqliteConnection,
        keys: BTreeSet<(Kind, Key)>,
    ) -> Result<(), sqlx::Error> {
        if !keys.is_empty() {
            let keys: Vec<_> = keys.into_iter().collect();
            self.add(read::by_keys(connection, &keys).await?);
        }
        Ok(())
    }

    fn add(&mut self, rows: Vec<Task>) {
        self.read_at.extend(rows.iter().map(|row| (row.id, row.version)));
        self.all.load(rows);
    }

    /// Of these rows, those that were added, and those that were changed.
    fn touched(&self, ids: impl Iterator<Item = TaskId>) -> (Vec<Task>, Vec<Changed>) {
        let mut added = Vec::new();
        let mut changed = Vec::new();
        for row in ids
            .collect::<BTreeSet<_>>()
            .into_iter()
            .filter_map(|id| self.all.get(id))
        {
            match self.read_at.get(&row.id) {
                None => added.push(row.clone()),
                Some(&read_at) if read_at != row.version => changed.push((read_at, row.clone())),
                Some(_) => {}
            }
        }
        (added, changed)
    }
}
