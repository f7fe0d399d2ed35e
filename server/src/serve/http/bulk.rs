//! What can be done with all tasks that match.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use delayline::store::Action;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Shared;
use super::body::{self, Body};
use super::problem::{Problem, Refusals};
use super::schedule::{Time, when};
use super::texts;
use super::verbs::signed;
use crate::bulk::{Answers, Match, change, ends_the_state, state_for};
use crate::filter::{Filter, PAGE};
use crate::span::Span;

/// How many bytes the tasks may have that are in memory at once.
pub(super) const HELD: usize = PAGE << 20;

/// How many tasks a call changes at the most, and unless it is said.
const MOST: usize = 10_000;
const USUAL: usize = 1_000;

/// Which tasks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Matching {
    #[schema(value_type = texts::Kind)]
    kind: String,
    /// Due then or later.
    #[schema(value_type = Option<texts::Time>)]
    due_after: Option<Time>,
    /// Due before then.
    #[schema(value_type = Option<texts::Time>)]
    due_before: Option<Time>,
    /// With a key that begins so. Each task of the kind is looked at for it.
    key_prefix: Option<String>,
    /// Whose last error has this in it. Each task of the kind is looked at for it.
    error: Option<String>,
}

/// A change of all tasks that match.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Bulk {
    filter: Matching,
    /// 1,000 unless it is said.
    #[schema(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
    /// Only says how many match.
    #[serde(default)]
    dry_run: bool,
}

/// A move of all tasks that match.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BulkMove {
    filter: Matching,
    /// 1,000 unless it is said.
    #[schema(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
    /// Only says how many match.
    #[serde(default)]
    dry_run: bool,
    /// From now. Either this or `at`.
    #[schema(value_type = Option<texts::Span>)]
    after: Option<Span>,
    /// Either this or `after`.
    #[schema(value_type = Option<texts::Time>)]
    at: Option<Time>,
}

/// A move of all tasks that match, each by the same time span.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BulkShift {
    filter: Matching,
    /// 1,000 unless it is said.
    #[schema(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
    /// Only says how many match.
    #[serde(default)]
    dry_run: bool,
    #[schema(value_type = texts::SignedSpan)]
    by: String,
}

/// What came of a change in bulk.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BulkAnswered {
    /// How many tasks matched, up to the limit.
    matched: usize,
    /// Whether more match than the limit allows: the same call again changes those.
    more: bool,
    /// How many were answered how; not after a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    answers: Option<Answers>,
}

async fn answer(
    app: &Shared,
    filter: Matching,
    limit: Option<usize>,
    dry_run: bool,
    action: Action,
) -> Result<Response, Problem> {
    let limit = body::limit(limit, USUAL, MOST)?;
    let time = |time: Option<Time>| time.map(|Time(time)| time);
    let filter = Filter {
        kinds: vec![filter.kind.into()],
        state: state_for(action),
        due_after: time(filter.due_after),
        due_before: time(filter.due_before),
        key_prefix: filter.key_prefix,
        error: filter.error,
    };
    let mut matches: Vec<Match> = filter.find(&app.scheduler, limit + 1).await?;
    let more = matches.len() > limit;
    if more && !dry_run && !ends_the_state(action) {
        // What was moved would match again.
        return Err(Problem::invalid(
            "limit",
            limit,
            "more tasks match than this: allowed is a filter by which they all fit, such as a narrower due_before",
        ));
    }
    matches.truncate(limit);
    let answers = match dry_run {
        true => None,
        false => Some(change(&app.scheduler, &matches, action, |_| ()).await?),
    };
    let matched = matches.len();
    Ok(Json(BulkAnswered {
        matched,
        more,
        answers,
    })
    .into_response())
}

/// A change of all tasks that match: `$action` is what is done with each.
macro_rules! bulk {
    ($(#[$doc:meta])* $name:ident, $path:literal, $body:ident { $($field:ident),* }, $action:expr) => {
        $(#[$doc])*
        #[utoipa::path(
            post,
            path = $path,
            tag = "bulk",
            request_body = $body,
            responses((status = 200, description = "How many matched, and what came of it", body = BulkAnswered), Refusals)
        )]
        pub(super) async fn $name(State(app): State<Shared>, Body(given): Body<$body>) -> Result<Response, Problem> {
            let $body { filter, limit, dry_run, $($field),* } = given;
            answer(&app, filter, limit, dry_run, $action).await
        }
    };
}

bulk!(
    /// Cancels all scheduled tasks that match.
    cancel, "/v1/tasks:cancel", Bulk {}, Action::Cancel
);
bulk!(
    /// Makes all scheduled tasks that match due now.
    run, "/v1/tasks:run", Bulk {}, Action::RunNow
);
bulk!(
    /// Gives all dead tasks that match another life, due now.
    redrive, "/v1/tasks:redrive", Bulk {}, Action::Redrive
);
bulk!(
    /// Moves all scheduled tasks that match to another time.
    reschedule, "/v1/tasks:reschedule", BulkMove { after, at }, Action::Reschedule(when(after, at)?)
);
bulk!(
    /// Moves each scheduled task that matches by a time span.
    shift, "/v1/tasks:shift", BulkShift { by }, Action::Shift(signed(by)?)
);
