//! Writes new rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;

use super::codec;
use super::database::Database;
use super::read::{Extra, Lookup, look_up};
use super::shards::{Shard, home, may_be_elsewhere};
use super::write::{outcome, parts};
use crate::redis::{Call, Lua, lua};
use crate::store::table::Outcome;
use crate::store::{NewRow, Stamped, When};
use crate::task::timestamp::millis;
use crate::{Error, Key, Timestamp};

static INSERT: Lua = lua!("shard.lua", "index.lua", "insert.lua");

/// The most that a hash of Redis takes for one row, and a bit less.
const LARGEST: usize = 256 << 20;

/// Refuses what cannot be kept apart from other rows.
fn check(row: &NewRow) -> Result<(), Error> {
    row.kind.check()?;
    row.key.as_ref().map_or(Ok(()), Key::check)?;
    let size = row.bytes();
    match size > LARGEST {
        false => Ok(()),
        true => Err(Error::invalid(
            "payload and headers",
            format!("{size} bytes"),
            "allowed are 256 MiB",
        )),
    }
}

pub(super) async fn insert(
    database: &Arc<Database>,
    rows: &[NewRow],
) -> Result<Stamped<Vec<Outcome>>, Error> {
    database.keeps().await?;
    let shards = database.shards().await?;
    let mut ids = BTreeSet::new();
    let checked = rows.iter().map(|row| match check(row) {
        Err(error) => Some(Outcome::Refused(error)),
        // Of twins the first counts.
        Ok(()) => (!ids.insert(row.id)).then_some(Outcome::Lost),
    });
    let mut came: Vec<_> = checked.collect();
    lose_those_elsewhere(database, shards, rows, &mut came).await?;
    let places = (0..rows.len()).filter(|&place| came[place].is_none());
    let home = |row: &NewRow| home(shards, row.id, &row.kind, row.key.as_ref());
    let places = places.map(|place| (home(&rows[place]), place));
    let calls = parts(places, |place| rows[place].bytes());
    let (mut calls, mut failure) = (calls.into_iter(), None);
    let mut settle = |part: Vec<usize>, said: Result<Stamped<Vec<u8>>, Error>| {
        let now = said.as_ref().ok().map(|said| said.now);
        for (at, place) in part.into_iter().enumerate() {
            came[place] = Some(match &said {
                Ok(said) => outcome(said.found.get(at)),
                Err(error) => Outcome::Refused(error.once_more()),
            });
        }
        failure = failure.take().or(said.err());
        now
    };
    // The first that is written says the moment of all.
    let mut now = None;
    while now.is_none()
        && let Some((shard, part)) = calls.next()
    {
        let said = insert_part(database, shards, shard, rows, &part, None).await;
        now = settle(part, said);
    }
    let others = calls.map(|(shard, part)| async move {
        let said = insert_part(database, shards, shard, rows, &part, now).await;
        (part, said)
    });
    for (part, said) in join_all(others).await {
        settle(part, said);
    }
    let now = match (now, failure) {
        (Some(now), _) => now,
        (None, Some(error)) => return Err(error),
        (None, None) => database.now().await?,
    };
    let found = came.into_iter().map(|came| came.unwrap_or(Outcome::Lost));
    let found = found.collect();
    Ok(Stamped { now, found })
}

/// Says of rows whose ids are there, in other shards than they belong to, that they are lost.
async fn lose_those_elsewhere(
    database: &Arc<Database>,
    shards: u16,
    rows: &[NewRow],
    came: &mut [Option<Outcome>],
) -> Result<(), Error> {
    let may_be = |place: &usize| came[*place].is_none() && may_be_elsewhere(shards, &rows[*place]);
    let places: Vec<_> = (0..rows.len()).filter(may_be).collect();
    if places.is_empty() {
        return Ok(());
    }
    let asked: Vec<_> = places.iter().map(|&place| Lookup::Id(rows[place].id)).collect();
    let seen = look_up(database, &asked, Extra::Nothing).await?.found;
    for (place, seen) in places.into_iter().zip(seen) {
        came[place] = match seen {
            Ok(seen) => seen.map(|_| Outcome::Lost),
            Err(error) => Some(Outcome::Refused(error)),
        };
    }
    Ok(())
}

/// Writes rows of one shard, at `now` if that is known; says when, and of each row a digit.
async fn insert_part(
    database: &Database,
    shards: u16,
    shard: Shard,
    rows: &[NewRow],
    part: &[usize],
    now: Option<Timestamp>,
) -> Result<Stamped<Vec<u8>>, Error> {
    let mut call = database.publishing(&INSERT, shard, shards);
    call.arg(now.map_or_else(String::new, |now| now.as_millis().to_string()));
    for &place in part {
        add(&mut call, &rows[place]);
    }
    database.write(shard, call).await
}

fn add(call: &mut Call, new: &NewRow) {
    let (row, _) = new.row(Timestamp::default());
    call.arg(row.id.as_bytes())
        .arg(row.kind.as_str())
        .arg(row.key.as_ref().map_or("", Key::as_str));
    match new.due {
        When::After(delay) => call.arg(millis(delay)),
        When::At(time) => call.arg(format!("@{}", time.as_millis())),
    };
    call.arg(millis(new.overdue_after))
        .arg(codec::head(&row))
        .arg(codec::packed(&row.payload, &row.headers))
        .arg(new.note.event.as_deref().unwrap_or_default());
}
