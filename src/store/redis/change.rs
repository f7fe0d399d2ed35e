//! Changes of rows, for their callers.

use std::collections::{BTreeMap, HashSet};

use futures_util::stream::{FuturesOrdered, StreamExt};
use redis::Value;

use super::answer::Items;
use super::closed::is_closed;
use super::codec::due;
use super::database::{Database, Request, Told};
use super::moving;
use super::repeat::{Done, Tries};
use super::together::{ON_THE_WAY, together};
use super::{codec, keys};
use crate::redis::{Layout, Lua, Slot, lua};
use crate::store::{Change, Expect, Stamped, Verb};
use crate::timestamp::millis;
use crate::{Answer, Error, Key, Kind, Target, Task, TaskId, Timestamp, When};

static CHANGE: Lua = lua!("row.lua", "entry.lua", "change.lua");

/// How many changes go into one call.
const CHANGES: usize = 50;

type Placed = Vec<(usize, Change)>;
type Answers = Done<(usize, Stamped<Result<Answer, Error>>), (usize, Change)>;

/// What came of each change: one whose row cannot be read must not spoil the answers of the others, which were made.
pub(super) type Changed = Stamped<Vec<Result<Answer, Error>>>;

pub(super) async fn change(database: &Database, changes: Vec<Change>) -> Result<Changed, Error> {
    if changes.is_empty() {
        let now = database.now(database.layouts().await?.current).await?;
        return Ok(Stamped {
            now,
            found: Vec::new(),
        });
    }
    let mut answers = Vec::with_capacity(changes.len());
    let mut left: Placed = changes.into_iter().enumerate().collect();
    let mut tries = Tries::default();
    while !left.is_empty() {
        let layout = match bring(database, &left).await {
            Ok(layout) => layout,
            Err(error) => {
                tries.again(error)?;
                continue;
            }
        };
        let mut runs = runs(std::mem::take(&mut left)).into_iter();
        for run in runs.by_ref() {
            let done = together_in(database, layout, run).await?;
            answers.extend(done.answers);
            left = done.left;
            if let Some(error) = done.closed {
                tries.again(error)?;
                break;
            }
        }
        left.extend(runs.flatten());
        left.sort_by_key(|(place, _)| *place);
    }
    answers.sort_by_key(|(place, _)| *place);
    let now = answers.iter().map(|(_, answer)| answer.now).min();
    Ok(Stamped {
        now: now.unwrap_or_default(),
        found: answers.into_iter().map(|(_, answer)| answer.found).collect(),
    })
}

/// Brings what changes mean, while rows are being carried over. Who redrives a row means its key as well.
async fn bring(database: &Database, changes: &Placed) -> Result<Layout, Error> {
    let layouts = database.layouts().await?;
    if layouts.former.is_none() {
        return Ok(layouts.current);
    }
    let (mut ids, mut names, mut redriven) = (Vec::new(), Vec::new(), Vec::new());
    for (_, change) in changes {
        match &change.target {
            Target::Id(id) => {
                ids.push(*id);
                if matches!(change.verb, Verb::Redrive { .. }) {
                    redriven.push(*id);
                }
            }
            Target::Key(kind, key) => names.push((kind.clone(), key.clone())),
        }
    }
    let layout = moving::bring(database, layouts, ids, names).await?;
    let mut names = Vec::new();
    for id in redriven {
        let value = keys::packed(database, layout, layout.slot(id), id).await?;
        // Another one that cannot be read is of no concern here.
        if let Some(Ok(Some(Task {
            kind, key: Some(key), ..
        }))) = value.map(|value| codec::task(id, &value))
        {
            names.push((kind, key));
        }
    }
    moving::bring(database, layouts, [], names).await
}

/// Parts of a batch, one after the other, within each of which the order does not matter.
fn runs(changes: Placed) -> Vec<Placed> {
    let mut runs: Vec<Placed> = Vec::new();
    let mut last = Run::default();
    for (place, change) in changes {
        match runs.last_mut() {
            Some(run) if last.takes(&change) => run.push((place, change)),
            _ => {
                last = Run::default();
                last.takes(&change);
                runs.push(vec![(place, change)]);
            }
        }
    }
    runs
}

