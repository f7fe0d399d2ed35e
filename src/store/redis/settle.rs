//! What becomes of rows that a worker holds, or sends on their way.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesOrdered, StreamExt};

use super::answer::{self, Answer};
use super::closed::is_closed;
use super::codec::{self, due};
use super::database::{Database, Request, Told};
use super::moving;
use super::repeat::Tries;
use super::together::ON_THE_WAY;
use crate::redis::{Lua, Slot, lua};
use crate::store::{Ending, Hop, Renewal, Settlement};
use crate::timestamp::millis;
use crate::{Error, State, TaskId, When};

static HOP: Lua = lua!("row.lua", "hop.lua");
static SETTLE: Lua = lua!("row.lua", "settle.lua");
static RENEW: Lua = lua!("row.lua", "renew.lua");

/// How many rows go into one call: a bound on how long it keeps the server from others.
const ROWS: usize = 50;

pub(super) async fn hop(database: &Database, hops: &[Hop]) -> Result<Vec<bool>, Error> {
    let fill = |call: &mut Request, hops: &[&Hop]| {
        for hop in hops {
            call.arg(hop.id.as_bytes())
                .arg(hop.version)
                .arg(millis(hop.look_in));
        }
    };
    let said = each(database, &HOP, Told::No, hops, |hop| hop.id, fill).await?;
    // One that was perhaps not recorded is sent by nobody, and found by the sweep.
    Ok(said.into_iter().map(|said| matches!(said, Ok(true))).collect())
}

pub(super) async fn settle(database: &Database, settlements: Vec<Settlement>) -> Result<Vec<bool>, Error> {
    settle_each(database, settlements).await?.into_iter().collect()
}

/// The same, where some servers may be out of reach: none for those whose server is.
pub(super) async fn settle_in_reach(
    database: &Database,
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
    database: &Database,
    settlements: Vec<Settlement>,
) -> Result<Vec<Result<bool, Error>>, Error> {
    let history = database.settings.history;
    let fill = |call: &mut Request, settlements: &[&Settlement]| {
        for alike in settlements.chunk_by(|one, other| one.ending == other.ending) {
            end(call, &alike[0].ending, history);
            call.arg(alike.len());
            for settlement in alike {
                call.arg(settlement.id.as_bytes()).arg(settlement.version);
            }
        }
    };
    let id = |settlement: &Settlement| settlement.id;
    each(database, &SETTLE, Told::Yes, &settlements, id, fill).await
}

pub(super) async fn renew(
    database: &Database,
    claims: &[(TaskId, u64)],
    lease: Duration,
) -> Result<Vec<Renewal>, Error> {
    let fill = |call: &mut Request, claims: &[&(TaskId, u64)]| {
        call.arg(millis(lease));
        for (id, version) in claims {
            call.arg(id.as_bytes()).arg(*version);
        }
    };
    let said = each(database, &RENEW, Told::No, claims, |(id, _)| *id, fill).await?;
    let renewal = |said| match said {
        Ok(true) => Renewal::Renewed,
        Ok(false) => Renewal::Lost,
        // Its server cannot be reached: it is held, and ends as before.
        Err(_) => Renewal::Locked,
    };
    Ok(said.into_iter().map(renewal).collect())
}

/// What a script says of each row, in the order given, where `fill` gives a call its rows. Those of a slot are taken in
/// order. Errors are of rows whose servers cannot be reached; if that is all, the whole is one.
async fn each<T>(
    database: &Database,
    script: &'static Lua,
    told: Told,
    rows: &[T],
    id: impl Fn(&T) -> TaskId,
    fill: impl Fn(&mut Request, &[&T]),
) -> Result<Vec<Result<bool, Error>>, Error> {
    let mut given: Vec<_> = std::iter::repeat_with(|| Err(out_of_reach()))
        .take(rows.len())
        .collect();
    let mut left: Vec<usize> = (0..rows.len()).collect();
    let mut tries = Tries::default();
    let mut is_answered = false;
    while !left.is_empty() {
        let ids = left.iter().map(|&place| id(&rows[place]));
        let (layout, out_of_reach) = match moving::layout_with(database, &mut tries, ids).await {
            Ok(layout) => layout,
            // What has been answered must not be lost by what comes after it.
            Err(_) if is_answered => break,
            Err(error) => return Err(error),
        };
        let mut by_slot = BTreeMap::<Slot, Vec<usize>>::new();
        for place in left.drain(..) {
            let id = id(&rows[place]);
            if !out_of_reach.contains(&id) {
                by_slot.entry(layout.slot(id)).or_default().push(place);
            }
        }
        let mut slots = Vec::new();
        for (slot, places) in by_slot {
            let mut calls = Vec::new();
            for part in places.chunks(ROWS) {
                let mut call = database.script(script, slot, told, layout);
                let rows: Vec<_> = part.iter().map(|&place| &rows[place]).collect();
                fill(&mut call, &rows);
                calls.push((part.to_vec(), call));
            }
            slots.push(in_turn(database, calls));
        }
        let (mut closed, mut failed) = (None, None);
        for (places, said) in join_all(slots).await.into_iter().flatten() {
            match said {
                Ok(answer) => {
                    is_answered = true;
                    for (place, said) in places.into_iter().zip(answer::flags(answer.found)?) {
                        given[place] = Ok(said);
                    }
                }
                Err(error) if is_closed(&error) => {
                    left.extend(places);
                    closed = Some(error);
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if !is_answered && closed.is_none() => return Err(error),
            Some(error) => tracing::warn!(%error, "a part of the tasks is out of reach"),
            None => {}
        }
        left.sort_unstable();
        if closed.is_some_and(|error| tries.again(error).is_err()) {
            break;
        }
    }
    Ok(given)
}

/// Places of rows in the batch, and what their call says.
type Answered = (Vec<usize>, Result<Answer, Error>);

/// What calls on one slot say.
async fn in_turn(database: &Database, calls: Vec<(Vec<usize>, Request)>) -> Vec<Answered> {
    let mut answered = Vec::with_capacity(calls.len());
    let mut calls = calls.into_iter();
    let mut on_the_way = FuturesOrdered::new();
    loop {
        for (places, call) in calls.by_ref().take(ON_THE_WAY - on_the_way.len()) {
            on_the_way.push_back(async move { (places, database.write_if_near(call).await) });
        }
        match on_the_way.next().await {
            Some(one) => answered.push(one),
            None => return answered,
        }
    }
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
