//! What becomes of rows that a worker holds, or sends on their way.

use std::time::Duration;

use redis::Value;

use super::answer::unexpected;
use super::codec::{self, due};
use super::database::{Database, Request};
use super::parts::Asking;
use super::shards::of_id;
use crate::redis::{Lua, lua};
use crate::store::{Ending, Guarded, Hop, Renewal, Settlement};
use crate::timestamp::millis;
use crate::{Error, State, TaskId, When};

static HOP: Lua = lua!("row.lua", "passes.lua", "hop.lua");
static SETTLE: Lua = lua!("row.lua", "passes.lua", "settle.lua");
static RENEW: Lua = lua!("row.lua", "passes.lua", "renew.lua");

pub(super) async fn hop(database: &Database, hops: &[Hop]) -> Result<Vec<Guarded>, Error> {
    let fill = |call: &mut Request, hops: &[&Hop]| {
        for hop in hops {
            call.arg(hop.id.as_bytes())
                .arg(hop.version)
                .arg(millis(hop.look_in));
        }
    };
    each(database, &HOP, false, hops, |hop| hop.id, fill).await
}

pub(super) async fn settle(database: &Database, settlements: &[Settlement]) -> Result<Vec<Guarded>, Error> {
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
    each(
        database,
        &SETTLE,
        true,
        settlements,
        |settlement| settlement.id,
        fill,
    )
    .await
}

pub(super) async fn renew(
    database: &Database,
    claims: &[Renewal],
    lease: Duration,
) -> Result<Vec<Guarded>, Error> {
    let fill = |call: &mut Request, claims: &[&Renewal]| {
        call.arg(millis(lease));
        for claim in claims {
            call.arg(claim.id.as_bytes())
                .arg(claim.version)
                .arg(u8::from(claim.started));
        }
    };
    each(database, &RENEW, false, claims, |claim| claim.id, fill).await
}

/// What a script says of each row, in the order given, where `fill` gives a call its rows. In a Cluster rows whose server
/// is out of reach are blocked.
async fn each<T: Sync>(
    database: &Database,
    script: &'static Lua,
    told: bool,
    rows: &[T],
    id: fn(&T) -> TaskId,
    fill: impl Fn(&mut Request, &[&T]) + Sync,
) -> Result<Vec<Guarded>, Error> {
    let shards = database.shards().await?;
    let asking = Asking {
        database,
        call: &|shard, rows| {
            let mut call = database.script(script, shard, shards, told);
            fill(&mut call, rows);
            call
        },
        reads: false,
        size: |_| 0,
        read: &|_, _, said, _| match said {
            Value::Int(1) => Ok(Guarded::Done),
            Value::Int(0) => Ok(Guarded::Lost),
            other => Err(unexpected(&other)),
        },
    };
    let found = asking.ask(rows, |row| of_id(shards, id(row))).await;
    let is_answered = found.now.is_some();
    let guarded = |said: Result<Guarded, Error>| match said {
        // What became of the others must be told nevertheless.
        Err(error) if is_answered || (error.is_transient() && database.is_clustered()) => {
            tracing::warn!(%error, "a task is out of reach");
            Ok(Guarded::Blocked)
        }
        said => said,
    };
    found.rows.into_iter().map(guarded).collect()
}

/// An ending as the script takes it.
fn end(call: &mut Request, ending: &Ending, history: Duration) {
    let none = String::new;
    let as_before = || (none(), none());
    let later = |after: &Duration| due(When::After(*after));
    let in_millis = |time: &Duration| millis(*time).to_string();
    let said = |error: &String| format!("+{error}");
    let (state, (due_in, due_at), wake_in, anew, error) = match ending {
        Ending::Done => (State::Done, as_before(), in_millis(&history), false, none()),
        Ending::Dead { error, .. } => (State::Dead, as_before(), none(), false, said(error)),
        Ending::Retry {
            after,
            look_in,
            error,
        } => (
            State::Scheduled,
            later(after),
            in_millis(look_in),
            false,
            said(error),
        ),
        Ending::Snooze { after, look_in } => {
            (State::Scheduled, later(after), in_millis(look_in), false, none())
        }
        Ending::Again { after, look_in } => {
            (State::Scheduled, later(after), in_millis(look_in), true, none())
        }
        Ending::Release => (State::Scheduled, as_before(), "0".to_owned(), false, none()),
        Ending::Moved { due: time, look_in } => {
            let due = due(When::At(*time));
            (State::Scheduled, due, in_millis(look_in), true, none())
        }
        Ending::Cancelled => (State::Cancelled, as_before(), in_millis(&history), false, none()),
    };
    let gives_back = matches!(
        ending,
        Ending::Snooze { .. } | Ending::Release | Ending::Cancelled | Ending::Dead { give_back: true, .. }
    );
    let forgives = matches!(ending, Ending::Retry { .. } | Ending::Snooze { .. });
    call.arg(codec::digit(state))
        .arg(due_in)
        .arg(due_at)
        .arg(wake_in)
        .arg(u8::from(anew))
        .arg(u8::from(gives_back))
        .arg(u8::from(forgives))
        .arg(error);
}
