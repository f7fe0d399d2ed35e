//! New rows.
//!
//! A row whose caller chose its id together with a key is in the shard of the key, and its id *points* there from the shard
//! that the id itself names. The pointer is written before the row, and never leads elsewhere. A process that dies in
//! between leaves a pointer without a row, which does no harm: who inserts the row again makes it anew. Only a row that
//! would be new needs one, so that is found out first. A row that has lost its pointer is another matter: see `pointers.rs`.

use std::collections::HashSet;

use redis::Value;

use super::answer::{self, Items};
use super::change::{note, number};
use super::codec::{self, due, maybe};
use super::database::{Database, Request};
use super::parts::Asking;
use super::pointers::{Pointer, repoint};
use super::shards::{Shard, of_id, of_key};
use crate::redis::{Lua, Role, lua};
use crate::store::merging::Answers;
use crate::store::{NewRow, Stamped, When, row};
use crate::timestamp::millis;
use crate::{Error, Scheduled, Timestamp};

static INSERT: Lua = lua!("row.lua", "order.lua", "keys.lua", "insert.lua");
static POINT: Lua = lua!("row.lua", "point.lua");

/// The most that a hash of Redis takes for one row, and a bit less.
const LARGEST: usize = 256 << 20;

/// A row to be written.
struct New {
    row: NewRow,
    /// Payload and headers as they are kept.
    payload: Vec<u8>,
    /// The shard that its id names.
    own: Shard,
    /// The shard that it belongs to.
    home: Shard,
    /// By which try its id points there; none if it does not, or need not.
    tried: Option<u64>,
    /// The number of the change that it is to a row that it replaces; none if it is to replace none.
    change: Option<u64>,
}

/// What a script says of a row.
enum Said {
    /// It is written, at this time.
    New(Timestamp),
    /// There is one, perhaps replaced by now; in another shard than its id says, if it is the same.
    Other(Box<Scheduled>, Option<Pointer>),
    /// There is none in this shard.
    Free(Shard),
}

pub(super) async fn insert(database: &Database, rows: Vec<NewRow>) -> Result<Answers<Scheduled>, Error> {
    let shards = database.shards().await?;
    let mut inserting = Inserting {
        database,
        shards,
        now: None,
        found: rows.iter().map(|_| None).collect(),
        astray: Vec::new(),
    };
    let mut news = Vec::with_capacity(rows.len());
    let mut ids = HashSet::new();
    for (place, row) in rows.into_iter().enumerate() {
        match check(&row) {
            Ok(()) => {
                if !ids.insert(row.id) {
                    inserting.insert(std::mem::take(&mut news)).await;
                    ids = [row.id].into();
                }
                let change = row.replace.then(|| number(database));
                news.push((place, New::of(row, shards, change)));
            }
            Err(error) => inserting.found[place] = Some(Err(error)),
        }
    }
    inserting.insert(news).await;
    let Inserting { now, found, .. } = inserting;
    let mut found: Vec<_> = found.into_iter().flatten().collect();
    let now = match (now, found.first()) {
        (Some(now), _) => now,
        (None, Some(_)) => {
            found.swap_remove(0)?;
            Timestamp::default()
        }
        (None, None) => database.now().await?,
    };
    Ok(Stamped { now, found })
}

/// Refuses what cannot be kept apart from other rows.
fn check(row: &NewRow) -> Result<(), Error> {
    row.kind.check()?;
    if let Some(key) = &row.key {
        key.check()?;
    }
    let texts = row.headers.iter().map(|(name, value)| name.len() + value.len());
    let size = row.payload.len() + texts.sum::<usize>();
    if size > LARGEST {
        return Err(Error::invalid(
            "payload and headers",
            format!("{size} bytes"),
            "allowed are 256 MiB",
        ));
    }
    Ok(())
}

impl New {
    fn of(row: NewRow, shards: u16, change: Option<u64>) -> Self {
        let own = of_id(shards, row.id);
        let home = row.key.as_ref().map(|key| of_key(shards, &row.kind, key));
        Self {
            payload: codec::packed_payload(&row.payload, &row.headers),
            own,
            home: home.unwrap_or(own),
            tried: None,
            change,
            row,
        }
    }

    /// As the script takes it in a shard.
    fn add(&self, shard: Shard, call: &mut Request) {
        let row = &self.row;
        let (due_in, due_at) = due(row.due);
        let tried = match self.tried {
            Some(number) => number.to_string(),
            None if shard == self.home && shard == self.own => "0".to_owned(),
            None => String::new(),
        };
        call.arg(row.id.as_bytes())
            .arg(row.kind.as_str())
            .arg(row.key.as_ref().map_or("", |key| key.as_str()))
            .arg(due_in)
            .arg(due_at)
            .arg(millis(row.look_in))
            .arg(maybe(row.max_attempts))
            .arg(maybe(self.change))
            .arg(tried)
            .arg(row.payload.len())
            .arg(&self.payload);
        note(call, &row.note);
    }

    /// The row as it was written.
    fn written(self, now: Timestamp) -> Scheduled {
        let mut row = self.row;
        if let When::At(time) = row.due {
            row.due = When::At(Timestamp::from_millis(codec::stored(time)));
        }
        Scheduled::New(row::new(row, now))
    }
}

/// Rows of a batch, each with its place.
type Placed = Vec<(usize, New)>;

