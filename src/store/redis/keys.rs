//! Keys where there are several slots: the row is in the slot of its id, and which row has a key is in the slot of the
//! key. A script sees one slot only, so what takes one script where there is one slot is a protocol here.
//!
//! An entry says which row may be live under a key, and has a stamp that is another one after every change. It says no
//! more than *may*: whoever wants the key looks at that row. So a row that ends never touches its entry.
//!
//! To make a row live under a key:
//!
//! 1. Write it as an *intent* (`intend.lua`), which nobody sees, with the nonce of this try; a dead row that is to be
//!    redriven is *marked* with it instead (`mark.lua`).
//! 2. Obtain the key (`obtain.lua`): if its entry names nobody, or this id, it names this id from then on, with a new
//!    stamp. Else it gives the stamp and the id of the other row.
//! 3. Look at that other row (`look.lua`). If it is live it has the key; the try is withdrawn (`withdraw.lua`), and the
//!    answer is that row, perhaps replaced. If it is an intent or marked, that try is ended: the intent is removed, the
//!    mark is taken away. Then, and if it is finished or missing, it is gone, and step 2 is made with the stamp: the entry
//!    now names this id if it still has that stamp, and else all begins again with what it says.
//! 4. Activate it (`activate.lua`): if the intent or the mark is still there with this nonce, the row becomes live. If
//!    somebody has ended the try meanwhile, another one is begun.
//!
//! **At most one row of a key is live.** A row becomes live by step 4 only, of a try for which step 2 came after step 1.
//! Let P be live or on its way, and let somebody else, Q, name itself in the entry in place of P. Q did so with a stamp
//! that it had read before it looked at P and found it gone, ending the try of P if there was one. For P to become live
//! after that look it takes another try, with an intent or a mark that is newer than the look, and then its own step 2:
//! that gave the entry a new stamp if it came before Q's, so Q's failed; and if it came after Q's, it found Q there, and
//! went on to look at Q. Stamps never repeat, also not when an entry was removed: they are ahead of the clock.
//!
//! **A process may die after any step.** After 1, an intent or a mark is left, which nobody sees, and which a sweep ends
//! after a minute. After 2, the entry names such a row as well: whoever wants the key ends the try (3), and whoever looks
//! for the row of the key sees none there, as intents are invisible. After 3, the same, or a row has been replaced, which
//! was one step. After 4, all is done. Nobody waits for anybody: no step supposes anything about time, not even the
//! minute, since a try that was ended for its age only begins again.
//!
//! A key that is removed with its last row takes the same care: see `purge.rs`.

use redis::Value;

use super::answer::{self, Items};
use super::closed::is_closed;
use super::codec;
use super::codec::{due, maybe};
use super::database::{Database, Request, Told};
use crate::redis::{Layout, Lua, Role, Slot, fnv, lua};
use crate::store::{NewRow, Stamped};
use crate::timestamp::millis;
use crate::{Answer, Error, Key, Kind, Scheduled, Task, TaskId, Timestamp, When};

static GET: Lua = lua!("row.lua", "get.lua");
static FIND: Lua = lua!("row.lua", "entry.lua", "find.lua");
static INTEND: Lua = lua!("row.lua", "intents.lua", "intend.lua");
static MARK: Lua = lua!("row.lua", "intents.lua", "mark.lua");
static OBTAIN: Lua = lua!("row.lua", "entry.lua", "obtain.lua");
static LOOK: Lua = lua!("row.lua", "intents.lua", "look.lua");
static ACTIVATE: Lua = lua!("row.lua", "intents.lua", "activate.lua");
static WITHDRAW: Lua = lua!("row.lua", "intents.lua", "withdraw.lua");

/// How often a try is begun that others have ended, or that met a key which came and went.
pub(super) const TRIES: usize = 50;
/// Nonces are kept where rows have a `wake_at`, of 6 bytes.
const NONCES: u64 = 1 << 47;

/// The slot of a key.
pub(super) fn slot_of(layout: Layout, kind: &Kind, key: &Key) -> Slot {
    slot_of_name(layout, codec::name(kind, key).as_bytes())
}

/// The same by kind, NUL and key.
pub(super) fn slot_of_name(layout: Layout, name: &[u8]) -> Slot {
    let number = fnv(name) % u64::from(layout.slots.max(1));
    Slot {
        epoch: layout.epoch,
        number: u16::try_from(number).unwrap_or(0),
    }
}

/// The ids in an entry, as it is packed: see `entry.lua`.
pub(super) fn named_in(entry: &[u8]) -> impl Iterator<Item = TaskId> {
    let (ids, _) = entry.get(8..).unwrap_or_default().as_chunks::<16>();
    ids.iter().map(|id| TaskId::from_bytes(*id))
}

/// Which rows a key has.
#[derive(Debug)]
pub(super) struct Entry {
    /// Of the moment at which it was read.
    pub(super) stamp: String,
    /// The row that may be live.
    pub(super) live: Option<TaskId>,
    /// All rows that it names, each with its value if it is in the slot of the key.
    named: Vec<(TaskId, Option<Vec<u8>>)>,
}