/// What the changes of one part mean.
#[derive(Default)]
struct Run {
    ids: HashSet<TaskId>,
    names: HashSet<(Kind, Key)>,
    has_redrive: bool,
}

impl Run {
    /// Takes a change, unless it may mean a row that another one means: an id and a key may mean the same one, and a row
    /// that is redriven changes what its key means.
    fn takes(&mut self, change: &Change) -> bool {
        let is_first = self.ids.is_empty() && self.names.is_empty();
        let is_redrive = matches!(change.verb, Verb::Redrive { .. });
        if !is_first && (self.has_redrive || is_redrive) {
            return false;
        }
        self.has_redrive = is_redrive;
        match &change.target {
            Target::Id(id) => self.names.is_empty() && self.ids.insert(*id),
            Target::Key(kind, key) => self.ids.is_empty() && self.names.insert((kind.clone(), key.clone())),
        }
    }
}

async fn together_in(database: &Database, layout: Layout, changes: Placed) -> Result<Answers, Error> {
    let is_single = layout.slots == 1;
    let mut by_slot = BTreeMap::<Slot, Placed>::new();
    let mut by_key = Vec::new();
    for (place, change) in changes {
        match &change.target {
            Target::Id(id) => by_slot.entry(layout.slot(*id)).or_default().push((place, change)),
            Target::Key(kind, key) if is_single => by_slot
                .entry(keys::slot_of(layout, kind, key))
                .or_default()
                .push((place, change)),
            Target::Key(kind, key) => {
                let name = (kind.clone(), key.clone());
                by_key.push((place, name, change));
            }
        }
    }
    let mut done = Answers::new();
    let calls = by_slot
        .into_iter()
        .map(|(slot, changes)| in_slot(database, layout, slot, changes));
    for result in together(calls).await {
        done.add(result?);
    }
    let calls = by_key.into_iter().map(|(place, name, change)| async move {
        let mut done = Answers::new();
        match by_key_alone(database, layout, &name, &change).await {
            Ok(answer) => done.answers.push((place, answer)),
            Err(error) => return done.closed(error, [(place, change)]),
        }
        Ok(done)
    });
    for result in together(calls).await {
        done.add(result?);
    }
    Ok(done)
}

/// The changes of rows of one slot, whose order does not matter.
async fn in_slot(database: &Database, layout: Layout, slot: Slot, changes: Placed) -> Result<Answers, Error> {
    let mut done = Answers::new();
    let mut changes = changes.into_iter().peekable();
    let mut on_the_way = FuturesOrdered::new();
    loop {
        while on_the_way.len() < ON_THE_WAY && changes.peek().is_some() {
            let part: Placed = changes.by_ref().take(CHANGES).collect();
            let mut call = database.script(&CHANGE, slot, Told::Yes, layout);
            call.arg(u8::from(layout.slots == 1))
                .arg(millis(database.settings.history));
            for (_, change) in &part {
                add(&mut call, change);
            }
            on_the_way.push_back(async move { (part, database.write(call).await) });
        }
        let Some((part, answer)) = on_the_way.next().await else {
            return Ok(done);
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                done = done.closed(error, part)?;
                continue;
            }
        };
        let now = answer.now;
        let mut items = Items::of(answer.found)?;
        for (place, change) in part {
            let found = match said(items.value()?) {
                Ok(Said::Answer(found)) => Ok(found),
                Ok(Said::ToRedrive(dead)) => match redrive(database, layout, &change, dead).await {
                    Err(error) if is_closed(&error) => {
                        done = done.closed(error, [(place, change)])?;
                        continue;
                    }
                    found => found,
                },
                Err(error) => Err(error),
            };
            done.answers.push((place, Stamped { now, found }));
        }
    }
}

