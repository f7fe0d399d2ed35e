//! What every operation needs while the number of slots changes: what it is about to look at is carried over first.
//!
//! With another number of slots a row may be in another slot, so there is another epoch, with slots and keys of its own.
//! Rows are the truth: each must be found in one place at any moment, and nowhere twice. So the epochs are kept apart
//! strictly.
//!
//! 1. *Begin.* The layout says: epoch `e + 1`, so many slots; and those of `e`, the former ones (`begin.lua`).
//! 2. *Close.* Every slot of `e` is marked as closed. From then on every script there does nothing and says so. Whoever
//!    learns from the layout that there are former slots closes all of them before it does anything else
//!    ([`Database::layouts`]). **So nothing is done in `e + 1` before all of `e` is over:** what is in its slots then, rows
//!    and entries of keys, is changed by nobody, and only ever removed by step 5.
//! 3. *Read* rows and entries from the former slots.
//! 4. *Write* them where they are by the new layout (`carry_rows.lua`, `carry_keys.lua`), unless something of that id or
//!    key is there already, or was and is gone.
//! 5. *Remove* them from the former slots (`carried.lua`), once 4 was answered.
//! 6. *Seal* the new slots, once there is nothing in any former slot (`seal.lua`): 4 does nothing there any more.
//! 7. *End.* What is left of the former slots is dropped (`drop.lua`), and the layout says no more of them (`end.lua`).
//!
//! Steps 3 to 5 are made by the mover (`mover.rs`) for all there is, and by everybody for what an operation is about to
//! look at ([`bring`]): rows by their ids; keys, with the rows that their entries name; and what a scan of the former slots
//! finds. Then the operation is made in the new slots as ever. So it sees what it would see if all were carried over
//! already.
//!
//! **What is told that its slot is closed** was not done, and asks the layout anew; it is repeated where it is now, alone
//! ([`Tries`]): what was answered in other slots is answered.
//!
//! **A row is not written twice.** Who is slow between 3 and 4 may come when others have carried the row over, and it has
//! become another, or has ended and was removed. Where it is still there, 4 does nothing. A row that is removed before the
//! new slots are sealed leaves a mark (`TAG:gone`), with which 4 does nothing. Who removes rows without leaving marks has
//! learned from the layout that nothing is carried over any more, so all slots were sealed before. And when `e + 1` is
//! over in its turn, its slots are closed, which 4 is told like everybody. That a slot is closed is said for
//! `CLOSED_FOR` after it was emptied: longer than any call is on its way. After that there is nobody who reads it.
//!
//! **Keys come after their rows.** An entry is written only after all rows that it names. So if there is none in the former
//! slot, then there was none, or its rows are where the new layout says; and nobody finds a key free whose live row is
//! still to come. An entry keeps its stamp, and nobody has a stamp of `e` in `e + 1`: a try that met a closed slot begins
//! anew. Intents are not carried over, and marks are taken away: the tries that they belong to are over, as every step of
//! theirs is in a closed slot. An entry that names an intent names nobody then, as after a crash.
//!
//! **A process may die after any step.** After 1, others close the slots. After 2 or 3, nothing has happened. After 4 the
//! row is in both places: whoever looks for it brings it first, finds it there already, and removes it from the former
//! slot, where nobody looks for what it says. After 5 or 6, the rest is carried on by the next mover, and what is needed
//! is brought meanwhile. In 7, a slot that was dropped is empty and closed; the others are dropped again. Any number may
//! carry over at the same time, as each step may be repeated, by anybody: 6 comes after former slots were empty, which stay
//! so, and `end.lua` compares the epoch.
//!
//! **Clocks.** Times of rows are absolute. In a Cluster a row that goes to another master goes by that one's clock from
//! then on: if it is behind by a second, the row is due, and its lease ends, a second later than it would have been.
//!
//! **What it costs** is a call or two before each operation, while it lasts; and for the time in which one of the former
//! slots cannot be reached, nobody who has learned of the change can do anything until it could be closed.

use std::collections::{BTreeMap, BTreeSet};

use super::closed::is_closed;
use super::codec;
use super::database::{Database, Told};
use super::keys;
use super::repeat::Tries;
use super::together::{all, none_closed, those_that_succeeded, together};
use crate::redis::{Layout, Layouts, Lua, Slot, lua};
use crate::{Error, Key, Kind, TaskId};