impl Entry {
    pub(super) async fn read(
        database: &Database,
        layout: Layout,
        kind: &Kind,
        key: &Key,
    ) -> Result<Self, Error> {
        let slot = slot_of(layout, kind, key);
        let mut find = database.script(&FIND, slot, Told::No, layout);
        find.arg(codec::name(kind, key));
        let mut items = Items::of(database.read(find).await?.found)?;
        let stamp = items.text()?;
        let has_live = items.number()? == 1;
        let mut named = Vec::new();
        while !items.is_empty() {
            named.push((items.id()?, items.bytes_if_any()?));
        }
        let live = named.first().filter(|_| has_live).map(|(id, _)| *id);
        Ok(Self { stamp, live, named })
    }
}

/// The row of an id as it is packed; in its slot.
pub(super) async fn packed(
    database: &Database,
    layout: Layout,
    slot: Slot,
    id: TaskId,
) -> Result<Option<Vec<u8>>, Error> {
    let mut get = database.script(&GET, slot, Told::No, layout);
    get.arg(id.as_bytes());
    let found = database.read(get).await?.found;
    Items::of(Value::Array(vec![found]))?.bytes_if_any()
}

/// The row that a key means: its live row, else the newest by id.
pub(super) async fn row_of(
    database: &Database,
    layout: Layout,
    kind: &Kind,
    key: &Key,
) -> Result<Option<Task>, Error> {
    let here = slot_of(layout, kind, key);
    let entry = Entry::read(database, layout, kind, key).await?;
    let mut newest: Option<Task> = None;
    for (id, value) in entry.named {
        let slot = layout.slot(id);
        let value = if slot == here {
            value
        } else {
            packed(database, layout, slot, id).await?
        };
        let Some(task) = value.map(|value| answer::task(id, &value)).transpose()?.flatten() else {
            continue;
        };
        if task.kind != *kind || task.key.as_ref() != Some(key) {
            continue;
        }
        if Some(id) == entry.live && task.state.is_live() {
            return Ok(Some(task));
        }
        if newest.as_ref().is_none_or(|newest| newest.id < id) {
            newest = Some(task);
        }
    }
    Ok(newest)
}

/// Who has a key that a try wanted.
#[derive(Debug)]
pub(super) enum Taken {
    /// The try.
    Obtained,
    /// Another row, which is live: what `look.lua` did to it, 1 (nothing), 2 (replaced it) or 3 (nothing, it runs).
    By(i64, Box<Task>),
}

/// A try to make a row live under its key.
pub(super) struct Try<'a> {
    database: &'a Database,
    layout: Layout,
    nonce: u64,
    id: TaskId,
    kind: &'a Kind,
    key: &'a Key,
}

impl<'a> Try<'a> {
    pub(super) fn new(
        database: &'a Database,
        layout: Layout,
        id: TaskId,
        kind: &'a Kind,
        key: &'a Key,
    ) -> Self {
        let nonce = 1 + database.clock.random_below(NONCES - 1);
        Self {
            database,
            layout,
            nonce,
            id,
            kind,
            key,
        }
    }

    fn script(&self, script: &'static Lua, told: Told) -> Request {
        let slot = self.layout.slot(self.id);
        self.database.script(script, slot, told, self.layout)
    }

    /// Step 1, for a new row; the row of its id if there is one, and the time.
    pub(super) async fn intend(&self, new: &NewRow) -> Result<Option<(Timestamp, Task)>, Error> {
        let mut intend = self.script(&INTEND, Told::No);
        intend
            .arg(self.nonce)
            .arg(self.id.as_bytes())
            .arg(self.kind.as_str())
            .arg(self.key.as_str())
            .arg(maybe(new.max_attempts))
            .arg(codec::rest(&new.payload, &new.headers));
        let answer = self.database.write(intend).await?;
        let mut items = Items::of(answer.found)?;
        match items.number()? {
            0 => Ok(None),
            _ => Ok(Some((answer.now, items.task(self.id)?))),
        }
    }

    /// Step 1, for a dead row of this version.
    pub(super) async fn mark(&self, version: u64) -> Result<bool, Error> {
        let mut mark = self.script(&MARK, Told::No);
        mark.arg(self.nonce).arg(self.id.as_bytes()).arg(version);
        let found = self.database.write(mark).await?.found;
        Ok(answer::number(&found)? == 1)
    }

    /// Steps 2 and 3.
    pub(super) async fn obtain(&self, replacement: Option<&NewRow>) -> Result<Taken, Error> {
        let (mut gone, mut remember) = (String::new(), false);
        for _ in 0..TRIES {
            let other;
            match self.take_from(&gone, remember).await? {
                None => return Ok(Taken::Obtained),
                Some(by) => (gone, other) = by,
            }
            let mut looked = self.look(other, replacement).await?;
            match looked.number()? {
                what @ (0 | 4) => remember = what == 4,
                what => return Ok(Taken::By(what, Box::new(looked.task(other)?))),
            }
        }
        Err(crossed())
    }

