//! Looks ahead.

use super::answer::Items;
use super::database::{Database, Told};
use super::moving;
use super::repeat::Tries;
use super::together::{none_closed, those_that_succeeded, together};
use crate::redis::{Layout, Lua, Slot, lua};
use crate::store::{Ahead, Pending, Stamped};
use crate::timestamp::millis;
use crate::{Error, Timestamp};

static UPCOMING: Lua = lua!("row.lua", "ahead.lua", "upcoming.lua");

/// Where a look goes on that one call was not enough for.
pub(super) struct Further {
    kind: String,
    given: i64,
    due: String,
    id: Vec<u8>,
}

impl Further {
    /// None if that was all.
    pub(super) fn read(mut items: Items) -> Result<Option<Self>, Error> {
        if items.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            kind: items.text()?,
            given: items.number()?,
            due: items.text()?,
            id: items.bytes()?,
        }))
    }
}

pub(super) async fn upcoming(database: &Database, ahead: Ahead) -> Result<Stamped<Vec<Pending>>, Error> {
    let mut tries = Tries::default();
    loop {
        match upcoming_once(database, ahead).await {
            Err(error) => tries.again(error)?,
            found => return found,
        }
    }
}

async fn upcoming_once(database: &Database, ahead: Ahead) -> Result<Stamped<Vec<Pending>>, Error> {
    let layouts = database.layouts().await?;
    if let Some(former) = layouts.former {
        let answers = in_all(database, former, Told::OfThePast, ahead).await?;
        let rows = answers.into_iter().flat_map(|answer| answer.found);
        moving::bring(database, layouts, rows.map(|row| row.wake.id), []).await?;
    }
    let mut now: Option<Timestamp> = None;
    let mut found = Vec::new();
    for answer in in_all(database, layouts.current, Told::No, ahead).await? {
        now = Some(now.map_or(answer.now, |now| now.min(answer.now)));
        found.extend(answer.found);
    }
    found.sort_by_key(|row| (row.due_at, row.wake.id));
    found.truncate(ahead.limit);
    let now = now.unwrap_or_default();
    Ok(Stamped { now, found })
}

/// What comes next in each slot that can be reached.
async fn in_all(
    database: &Database,
    layout: Layout,
    told: Told,
    ahead: Ahead,
) -> Result<Vec<Stamped<Vec<Pending>>>, Error> {
    let calls = layout
        .all()
        .map(|slot| all_of(database, layout, slot, told, ahead));
    let answers = those_that_succeeded(none_closed(together(calls).await)?)?;
    Ok(answers.into_iter().flatten().collect())
}

/// What comes next in one slot, and the time when the look began.
async fn all_of(
    database: &Database,
    layout: Layout,
    slot: Slot,
    told: Told,
    ahead: Ahead,
) -> Result<Stamped<Vec<Pending>>, Error> {
    let Stamped {
        now,
        found: (mut found, mut further),
    } = page(database, layout, slot, told, ahead, None).await?;
    while let Some(on) = further {
        let more;
        (more, further) = page(database, layout, slot, told, ahead, Some(on)).await?.found;
        found.extend(more);
    }
    Ok(Stamped { now, found })
}

/// As many as one call gives, and where to go on.
pub(super) async fn page(
    database: &Database,
    layout: Layout,
    slot: Slot,
    told: Told,
    ahead: Ahead,
    on: Option<Further>,
) -> Result<Stamped<(Vec<Pending>, Option<Further>)>, Error> {
    let mut call = database.script(&UPCOMING, slot, told, layout);
    call.arg(millis(ahead.within))
        .arg(millis(Ahead::SINCE))
        .arg(ahead.limit);
    if let Some(on) = on {
        call.arg(on.kind).arg(on.given).arg(on.due).arg(on.id);
    }
    let answer = database.write_if_near(call).await?;
    let mut items = Items::of(answer.found)?;
    let found = rows(items.items()?)?;
    let further = Further::read(items.items()?)?;
    Ok(Stamped {
        now: answer.now,
        found: (found, further),
    })
}

/// Rows as looks ahead give them: ids and first bytes.
pub(super) fn rows(mut items: Items) -> Result<Vec<Pending>, Error> {
    let mut found = Vec::new();
    while !items.is_empty() {
        let id = items.id()?;
        found.push(items.brief(id)?.pending);
    }
    Ok(found)
}
