//! Which kinds are paused, as the store has it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::scheduler::only;
use crate::store::{Change, Expect, NewRow, Page, Store, Target, Verb, When};
use crate::{Answer, Error, Key, Kind, State, Task, Timestamp, defaults, place};

/// A kind whose tasks wait, due or not, until it is resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Paused {
    /// Its tasks are not started.
    pub kind: Kind,
    /// Since when, by the store's clock.
    pub since: Timestamp,
    /// Until when, by the store's clock; none: until somebody resumes it.
    pub until: Option<Timestamp>,
    /// Why, as whoever paused it has said.
    pub reason: String,
}

impl Paused {
    /// The kind of the rows that say which kinds are paused: each is scheduled, for ever, under the paused kind as its key.
    //
    // A row and no table of its own, so that every store can do it; it is never due, so that it has no wake-up.
    pub const KIND: &str = "delayline.paused";
}

/// How many bytes a reason may have.
const LONGEST_REASON: usize = 1_000;

/// The payload of a mark.
#[derive(Serialize, Deserialize)]
struct Mark {
    until: Option<Timestamp>,
    reason: String,
}

/// Pauses a kind, or changes until when and why it is paused.
pub(crate) async fn pause(
    store: &dyn Store,
    clock: &Clock,
    kind: &Kind,
    until: Option<Timestamp>,
    reason: &str,
) -> Result<Paused, Error> {
    kind.check()?;
    if kind.as_str() == Paused::KIND {
        return Err(Error::invalid(
            "kind",
            kind,
            "allowed is any other: these tasks are pauses",
        ));
    }
    if reason.len() > LONGEST_REASON {
        return Err(Error::invalid(
            "reason",
            format_args!("{} bytes", reason.len()),
            format!("allowed are up to {LONGEST_REASON} bytes"),
        ));
    }
    if let Some(until) = until
        && until <= store.now().await?
    {
        return Err(Error::invalid(
            "until",
            until,
            "allowed is a time to come, or none",
        ));
    }
    let mark = Mark {
        until,
        reason: reason.to_owned(),
    };
    let payload = serde_json::to_vec(&mark).map_err(|source| Error::Encode {
        kind: Paused::KIND.to_owned(),
        source,
    })?;
    let (of_marks, key) = (Kind::from(Paused::KIND), Key::from(kind.as_str()));
    let row = NewRow {
        id: place::id_with_key(clock.new_id(), &of_marks, &key),
        kind: of_marks,
        key: Some(key),
        payload,
        headers: BTreeMap::new(),
        due: When::At(Timestamp::MAX),
        look_in: Duration::MAX,
        max_attempts: None,
        replace: true,
        note: Default::default(),
    };
    let written = only(store.insert(vec![row]).await?.found)??;
    Ok(paused(written.task(), kind.clone(), mark))
}

/// Resumes a kind; says whether it was paused.
pub(crate) async fn resume(store: &dyn Store, kind: &Kind) -> Result<bool, Error> {
    kind.check()?;
    let mark = Target::from((Paused::KIND, kind.as_str()));
    Ok(matches!(
        remove(store, mark, Expect::Anything).await?,
        Answer::Done(_)
    ))
}

/// The kinds that are paused, by name. Marks whose time is over are removed.
pub(crate) async fn all(store: &dyn Store) -> Result<Vec<Paused>, Error> {
    let mut marks = Vec::new();
    let mut page = Page::new(Paused::KIND, State::Scheduled).limit(defaults::BATCH);
    loop {
        let rows = store.list(&page).await?;
        let Some(last) = rows.last() else { break };
        page.after = Some((last.due_at, last.id));
        let is_last = rows.len() < page.limit;
        marks.extend(rows);
        if is_last {
            break;
        }
    }
    if marks.is_empty() {
        return Ok(Vec::new());
    }
    let now = store.now().await?;
    let mut found = Vec::with_capacity(marks.len());
    for row in marks {
        // What is no mark of this release's pauses all the same: to stop a kind is the safe side.
        let mark = serde_json::from_slice(&row.payload).unwrap_or_else(|error| Mark {
            until: None,
            reason: format!("the reason cannot be read: {error}"),
        });
        let Some(key) = &row.key else { continue };
        if mark.until.is_some_and(|until| until <= now) {
            // Unless somebody has paused it anew.
            let _ = remove(store, Target::Id(row.id), Expect::Version(row.version)).await?;
            continue;
        }
        found.push(paused(&row, key.as_str().into(), mark));
    }
    found.sort_by(|one, other| one.kind.cmp(&other.kind));
    Ok(found)
}

fn paused(row: &Task, kind: Kind, mark: Mark) -> Paused {
    Paused {
        kind,
        since: row.created_at,
        until: mark.until,
        reason: mark.reason,
    }
}

async fn remove(store: &dyn Store, target: Target, expect: Expect) -> Result<Answer, Error> {
    let verb = Verb::Cancel;
    let change = Change {
        target,
        verb,
        expect,
        note: Default::default(),
    };
    only(store.change(vec![change]).await?.found)?
}
