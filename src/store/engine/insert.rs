//! New rows, for their callers.

use std::collections::BTreeSet;

use super::batch::Batch;
use super::loaded::{Loaded, unreadable};
use super::table_engine::TableEngine;
use crate::store::table::{Columns, Outcome, Table};
use crate::store::{NewRow, Stamped, Target, rules};
use crate::{Error, Key, Kind, Scheduled, TaskId, Timestamp};

impl<T: Table> TableEngine<T> {
    /// Writes rows as [`Store::insert`](crate::store::Store::insert) says: nearly always all are new, and none need be read.
    pub(super) async fn insert_batch<'c>(
        &self,
        mut batch: Batch<'c, NewRow, Scheduled>,
    ) -> Result<Batch<'c, NewRow, Scheduled>, Error> {
        let all = batch.open();
        self.add(&mut batch, all).await?;
        while batch.tries_again().await {
            let inserted = self.insert_among(&mut batch).await;
            inserted.or_else(|error| batch.fail(error))?;
        }
        Ok(batch)
    }

    /// Writes those that are not there yet.
    async fn add(&self, batch: &mut Batch<'_, NewRow, Scheduled>, places: Vec<usize>) -> Result<(), Error> {
        let rows: Vec<_> = places.iter().map(|&place| batch.asked[place].clone()).collect();
        let Stamped { now, found } = self.table.insert(&rows).await?;
        if found.len() != rows.len() {
            return Err(Error::miscounted(self.table.name(), found.len(), rows.len()));
        }
        batch.looked(now);
        for ((place, new), came) in places.into_iter().zip(rows).zip(found) {
            match came {
                Outcome::Written => {
                    batch.may_have_written = true;
                    batch.answer(place, Ok(Scheduled::New(rules::new(new, now))));
                }
                missed => batch.miss(place, &missed),
            }
        }
        Ok(())
    }

    /// Answers for rows of which some are there.
    async fn insert_among(&self, batch: &mut Batch<'_, NewRow, Scheduled>) -> Result<(), Error> {
        let open = batch.open();
        let (mut loaded, now) = self
            .load_new(open.iter().map(|&place| &batch.asked[place]))
            .await?;

        let (mut decided, mut to_add) = (Vec::new(), Vec::new());
        let (mut to_be_new, mut replaced) = (BTreeSet::new(), BTreeSet::new());
        for place in open {
            let new = batch.asked[place].clone();
            let of_key = || loaded.row_error_of_live(&new.kind, new.key.as_ref()?);
            if let Some(row_error) = loaded.row_error(&Target::Id(new.id)).or_else(of_key) {
                let error = unreadable(self.table.name(), row_error);
                batch.answer(place, Err(error));
                continue;
            }
            let answer = loaded.rows.insert(new, now);
            let id = answer.task().id;
            match answer {
                Scheduled::New(_) => {
                    to_be_new.insert(id);
                    to_add.push(place);
                }
                // What comes after a new row of its id or key meets it in the next turn.
                _ if to_be_new.contains(&id) => {}
                answer => {
                    if matches!(answer, Scheduled::Replaced(_)) {
                        replaced.insert(id);
                    }
                    decided.push((place, answer));
                }
            }
        }
        batch.may_have_written |= !replaced.is_empty();
        let missed = loaded.write(&self.table, &replaced).await?;
        for (place, answer) in decided {
            match missed.get(&answer.task().id) {
                None => batch.answer(place, Ok(answer)),
                Some(why) => batch.miss(place, why),
            }
        }
        if !to_add.is_empty() {
            self.add(batch, to_add).await?;
        }
        Ok(())
    }

    /// The rows of the ids and keys of new ones, those held that are to be replaced; and the time then.
    async fn load_new(&self, new: impl Iterator<Item = &NewRow>) -> Result<(Loaded, Timestamp), Error> {
        let (mut held, mut seen) = (Named::default(), Named::default());
        for new in new {
            let named = if new.replace { &mut held } else { &mut seen };
            named.0.insert(new.id);
            named
                .1
                .extend(new.key.as_ref().map(|key| (new.kind.clone(), key.clone())));
        }
        seen.0.retain(|id| !held.0.contains(id));
        seen.1.retain(|key| !held.1.contains(key));
        let (mut loaded, mut now) = (Loaded::default(), Timestamp::MIN);
        for (named, is_held) in [(held, true), (seen, false)] {
            let (ids, keys) = (Vec::from_iter(named.0), Vec::from_iter(named.1));
            let read = match is_held {
                _ if ids.is_empty() && keys.is_empty() => continue,
                true => self.table.hold(&ids, &keys).await?,
                false => self.table.read(&ids, &keys, Columns::All).await?,
            };
            now = read.now;
            loaded.add(read.found);
        }
        Ok((loaded, now))
    }
}

/// The ids, and the kinds and keys, by which rows are meant.
type Named = (BTreeSet<TaskId>, BTreeSet<(Kind, Key)>);
