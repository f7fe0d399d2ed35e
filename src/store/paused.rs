//! Which kinds are paused, as the store has it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::debug;

use crate::clock::Clock;
use crate::store::shard_hash;
use crate::store::store_time::StoreTime;
use crate::store::{Change, Expect, NewRow, Note, Page, Store, Target, Verb, When, only};
use crate::{Answer, Error, Key, Kind, State, Task, Timestamp};

/// A kind whose tasks wait, due or not, until it is resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Paused {
    /// Its tasks are not started.
    pub kind: Kind,
    /// Since when, by the store's clock.
    pub since: Timestamp,
    /// Until when, by the store's clock; none: until it is resumed.
    pub until: Option<Timestamp>,
    /// Why, as the caller that paused it has said.
    pub reason: String,
    /// Who paused it, as [histories](crate::history::Entry::actor) name it; none of a pause by an earlier release.
    pub actor: Option<String>,
}

impl Paused {
    /// The kind of the rows that say which kinds are paused: each is scheduled, for ever, under the paused kind as its key.
    //
    // A row and no table of its own, so that every store can do it; it is never due, so that it has no wake-up.
    pub const KIND: &str = "delayline.paused";
}

/// How many bytes a reason may have.
const LONGEST_REASON: usize = 1_000;
/// How many bytes of the name of an actor are kept.
const LONGEST_ACTOR: usize = 255;
/// How many kinds may be paused at once: every process reads all pauses, once a second while something is due.
const MOST: usize = 1_000;
/// How many marks are read at once, and how many bytes one may have: longer ones are none of a pause, and are not looked into.
const PAGE: usize = 64;
const LONGEST_MARK: usize = 16 << 10;

/// The payload of a mark.
#[derive(Serialize, Deserialize)]
struct Mark {
    until: Option<Timestamp>,
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    actor: Option<String>,
}

/// Refuses the kind of pauses, where a task is meant: a task of it would be a pause.
pub(crate) fn check_task(kind: &Kind) -> Result<(), Error> {
    match kind.as_str() == Paused::KIND {
        true => Err(Error::invalid(
            "kind",
            kind,
            "allowed is any other: these tasks are pauses, made by Scheduler::pause",
        )),
        false => Ok(()),
    }
}

/// Pauses a kind, or changes until when and why it is paused.
pub(crate) async fn pause(
    (store, time): (&dyn Store, &StoreTime),
    clock: &Clock,
    kind: &Kind,
    until: Option<Timestamp>,
    reason: &str,
    (actor, note): (&str, Note),
) -> Result<Paused, Error> {
    kind.check()?;
    check_task(kind)?;
    if reason.len() > LONGEST_REASON {
        return Err(Error::invalid(
            "reason",
            format_args!("{} bytes", reason.len()),
            format!("allowed are up to {LONGEST_REASON} bytes"),
        ));
    }
    if let Some(until) = until
        && until <= time.ask(store).await?.shown()
    {
        return Err(Error::invalid(
            "until",
            until,
            "allowed is a time to come, or none",
        ));
    }
    let of_marks = Kind::from(Paused::KIND);
    let counted = store
        .due_within(&of_marks, State::Scheduled, &[Duration::MAX], MOST)
        .await?;
    let mark = Target::from((Paused::KIND, kind.as_str()));
    if counted.found.contains(&MOST)
        && store
            .find(&mark)
            .await?
            .is_none_or(|mark| mark.state != State::Scheduled)
    {
        return Err(Error::invalid(
            "kind",
            kind,
            format!("allowed are {MOST} paused kinds, and there are as many: resume one first"),
        ));
    }
    let mark = Mark {
        until,
        reason: reason.to_owned(),
        actor: Some(actor[..actor.floor_char_boundary(LONGEST_ACTOR)].to_owned()),
    };
    let payload = serde_json::to_vec(&mark).map_err(|source| Error::Encode {
        kind: Paused::KIND.to_owned(),
        source,
    })?;
    let key = Key::from(kind.as_str());
    let row = NewRow {
        id: shard_hash::id_with_key(clock.new_id(), &of_marks, &key),
        kind: of_marks,
        key: Some(key),
        payload,
        headers: BTreeMap::new(),
        due: When::At(Timestamp::MAX),
        overdue_after: Duration::MAX,
        max_attempts: None,
        replace: true,
        note,
    };
    let written = only(time.of(store.insert(vec![row])).await?.found)??;
    Ok(paused(written.task(), kind.clone(), mark))
}