static CARRY_ROWS: Lua = lua!("row.lua", "gone.lua", "carry_rows.lua");
static CARRY_KEYS: Lua = lua!("row.lua", "gone.lua", "entry.lua", "carry_keys.lua");
static CARRIED: Lua = lua!("row.lua", "carried.lua");

/// How many rows go into one call, and how many bytes of them: a bound on how long it keeps the server from others.
pub(super) const ROWS: usize = 50;
const BYTES: usize = 256 << 10;

/// Carries over the rows of these ids, and these keys with the rows that they name. Gives the layout to go by then.
pub(super) async fn bring(
    database: &Database,
    layouts: Layouts,
    ids: impl IntoIterator<Item = TaskId>,
    names: impl IntoIterator<Item = (Kind, Key)>,
) -> Result<Layout, Error> {
    if let Some(moving) = Moving::of(database, layouts) {
        let names = names.into_iter().map(|(kind, key)| codec::name(&kind, &key));
        moving.bring(ids.into_iter().collect(), names.collect()).await?;
    }
    Ok(layouts.current)
}

/// The layout to go by for the rows of these ids, which have been carried over by then; and those of them that could not be,
/// as a server does not answer. An error if that is all.
pub(super) async fn layout_with(
    database: &Database,
    tries: &mut Tries,
    ids: impl Iterator<Item = TaskId>,
) -> Result<(Layout, BTreeSet<TaskId>), Error> {
    let ids: Vec<_> = ids.collect();
    loop {
        match layout_once(database, &ids).await {
            Err(error) => tries.again(error)?,
            layout => return layout,
        }
    }
}

async fn layout_once(database: &Database, ids: &[TaskId]) -> Result<(Layout, BTreeSet<TaskId>), Error> {
    let layouts = database.layouts().await?;
    let (current, Some(former)) = (layouts.current, layouts.former) else {
        return Ok((layouts.current, BTreeSet::new()));
    };
    let mut groups = BTreeMap::<(Slot, Slot), Vec<TaskId>>::new();
    for id in ids {
        let slots = (former.slot(*id), current.slot(*id));
        groups.entry(slots).or_default().push(*id);
    }
    let calls = groups
        .values()
        .map(|ids| bring(database, layouts, ids.iter().copied(), []));
    let brought = none_closed(together(calls).await)?;
    let brought = those_that_succeeded(brought)?;
    let groups = groups.into_values().zip(brought);
    let failed = groups.filter(|(_, brought)| brought.is_none());
    Ok((current, failed.flat_map(|(ids, _)| ids).collect()))
}

/// Lets what was to be brought for a scan stay where it is for now, if a server does not answer.
pub(super) fn unless_out_of_reach(brought: Result<(), Error>) -> Result<(), Error> {
    match brought {
        Err(error) if !is_closed(&error) => {
            tracing::warn!(%error, "some tasks are out of reach, as they are still to be moved");
            Ok(())
        }
        brought => brought,
    }
}

/// A change of slots, under way.
pub(super) struct Moving<'a> {
    pub(super) database: &'a Database,
    pub(super) former: Layout,
    pub(super) current: Layout,
}

/// Fields of a hash, each with its value.
pub(super) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

impl<'a> Moving<'a> {
    /// None if no change is under way.
    pub(super) fn of(database: &'a Database, layouts: Layouts) -> Option<Self> {
        Some(Self {
            database,
            former: layouts.former?,
            current: layouts.current,
        })
    }

    async fn bring(&self, mut ids: BTreeSet<TaskId>, names: BTreeSet<String>) -> Result<(), Error> {
        let names = names.into_iter().map(String::into_bytes);
        let entries = self.fetch("keys", names, |name| keys::slot_of_name(self.former, name));
        let entries = entries.await?;
        ids.extend(entries.iter().flat_map(|(_, entry)| keys::named_in(entry)));
        let ids = ids.into_iter().map(|id| id.as_bytes().to_vec());
        let rows = self.fetch("rows", ids, |id| slot_of_id(self.former, id)).await?;
        self.carry_rows(rows).await?;
        self.carry_keys(entries).await
    }

