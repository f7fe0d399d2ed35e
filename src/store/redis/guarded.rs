//! Writes that are guarded by the version of a row: steps, and renewed leases.

use std::time::Duration;

use redis::Value;

use super::answer::unexpected;
use super::change::note;
use super::codec::{self, due, maybe};
use super::database::{Database, Request};
use super::parts::Asking;
use super::shards::of_id;
use crate::redis::{Lua, lua};
use crate::store::transition::Transition;
use crate::store::{Guarded, Renewal, Step};
use crate::timestamp::millis;
use crate::{Error, State, TaskId};

static ADVANCE: Lua = lua!("row.lua", "passes.lua", "advance.lua");
static RENEW: Lua = lua!("row.lua", "passes.lua", "renew.lua");

pub(super) async fn advance(database: &Database, steps: &[Step]) -> Result<Vec<Guarded>, Error> {
    let history = database.settings.history;
    let fill = |call: &mut Request, steps: &[&Step]| {
        let steps = steps
            .iter()
            .map(|step| (step, Transition::of(&step.event, history)));
        let steps: Vec<_> = steps.collect();
        for alike in steps.chunk_by(|(_, one), (_, other)| is_alike(*one, *other)) {
            add(call, alike[0].1);
            call.arg(alike.len());
            for (step, made) in alike {
                call.arg(step.id.as_bytes())
                    .arg(step.version)
                    .arg(maybe(made.look_in.map(millis)));
                note(call, &step.note);
            }
        }
    };
    // Who sends a row on its way looks after it.
    let told = steps.iter().any(|step| step.event.needs() == State::Running);
    each(database, &ADVANCE, told, steps, |step| step.id, fill).await
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
            tracing::warn!(
                %error,
                "a task is on a Redis server that does not answer; what was to be written is tried again"
            );
            Ok(Guarded::Blocked)
        }
        said => said,
    };
    found.rows.into_iter().map(guarded).collect()
}

/// Whether two transitions are the same but for when to look next.
fn is_alike(one: Transition<'_>, other: Transition<'_>) -> bool {
    let look_in = other.look_in;
    Transition { look_in, ..one } == other
}

/// A transition as the script takes it, but for when to look next.
fn add(call: &mut Request, made: Transition<'_>) {
    let (due_in, due_at) = made.due.map(due).unwrap_or_default();
    call.arg(codec::digit(made.state))
        .arg(due_in)
        .arg(due_at)
        .arg(u8::from(made.anew))
        .arg(u8::from(made.hop))
        .arg(made.given_back)
        .arg(made.error.map_or_else(String::new, |error| format!("+{error}")));
}