fn add(call: &mut Request, change: &Change) {
    match &change.target {
        Target::Id(id) => call.arg(id.as_bytes()).arg("").arg(""),
        Target::Key(kind, key) => call.arg("").arg(kind.as_str()).arg(key.as_str()),
    };
    let (verb, when, look_in) = match change.verb {
        Verb::Reschedule { due, look_in } => (0, due, millis(look_in)),
        Verb::RunNow { look_in } => (1, When::At(Timestamp::default()), millis(look_in)),
        Verb::Cancel => (2, When::At(Timestamp::default()), 0),
        Verb::Redrive { look_in } => (3, When::At(Timestamp::default()), millis(look_in)),
    };
    let (due_in, due_at) = due(when);
    let (expect, expected) = match change.expect {
        Expect::Anything => (0, String::new()),
        Expect::Version(version) => (1, version.to_string()),
        Expect::Due(due_at) => (2, codec::stored(due_at).to_string()),
    };
    call.arg(verb)
        .arg(due_in)
        .arg(due_at)
        .arg(look_in)
        .arg(expect)
        .arg(expected);
}

/// What a script says of one change.
enum Said {
    Answer(Answer),
    /// A dead row whose key is in another slot.
    ToRedrive(Task),
}

fn said(value: Value) -> Result<Said, Error> {
    if value == Value::Int(4) {
        return Ok(Said::Answer(Answer::NotFound));
    }
    let mut items = Items::of(value)?;
    let what = items.number()?;
    let id = items.id()?;
    let task = items.task(id)?;
    Ok(match what {
        0 => Said::Answer(Answer::Done(task)),
        1 => Said::Answer(Answer::TooLate(task)),
        3 => Said::Answer(Answer::Conflict(task)),
        5 => Said::ToRedrive(task),
        _ => Said::Answer(Answer::Finished(task)),
    })
}

/// Redrives a dead row whose key is in another slot. If it is not as it was found any more, it is asked anew.
async fn redrive(
    database: &Database,
    layout: Layout,
    change: &Change,
    mut dead: Task,
) -> Result<Answer, Error> {
    let Verb::Redrive { look_in } = change.verb else {
        return Ok(Answer::Finished(dead));
    };
    for _ in 0..keys::TRIES {
        if let Some(answer) = keys::redrive(database, layout, &dead, millis(look_in)).await? {
            return Ok(answer);
        }
        let mut call = database.script(&CHANGE, layout.slot(dead.id), Told::Yes, layout);
        call.arg(0).arg(millis(database.settings.history));
        let again = Change {
            target: dead.id.into(),
            ..change.clone()
        };
        add(&mut call, &again);
        let mut items = Items::of(database.write(call).await?.found)?;
        match said(items.value()?)? {
            Said::Answer(answer) => return Ok(answer),
            Said::ToRedrive(found) => dead = found,
        }
    }
    Err(keys::crossed())
}

/// A change of the row that a key means, where the key may be in another slot. If the row was live when it was found and
/// is not any more, the key may mean another one by now.
async fn by_key_alone(
    database: &Database,
    layout: Layout,
    (kind, key): &(Kind, Key),
    change: &Change,
) -> Result<Stamped<Result<Answer, Error>>, Error> {
    for _ in 0..keys::TRIES {
        let Some(task) = keys::row_of(database, layout, kind, key).await? else {
            let now = database.now(layout).await?;
            let found = Ok(Answer::NotFound);
            return Ok(Stamped { now, found });
        };
        let by_id = Change {
            target: task.id.into(),
            ..change.clone()
        };
        let slot = layout.slot(task.id);
        let done = in_slot(database, layout, slot, vec![(0, by_id)]).await?;
        if let Some(error) = done.closed {
            return Err(error);
        }
        for (_, answer) in done.answers {
            let is_other = match &answer.found {
                Ok(Answer::NotFound) => true,
                Ok(Answer::Finished(_)) => task.state.is_live(),
                _ => false,
            };
            if !is_other {
                return Ok(answer);
            }
        }
    }
    Err(keys::crossed())
}