/// An insert on the way.
struct Inserting<'a> {
    database: &'a Database,
    shards: u16,
    now: Option<Timestamp>,
    found: Vec<Option<Result<Scheduled, Error>>>,
    /// What was there already, in other shards than its ids say.
    astray: Vec<Pointer>,
}

impl Inserting<'_> {
    /// Rows of which no two have one id.
    async fn insert(&mut self, news: Placed) {
        let (database, shards) = (self.database, self.shards);
        // Where it is that is there, and where nothing has to point.
        let mut free = Vec::new();
        let mut unasked = Vec::new();
        for (place, mut new, shard) in self.ask(news, |new| new.own).await {
            if shard == new.home {
                free.push((place, new));
            } else if shard == new.own {
                unasked.push((place, new));
            } else if new.row.key.is_none() {
                new.home = shard;
                free.push((place, new));
            } else {
                self.found[place] = Some(Err(used(&new)));
            }
        }
        // What is there was found by where its id points.
        self.astray.clear();
        for (place, new, _) in self.ask(unasked, |new| new.home).await {
            free.push((place, new));
        }
        // And what is there now was not, so its pointer was lost: who asks again by this id must find it.
        repoint(database, shards, std::mem::take(&mut self.astray)).await;
        let pointed = self.point(free).await;
        for (place, new, _) in self.ask(pointed, |new| new.home).await {
            self.found[place] = Some(Err(used(&new)));
        }
    }

    /// Asks to insert rows in some shard; gives those back that were not, as they are free, and where.
    async fn ask(&mut self, news: Placed, shard_of: fn(&New) -> Shard) -> Vec<(usize, New, Shard)> {
        let (database, shards) = (self.database, self.shards);
        let asking = Asking {
            database,
            call: &|shard, news: &[&(usize, New)]| {
                let mut call = database.script(&INSERT, shard, shards, true).adding();
                for (_, new) in news {
                    new.add(shard, &mut call);
                }
                call
            },
            reads: false,
            size: |(_, new)| new.payload.len(),
            read: &|(_, new), shard, said, now| read(new, shard, said, now),
        };
        let asked = asking.ask(&news, |(_, new)| shard_of(new)).await;
        self.now = [self.now, asked.now].into_iter().flatten().min();
        let mut free = Vec::new();
        for ((place, new), said) in news.into_iter().zip(asked.rows) {
            self.found[place] = Some(match said {
                Ok(Said::Free(shard)) => {
                    free.push((place, new, shard));
                    continue;
                }
                Ok(Said::New(now)) => Ok(new.written(now)),
                Ok(Said::Other(scheduled, astray)) => {
                    self.astray.extend(astray);
                    Ok(*scheduled)
                }
                Err(error) => Err(error),
            });
        }
        free
    }

    /// Has ids point to where their rows are about to be; gives those that do.
    async fn point(&mut self, mut news: Placed) -> Placed {
        let (database, shards) = (self.database, self.shards);
        for (_, new) in &mut news {
            new.tried = Some(number(database));
        }
        let asking = Asking {
            database,
            call: &|shard, news: &[&(usize, New)]| {
                let mut call = database.script(&POINT, shard, shards, false);
                for (_, new) in news {
                    call.arg(new.row.id.as_bytes()).arg(new.home).arg(new.tried);
                }
                call
            },
            reads: false,
            size: |_| 0,
            read: &|(_, new), shard, said, now| match said {
                Value::Int(0) => Ok(Said::Free(shard)),
                Value::Int(_) => Err(used(new)),
                said => read(new, shard, said, now),
            },
        };
        let asked = asking.ask(&news, |(_, new)| new.own).await;
        self.now = [self.now, asked.now].into_iter().flatten().min();
        let mut pointed = Vec::new();
        for ((place, new), said) in news.into_iter().zip(asked.rows) {
            match said {
                Ok(Said::Other(scheduled, _)) => self.found[place] = Some(Ok(*scheduled)),
                Ok(_) => pointed.push((place, new)),
                Err(error) => self.found[place] = Some(Err(error)),
            }
        }
        pointed
    }
}

fn read(new: &New, shard: Shard, said: Value, now: Timestamp) -> Result<Said, Error> {
    match said {
        Value::Int(0) => return Ok(Said::New(now)),
        Value::Int(_) => return Ok(Said::Free(shard)),
        _ => {}
    }
    let mut items = Items::of(said)?;
    let what = items.number()?;
    let id = items.id()?;
    let head = items.bytes()?;
    let astray = match id == new.row.id && shard != new.own {
        true => Some(answer::brief(id, &head)?.tried).filter(|tried| *tried > 0),
        false => None,
    };
    let scheduled = match what {
        2 => Scheduled::Replaced(answer::task(id, &head, &new.payload)?),
        3 => Scheduled::Running(answer::task(id, &head, &items.bytes()?)?),
        _ => Scheduled::Existing(answer::task(id, &head, &items.bytes()?)?),
    };
    let astray = astray.map(|tried| Pointer { id, shard, tried });
    Ok(Said::Other(Box::new(scheduled), astray))
}

/// The refusal of an id that points elsewhere.
fn used(new: &New) -> Error {
    let why = format!(
        "the id {} was used with another key before; another id is needed",
        new.row.id
    );
    Role::Store.error(false, why)
}