    /// Step 2, where the row that an entry of this stamp names is known to be gone; else the stamp, and who has the key.
    pub(super) async fn take_from(
        &self,
        gone: &str,
        remember: bool,
    ) -> Result<Option<(String, TaskId)>, Error> {
        let slot = slot_of(self.layout, self.kind, self.key);
        let mut obtain = self.database.script(&OBTAIN, slot, Told::No, self.layout);
        obtain
            .arg(codec::name(self.kind, self.key))
            .arg(self.id.as_bytes())
            .arg(gone)
            .arg(u8::from(remember));
        let mut items = Items::of(self.database.write(obtain).await?.found)?;
        match items.number()? {
            0 => Ok(None),
            _ => Ok(Some((items.text()?, items.id()?))),
        }
    }

    /// Step 3.
    pub(super) async fn look(&self, other: TaskId, replacement: Option<&NewRow>) -> Result<Items, Error> {
        let slot = self.layout.slot(other);
        let mut look = self.database.script(&LOOK, slot, Told::Yes, self.layout);
        look.arg(other.as_bytes())
            .arg(self.kind.as_str())
            .arg(self.key.as_str())
            .arg(u8::from(replacement.is_some()));
        if let Some(new) = replacement {
            let (due_in, due_at) = due(new.due);
            look.arg(due_in)
                .arg(due_at)
                .arg(millis(new.look_in))
                .arg(maybe(new.max_attempts))
                .arg(codec::rest(&new.payload, &new.headers));
        }
        Items::of(self.database.write(look).await?.found)
    }

    /// Step 4; none if somebody has ended the try.
    pub(super) async fn activate(
        &self,
        when: When,
        look_in: i64,
    ) -> Result<Option<(Timestamp, Task)>, Error> {
        let mut activate = self.script(&ACTIVATE, Told::Yes);
        let (due_in, due_at) = due(when);
        activate
            .arg(self.nonce)
            .arg(self.id.as_bytes())
            .arg(due_in)
            .arg(due_at)
            .arg(look_in);
        let answer = self.database.write(activate).await?;
        let mut items = Items::of(answer.found)?;
        match items.number()? {
            1 => Ok(Some((answer.now, items.task(self.id)?))),
            _ => Ok(None),
        }
    }

    pub(super) async fn withdraw(&self) -> Result<Timestamp, Error> {
        let mut withdraw = self.script(&WITHDRAW, Told::No);
        withdraw.arg(self.nonce).arg(self.id.as_bytes());
        match self.database.write(withdraw).await {
            Ok(answer) => Ok(answer.now),
            // A try ends with its epoch, and the answer is known: it must not be asked for again.
            Err(error) if is_closed(&error) => self.database.now(self.layout).await,
            Err(error) => Err(error),
        }
    }
}

/// Writes a new row of this key.
pub(super) async fn insert(
    database: &Database,
    layout: Layout,
    key: &Key,
    new: &NewRow,
) -> Result<Stamped<Scheduled>, Error> {
    for _ in 0..TRIES {
        let attempt = Try::new(database, layout, new.id, &new.kind, key);
        if let Some((now, task)) = attempt.intend(new).await? {
            let found = Scheduled::Existing(task);
            return Ok(Stamped { now, found });
        }
        let replacement = Some(new).filter(|new| new.replace);
        match attempt.obtain(replacement).await? {
            Taken::By(what, task) => {
                let now = attempt.withdraw().await?;
                let found = match what {
                    2 => Scheduled::Replaced(*task),
                    3 => Scheduled::Running(*task),
                    _ => Scheduled::Existing(*task),
                };
                return Ok(Stamped { now, found });
            }
            Taken::Obtained => {
                if let Some((now, task)) = attempt.activate(new.due, millis(new.look_in)).await? {
                    let found = Scheduled::New(task);
                    return Ok(Stamped { now, found });
                }
            }
        }
    }
    Err(crossed())
}

/// Redrives a dead row that has a key, as it was found; none if it is no more so.
pub(super) async fn redrive(
    database: &Database,
    layout: Layout,
    dead: &Task,
    look_in: i64,
) -> Result<Option<Answer>, Error> {
    let Some(key) = &dead.key else {
        return Ok(None);
    };
    let attempt = Try::new(database, layout, dead.id, &dead.kind, key);
    if !attempt.mark(dead.version).await? {
        return Ok(None);
    }
    match attempt.obtain(None).await? {
        Taken::By(_, task) => {
            attempt.withdraw().await?;
            Ok(Some(Answer::Conflict(*task)))
        }
        Taken::Obtained => {
            let now = When::After(std::time::Duration::ZERO);
            let redriven = attempt.activate(now, look_in).await?;
            Ok(redriven.map(|(_, task)| Answer::Done(task)))
        }
    }
}

/// Others came and went at a key again and again while it was wanted here.
pub(super) fn crossed() -> Error {
    let why = format!("a key was taken and given back by others {TRIES} times; nothing was done");
    Role::Store.error(true, why)
}
