//! What becomes of rows that a worker holds, or sends on their way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::answer;
use super::codec;
use super::codec::due;
use super::database::{Database, Request, Told, is_closed};
use super::moving;
use super::repeat::Tries;
use super::together::{those_that_succeeded, together};
use crate::redis::{Lua, Slot, lua};
use crate::store::{Ending, Hop, Renewal, Settlement};
use crate::timestamp::millis;
use crate::{Error, State, TaskId, When};

static HOP: Lua = lua!("row.lua", "hop.lua");
static SETTLE: Lua = lua!("row.lua", "settle.lua");
static RENEW: Lua = lua!("row.lua", "renew.lua");

/// How many rows go into one call: a bound on how long it keeps the server from others.
const ROWS: usize = 50;

pub(super) async fn hop(database: &Arc<Database>, hops: &[Hop]) -> Result<Vec<bool>, Error> {
    let add = |call: &mut Request, hop: &Hop| {
        call.arg(hop.id.as_bytes())
            .arg(hop.version)
            .arg(millis(hop.look_in));
    };
    let said = each(database, &HOP, Told::No, hops, |hop| hop.id, |_| {}, add).await?;
    // One that was perhaps not recorded is sent by nobody, and found by the sweep.
    Ok(said.into_iter().map(|said| matches!(said, Ok(true))).collect())
}

pub(super) async fn settle(
    database: &Arc<Database>,
    settlements: Vec<Settlement>,
) -> Result<Vec<bool>, Error> {
    settle_each(database, settlements).await?.into_iter().collect()
}

/// The same, where some servers may be out of reach: none for those whose server is.
pub(super) async fn settle_in_reach(
    database: &Arc<Database>,
    settlements: Vec<Settlement>,
) -> Result<Vec<Option<bool>>, Error> {
    let count = settlements.len();
    match settle_each(database, settlements).await {
        Ok(said) => Ok(said.into_iter().map(Result::ok).collect()),
        // Others may be on servers that are within reach.
        Err(error) if error.is_transient() && database.is_clustered() => {
            tracing::warn!(%error, "a part of the tasks is out of reach");
            Ok(vec![None; count])
        }
        Err(error) => Err(error),
    }
}

async fn settle_each(
    database: &Arc<Database>,
    settlements: Vec<Settlement>,
) -> Result<Vec<Result<bool, Error>>, Error> {
    let history = database.settings.history;
    let add = |call: &mut Request, settlement: &Settlement| {
        call.arg(settlement.id.as_bytes()).arg(settlement.version);
        end(call, &settlement.ending, history);
    };
    each(
        database,
        &SETTLE,
        Told::Yes,
        &settlements,
        |settlement| settlement.id,
        |_| {},
        add,
    )
    .await
}

pub(super) async fn renew(
    database: &Arc<Database>,
    claims: &[(TaskId, u64)],
    lease: Duration,
) -> Result<Vec<Renewal>, Error> {
    let add = |call: &mut Request, (id, version): &(TaskId, u64)| {
        call.arg(id.as_bytes()).arg(*version);
    };
    let lease = |call: &mut Request| {
        call.arg(millis(lease));
    };
    let said = each(database, &RENEW, Told::No, claims, |(id, _)| *id, lease, add).await?;
    let renewal = |said| match said {
        Ok(true) => Renewal::Renewed,
        Ok(false) => Renewal::Lost,
        // Its server cannot be reached: it is held, and ends as before.
        Err(_) => Renewal::Locked,
    };
    Ok(said.into_iter().map(renewal).collect())
}