    /// Step 3: what there is in the former slots of some fields.
    pub(super) async fn fetch(
        &self,
        name: &'static str,
        fields: impl Iterator<Item = Vec<u8>>,
        slot_of: impl Fn(&[u8]) -> Slot,
    ) -> Result<Fields, Error> {
        let mut by_slot = BTreeMap::<Slot, Vec<Vec<u8>>>::new();
        for field in fields {
            by_slot.entry(slot_of(&field)).or_default().push(field);
        }
        let parts = by_slot
            .iter()
            .flat_map(|(slot, fields)| fields.chunks(ROWS).map(|fields| (*slot, fields)));
        let calls = parts.map(|(slot, fields)| async move {
            let found = self.database.command("HMGET", slot, name, fields).await;
            let found: Vec<Option<Vec<u8>>> = found?;
            let pairs = fields.iter().zip(found);
            Ok(pairs
                .filter_map(|(field, value)| Some((field.clone(), value?)))
                .collect::<Fields>())
        });
        Ok(all(together(calls).await)?.concat())
    }

    /// Carries over rows as they are in the former slots: steps 4 and 5.
    pub(super) async fn carry_rows(&self, rows: Fields) -> Result<(), Error> {
        let ids: Vec<_> = rows.iter().map(|(id, _)| id.clone()).collect();
        self.write_rows(rows).await?;
        self.remove(ids, |id| slot_of_id(self.former, id), true).await
    }

    pub(super) async fn write_rows(&self, rows: Fields) -> Result<(), Error> {
        // What is not of the length of an id is no row that anybody can name.
        let rows = rows.into_iter().filter(|(id, _)| id.len() == 16);
        self.write(&CARRY_ROWS, Told::Yes, rows, |id| slot_of_id(self.current, id))
            .await
    }

    /// The same for the entries of keys, all of whose rows have been carried over.
    pub(super) async fn carry_keys(&self, entries: Fields) -> Result<(), Error> {
        let names: Vec<_> = entries.iter().map(|(name, _)| name.clone()).collect();
        self.write_keys(entries).await?;
        let slot_of = |name: &[u8]| keys::slot_of_name(self.former, name);
        self.remove(names, slot_of, false).await
    }

    pub(super) async fn write_keys(&self, entries: Fields) -> Result<(), Error> {
        let slot_of = |name: &[u8]| keys::slot_of_name(self.current, name);
        self.write(&CARRY_KEYS, Told::No, entries.into_iter(), slot_of)
            .await
    }

    async fn write(
        &self,
        script: &'static Lua,
        told: Told,
        fields: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
        slot_of: impl Fn(&[u8]) -> Slot,
    ) -> Result<(), Error> {
        let mut by_slot = BTreeMap::<Slot, Vec<_>>::new();
        for (field, value) in fields {
            by_slot.entry(slot_of(&field)).or_default().push((field, value));
        }
        let mut calls = Vec::new();
        for (slot, fields) in by_slot {
            let mut fields = fields.into_iter().peekable();
            while fields.peek().is_some() {
                let mut call = self.database.script(script, slot, told, self.current);
                let (mut count, mut bytes) = (0, 0);
                while let Some((field, value)) = fields.next_if(|_| count < ROWS && bytes < BYTES) {
                    call.arg(&field[..]).arg(&value[..]);
                    count += 1;
                    bytes += value.len();
                }
                calls.push(self.database.write(call));
            }
        }
        all(together(calls).await).map(drop)
    }

    /// Step 5 of what was carried over.
    pub(super) async fn remove(
        &self,
        fields: Vec<Vec<u8>>,
        slot_of: impl Fn(&[u8]) -> Slot,
        are_rows: bool,
    ) -> Result<(), Error> {
        let mut by_slot = BTreeMap::<Slot, Vec<_>>::new();
        for field in fields {
            by_slot.entry(slot_of(&field)).or_default().push(field);
        }
        let mut calls = Vec::new();
        for (slot, fields) in by_slot {
            for part in fields.chunks(ROWS) {
                let mut call = self.database.script(&CARRIED, slot, Told::OfThePast, self.former);
                call.arg(if are_rows { part.len() } else { 0 });
                for field in part {
                    call.arg(&field[..]);
                }
                calls.push(self.database.write(call));
            }
        }
        all(together(calls).await).map(drop)
    }
}

/// The slot of a row, by its field in the hash of rows.
pub(super) fn slot_of_id(layout: Layout, id: &[u8]) -> Slot {
    match <[u8; 16]>::try_from(id) {
        Ok(id) => layout.slot(TaskId::from_bytes(id)),
        Err(_) => keys::slot_of_name(layout, id),
    }
}
