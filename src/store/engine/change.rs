//! Changes of rows, for their callers.

use std::collections::BTreeSet;

use super::batch::Batch;
use super::loaded::{Loaded, unreadable};
use super::table_engine::TableEngine;
use crate::store::table::{Table, Unreadable};
use crate::store::{Change, Stamped, Target, Verb};
use crate::{Answer, Error, TaskId, Timestamp};

impl<T: Table> TableEngine<T> {
    /// Changes rows as [`Store::change`](crate::store::Store::change) says.
    pub(super) async fn change_batch<'c>(
        &self,
        mut batch: Batch<'c, Change, Answer>,
    ) -> Result<Batch<'c, Change, Answer>, Error> {
        if batch.asked.is_empty() {
            batch.looked(self.table.now().await?);
            return Ok(batch);
        }
        loop {
            let changed = self.change_open(&mut batch).await;
            changed.or_else(|error| batch.fail(error))?;
            if !batch.tries_again().await {
                return Ok(batch);
            }
        }
    }

    async fn change_open(&self, batch: &mut Batch<'_, Change, Answer>) -> Result<(), Error> {
        let open = batch.open();
        let changes = open.iter().map(|&place| &batch.asked[place]);
        let (mut loaded, now) = self.load(changes).await?;
        batch.looked(now);
        let (mut decided, mut refilled) = (Vec::with_capacity(open.len()), BTreeSet::new());
        for place in open {
            let change = &batch.asked[place];
            if let Some(row_error) = row_error(&loaded, change) {
                let error = unreadable(self.table.name(), row_error);
                batch.answer(place, Err(error));
                continue;
            }
            let meant = loaded.rows.find(&change.target).map(|row| row.id);
            let answer = loaded.rows.apply(change, now, &self.stays);
            if matches!(change.verb, Verb::Edit { .. }) && answer.is_done() {
                refilled.extend(meant);
            }
            decided.push((place, meant, answer));
        }
        batch.may_have_written = true;
        let missed = loaded.write(&self.table, &refilled).await?;
        for (place, meant, answer) in decided {
            // Decided anew also where another row that the answer tells of, such as the one in the way of a redrive, was not written.
            let named = answer.task().map(|row| row.id);
            let why = meant.into_iter().chain(named).find_map(|id| missed.get(&id));
            match why {
                None => batch.answer(place, Ok(answer)),
                Some(why) => batch.miss(place, why),
            }
        }
        Ok(())
    }

    /// The rows that changes may touch, and the time then.
    async fn load<'b>(
        &self,
        changes: impl Iterator<Item = &'b Change>,
    ) -> Result<(Loaded, Timestamp), Error> {
        let (mut ids, mut keys) = (BTreeSet::new(), BTreeSet::new());
        let mut redriven = BTreeSet::new();
        for change in changes {
            match &change.target {
                Target::Id(id) => {
                    ids.insert(*id);
                    redriven.extend(is_redrive(change).then_some(*id));
                }
                Target::Key(kind, key) => {
                    keys.insert((kind.clone(), key.clone()));
                }
            }
        }
        let (ids, keys) = (Vec::from_iter(ids), Vec::from_iter(keys));
        let Stamped { now, found } = self.table.hold(&ids, &keys).await?;
        let mut loaded = Loaded::of(found);
        // A row to redrive may be in the way of another live row of its key.
        let redriven = redriven.into_iter().filter_map(|id| loaded.rows.get(id));
        let of_keys: BTreeSet<_> = redriven
            .filter_map(|row| Some((row.kind.clone(), row.key.clone()?)))
            .collect();
        if !of_keys.is_empty() {
            let of_keys = Vec::from_iter(of_keys);
            loaded.add(self.table.hold(&[], &of_keys).await?.found);
        }
        Ok((loaded, now))
    }
}

fn is_redrive(change: &Change) -> bool {
    matches!(change.verb, Verb::Redrive { .. })
}

fn row_error<'l>(loaded: &'l Loaded, change: &Change) -> Option<&'l Unreadable> {
    let of_key = |id: TaskId| {
        let row = loaded.rows.get(id)?;
        loaded.row_error_of_live(&row.kind, row.key.as_ref()?)
    };
    loaded.row_error(&change.target).or_else(|| match change.target {
        Target::Id(id) if is_redrive(change) => of_key(id),
        _ => None,
    })
}