/// What a script says of each row, in the order given, where `first` is what it takes before the rows. Those of a slot
/// are taken in order. Errors are of rows whose servers cannot be reached; if that is all, the whole is one.
async fn each<T>(
    database: &Arc<Database>,
    script: &'static Lua,
    told: Told,
    rows: &[T],
    id: impl Fn(&T) -> TaskId,
    first: impl Fn(&mut Request),
    add: impl Fn(&mut Request, &T),
) -> Result<Vec<Result<bool, Error>>, Error> {
    let mut given: Vec<_> = std::iter::repeat_with(|| Err(out_of_reach()))
        .take(rows.len())
        .collect();
    let mut left: Vec<usize> = (0..rows.len()).collect();
    let mut tries = Tries::default();
    let mut is_first = true;
    while !left.is_empty() {
        let ids = left.iter().map(|&place| id(&rows[place]));
        let (layout, out_of_reach) = match moving::layout_with(database, &mut tries, ids).await {
            Ok(layout) => layout,
            // What has been answered must not be lost by what comes after it.
            Err(_) if !is_first => break,
            Err(error) => return Err(error),
        };
        let mut by_slot = BTreeMap::<Slot, Vec<usize>>::new();
        for place in left.drain(..) {
            let id = id(&rows[place]);
            if !out_of_reach.contains(&id) {
                by_slot.entry(layout.slot(id)).or_default().push(place);
            }
        }
        let mut asked = Vec::new();
        let mut calls = Vec::new();
        for (slot, places) in by_slot {
            let mut parts = Vec::new();
            for part in places.chunks(ROWS) {
                let mut call = database.script(script, slot, told, layout);
                first(&mut call);
                for &place in part {
                    add(&mut call, &rows[place]);
                }
                parts.push(call);
            }
            asked.push(places);
            let database = Arc::clone(database);
            calls.push(async move { one_after_the_other(&database, parts).await });
        }
        let answers = match those_that_succeeded(together(calls).await) {
            Ok(answers) => answers,
            Err(_) if !is_first => break,
            Err(error) => return Err(error),
        };
        is_first = false;
        let mut is_closed = None;
        for (places, answer) in asked.into_iter().zip(answers) {
            let Some((said, closed)) = answer else { continue };
            let mut places = places.into_iter();
            for (place, said) in places.by_ref().take(said.len()).zip(said) {
                given[place] = Ok(said);
            }
            left.extend(places);
            is_closed = closed.or(is_closed);
        }
        left.sort_unstable();
        if is_closed.is_some_and(|error| tries.again(error).is_err()) {
            break;
        }
    }
    Ok(given)
}

/// What calls on one slot say of rows; if the slot is closed, only those before, and that it is.
async fn one_after_the_other(
    database: &Database,
    calls: Vec<Request>,
) -> Result<(Vec<bool>, Option<Error>), Error> {
    let mut said = Vec::new();
    for call in calls {
        match database.write_if_near(call).await {
            Ok(answer) => said.extend(answer::flags(answer.found)?),
            Err(error) if is_closed(&error) => return Ok((said, Some(error))),
            Err(error) => return Err(error),
        }
    }
    Ok((said, None))
}

fn out_of_reach() -> Error {
    crate::redis::Role::Store.error(true, "the server of a row did not answer")
}

/// An ending as the script takes it.
fn end(call: &mut Request, ending: &Ending, history: Duration) {
    let scheduled = codec::digit(State::Scheduled);
    let later = |after: Duration| due(When::After(after));
    let as_before = || (String::new(), String::new());
    let in_millis = |time: Duration| millis(time).to_string();
    let said = |error: &String| format!("+{error}");
    let none = String::new();
    let (state, (due_in, due_at), wake_in, anew, give_back, error) = match ending {
        Ending::Done => (
            codec::digit(State::Done),
            as_before(),
            in_millis(history),
            false,
            false,
            none,
        ),
        Ending::Dead { error, give_back } => (
            codec::digit(State::Dead),
            as_before(),
            none,
            false,
            *give_back,
            said(error),
        ),
        Ending::Retry {
            after,
            look_in,
            error,
        } => (
            scheduled,
            later(*after),
            in_millis(*look_in),
            false,
            false,
            said(error),
        ),
        Ending::Snooze { after, look_in } => {
            (scheduled, later(*after), in_millis(*look_in), false, true, none)
        }
        Ending::Again { after, look_in } => {
            (scheduled, later(*after), in_millis(*look_in), true, false, none)
        }
        Ending::Release => (scheduled, as_before(), "0".to_owned(), false, true, none),
        Ending::Moved { due: time, look_in } => (
            scheduled,
            due(When::At(*time)),
            in_millis(*look_in),
            true,
            false,
            none,
        ),
        Ending::Cancelled => (
            codec::digit(State::Cancelled),
            as_before(),
            in_millis(history),
            false,
            true,
            none,
        ),
    };
    call.arg(state)
        .arg(due_in)
        .arg(due_at)
        .arg(wake_in)
        .arg(u8::from(anew))
        .arg(u8::from(give_back))
        .arg(error);
}