/// Resumes a kind; says whether it was paused.
pub(crate) async fn resume(
    (store, time): (&dyn Store, &StoreTime),
    kind: &Kind,
    note: Note,
) -> Result<bool, Error> {
    kind.check()?;
    let mark = Target::from((Paused::KIND, kind.as_str()));
    let resumed = time
        .of(store.change(vec![removal(mark, Expect::Anything, note)]))
        .await?;
    Ok(matches!(only(resumed.found)??, Answer::Done(_)))
}

/// The kinds that are paused, by name; and the changes that remove marks whose time is over.
pub(crate) async fn all(store: &dyn Store, time: &StoreTime) -> Result<(Vec<Paused>, Vec<Change>), Error> {
    let mut marks = Vec::new();
    let mut page = Page::new(Paused::KIND, State::Scheduled).limit(PAGE);
    loop {
        let rows = store.list(&page).await?;
        let Some(last) = rows.last() else { break };
        page.after = Some((last.due_at, last.id));
        let is_last = rows.len() < page.limit;
        marks.extend(rows.into_iter().map(|mut row| {
            let payload = std::mem::take(&mut row.payload);
            (row, read(&payload))
        }));
        if is_last {
            break;
        }
    }
    if marks.is_empty() {
        return Ok(Default::default());
    }
    let now = time.ask(store).await?.shown();
    let (mut found, mut over) = (Vec::with_capacity(marks.len()), Vec::new());
    for (row, mark) in marks {
        let Some(key) = &row.key else { continue };
        if mark.until.is_some_and(|until| until <= now) {
            // Unless it was paused anew.
            let expect = Expect::Version(row.version);
            over.push(removal(row.id.into(), expect, Note::default()));
            continue;
        }
        found.push(paused(&row, key.as_str().into(), mark));
    }
    found.sort_by(|one, other| one.kind.cmp(&other.kind));
    Ok((found, over))
}

/// Removes marks whose time is over. They hold up nothing, so those that cannot be removed are left for later.
pub(crate) async fn remove(store: &dyn Store, time: &StoreTime, over: Vec<Change>) {
    let error = match time.of(store.change(over)).await {
        Ok(removed) => removed.found.into_iter().find_map(Result::err),
        Err(error) => Some(error),
    };
    if let Some(error) = error {
        debug!(%error, "pauses that are over are not all removed; it is tried again");
    }
}

/// What a mark says. What is no mark of this release's pauses all the same: to stop a kind is the safe side.
fn read(payload: &[u8]) -> Mark {
    let unreadable = |why: String| Mark {
        until: None,
        reason: format!("the reason cannot be read: {why}"),
        actor: None,
    };
    match payload.len() > LONGEST_MARK {
        true => unreadable(format!("it has {} bytes", payload.len())),
        false => serde_json::from_slice(payload).unwrap_or_else(|error| unreadable(error.to_string())),
    }
}

fn paused(row: &Task, kind: Kind, mark: Mark) -> Paused {
    Paused {
        kind,
        since: row.created_at,
        until: mark.until,
        reason: mark.reason,
        actor: mark.actor,
    }
}

fn removal(target: Target, expect: Expect, note: Note) -> Change {
    let verb = Verb::Cancel;
    Change {
        target,
        verb,
        expect,
        note,
    }
}
