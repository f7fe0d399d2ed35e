//! New tasks.

mod task_body;

use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use delayline::store::Target;
use delayline::{NewTask, Scheduled, Task, defaults};
use futures_util::future::join_all;
use serde::Serialize;
use utoipa::ToSchema;

pub(super) use self::task_body::{TaskBody, Tasks, Within, when};
use super::Shared;
use super::access::Caller;
use super::admission::AT_ONCE;
use super::answer::{self, Answered, refused, tagged};
use super::body::{Body, OneOrMany};
use super::conditions;
use super::idempotency::{Did, Fingerprint, Named, name};
use super::problem::{Problem, Refusals};
use crate::reserved::REQUESTS;
use crate::schemas;
use crate::serve::traces::Create;

/// Schedules a task under its key.
#[utoipa::path(
    put,
    path = "/v1/tasks/{kind}/{key}",
    tag = "tasks",
    params(
        ("kind" = schemas::Kind, Path, description = "The kind of the task"),
        ("key" = schemas::Key, Path, description = "The caller's own name for it"),
        ("Idempotency-Key" = inline(Option<schemas::RequestName>), Header, description = "Names the request: one that is repeated does nothing, and has the same answer again")
    ),
    request_body = TaskBody,
    responses(
        (status = 201, description = "`new`", body = Answered, headers(("ETag" = String))),
        (status = 200, description = "`existing` or `replaced`", body = Answered, headers(("ETag" = String))),
        (status = 409, description = "`running`", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Idempotency-Key is that of another request", body = Problem, content_type = "application/problem+json"),
        Refusals
    )
)]
pub(super) async fn put(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((kind, key)): Path<(String, String)>,
    headers: HeaderMap,
    within: Within,
    Body(mut body): Body<TaskBody>,
) -> Result<Response, Problem> {
    conditions::none(&headers, conditions::WITH_VERBS)?;
    for (field, given, path) in [("kind", &mut body.kind, kind), ("key", &mut body.key, key)] {
        match given {
            Some(given) if *given != path => {
                return Err(Problem::invalid(
                    field,
                    given,
                    "allowed is what the path says, or nothing",
                ));
            }
            _ => *given = Some(path),
        }
    }
    let named = name(&headers)?.map(|name| {
        let mut fingerprint = Fingerprint::of("PUT");
        body.add_to(&mut fingerprint);
        Named::new(&caller, name, 0, fingerprint)
    });
    one(&app, &caller, &within, named, body).await
}

/// Schedules a task, or an array of up to 10,000.
#[utoipa::path(
    post,
    path = "/v1/tasks",
    tag = "tasks",
    params(("Idempotency-Key" = inline(Option<schemas::RequestName>), Header, description = "Names the request: one that is repeated does nothing, and has the same answer again")),
    request_body = Tasks,
    responses(
        (status = 201, description = "`new`", body = Answered, headers(("ETag" = String))),
        (status = 200, description = "`existing` or `replaced`; for an array, what came of each, in its order", body = OneOrEach),
        (status = 409, description = "`running`", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Idempotency-Key is that of another request", body = Problem, content_type = "application/problem+json"),
        Refusals
    )
)]
pub(super) async fn post(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    within: Within,
    OneOrMany(tasks): OneOrMany<Tasks>,
) -> Result<Response, Problem> {
    conditions::none(&headers, conditions::WITH_VERBS)?;
    let name = name(&headers)?;
    let mut fingerprint = Fingerprint::of("POST");
    if name.is_some() {
        match &tasks {
            Tasks::One(task) => task.add_to(&mut fingerprint),
            // All of them, so that none is another one's by its place.
            Tasks::Many(tasks) => tasks.iter().for_each(|task| task.add_to(&mut fingerprint)),
        }
    }
    let named = |at| name.map(|name| Named::new(&caller, name, at, fingerprint.clone()));
    match tasks {
        Tasks::One(task) => one(&app, &caller, &within, named(0), *task).await,
        Tasks::Many(tasks) => many(&app, &caller, &within, tasks, named).await,
    }
}

/// A task that is to be scheduled, and the request that it is of.
struct Wanted {
    span: Create,
    task: NewTask,
    named: Option<Named>,
}

/// What a request comes to before the store is asked to schedule anything.
enum Prepared {
    /// It is to be scheduled.
    Wanted(Box<Wanted>),
    /// It came before, and this is its task.
    Before(Did, Box<Task>),
}

/// A task of a request; or what came of the same request before.
async fn prepare(
    app: &Shared,
    caller: &Caller,
    within: &Within,
    named: Option<Named>,
    body: TaskBody,
) -> Result<Prepared, Problem> {
    body.check(app, caller)?;
    let mut replaced = None;
    if let (Some(named), Some(target)) = (&named, body.replaceable()) {
        replaced = app.scheduler.find(target).await?;
        if let Some(found) = &replaced
            && let Some(did) = named.did(found)?
        {
            return Ok(Prepared::Before(did, Box::new(found.clone())));
        }
    }
    let (span, mut task) = body.into_traced(app, within)?;
    if let Some(named) = &named {
        task = task.id(named.id).header(REQUESTS, named.kept(replaced.as_ref()));
    }
    Ok(Prepared::Wanted(Box::new(Wanted { span, task, named })))
}

/// What is answered to a request: of one that came before the same as then, with its task as it is now.
fn answered(named: Option<&Named>, scheduled: Scheduled) -> Result<Scheduled, Problem> {
    let did = match (&scheduled, named) {
        (Scheduled::Existing(task), Some(named)) => named.did(task)?,
        _ => None,
    };
    Ok(match (did, scheduled) {
        (Some(did), Scheduled::Existing(task)) => before(did, task),
        (_, scheduled) => scheduled,
    })
}

fn before(did: Did, task: Task) -> Scheduled {
    match did {
        Did::Make => Scheduled::New(task),
        Did::Replace => Scheduled::Replaced(task),
    }
}

async fn one(
    app: &Shared,
    caller: &Caller,
    within: &Within,
    named: Option<Named>,
    body: TaskBody,
) -> Result<Response, Problem> {
    let mut came = each(app, caller, within, vec![(named, body)]).await;
    // There is one for each.
    let (status, version, body) = answer::scheduled(caller, came.swap_remove(0)?);
    Ok(match status {
        StatusCode::CONFLICT => refused(status, "a task of this kind and key runs, and is as it was", body),
        status => tagged(status, version, body),
    })
}

/// What came of one task of many; its `task` is without payload and headers.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Each {
    Scheduled {
        status: u16,
        #[serde(flatten)]
        answered: Box<Answered>,
    },
    Refused(Problem),
}

impl From<Result<Scheduled, Problem>> for Each {
    fn from(came: Result<Scheduled, Problem>) -> Self {
        match came.map(answer::scheduled_among) {
            Ok((status, answered)) => Self::Scheduled {
                status: status.as_u16(),
                answered: Box::new(answered),
            },
            Err(problem) => Self::Refused(problem),
        }
    }
}

async fn many(
    app: &Shared,
    caller: &Caller,
    within: &Within,
    tasks: Vec<TaskBody>,
    named: impl Fn(usize) -> Option<Named>,
) -> Result<Response, Problem> {
    // Another request of this name is refused as a whole, before any of its tasks is there.
    if let Some(first) = named(0)
        && let Some(task) = app.scheduler.find(Target::Id(first.id)).await?
    {
        first.did(&task)?;
    }
    let mut answers = Vec::with_capacity(tasks.len());
    let tasks = tasks.into_iter().enumerate();
    let mut tasks = tasks.map(|(at, task)| (named(at), task)).peekable();
    while tasks.peek().is_some() {
        let part = part(&mut tasks);
        let came = each(app, caller, within, part).await;
        answers.extend(came.into_iter().map(Each::from));
    }
    Ok(Json(answers).into_response())
}

/// Takes as many tasks as are scheduled together: of those that may be there already, and are read then, only a few.
fn part(tasks: impl Iterator<Item = (Option<Named>, TaskBody)>) -> Vec<(Option<Named>, TaskBody)> {
    let mut part = Vec::new();
    let mut read = 0;
    for (named, task) in tasks.take(defaults::BATCH) {
        read += usize::from(named.is_some() || task.key.is_some());
        part.push((named, task));
        if read == AT_ONCE {
            break;
        }
    }
    part
}

/// Schedules tasks, and says of each what came of it: those that cannot be used are refused, and the others scheduled.
async fn each(
    app: &Shared,
    caller: &Caller,
    within: &Within,
    tasks: Vec<(Option<Named>, TaskBody)>,
) -> Vec<Result<Scheduled, Problem>> {
    let prepared = tasks
        .into_iter()
        .map(|(named, task)| prepare(app, caller, within, named, task));
    let prepared = join_all(prepared).await;
    let mut each = Vec::with_capacity(prepared.len());
    let (mut usable, mut asked) = (Vec::new(), Vec::new());
    for prepared in prepared {
        each.push(match prepared {
            Ok(Prepared::Wanted(wanted)) => {
                let Wanted { span, task, named } = *wanted;
                usable.push(task);
                asked.push((span, named));
                None
            }
            Ok(Prepared::Before(did, task)) => Some(Ok(before(did, *task))),
            Err(problem) => Some(Err(problem)),
        });
    }
    let answers = app.scheduler.by(&caller.actor()).schedule_each(usable).await;
    let mut answers = asked.into_iter().zip(answers).map(|((span, named), answer)| {
        span.ends(&answer);
        answered(named.as_ref(), answer?)
    });
    each.into_iter()
        .filter_map(|known| known.or_else(|| answers.next()))
        .collect()
}

/// As the interface is described.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only its description is used")]
pub(super) enum OneOrEach {
    One(Box<Answered>),
    Each(Vec<Each>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_cannot_be_there_are_scheduled_more_at_once() {
        let body = |with_key: bool| {
            let key = with_key.then_some("1");
            let body = serde_json::json!({"kind": "k", "key": key, "after": "1s"});
            (None, serde_json::from_value::<TaskBody>(body).unwrap())
        };
        for (with_key, most) in [(true, AT_ONCE), (false, defaults::BATCH)] {
            let mut tasks = (0..=defaults::BATCH).map(|_| body(with_key));
            assert_eq!(part(&mut tasks).len(), most);
            assert_eq!(tasks.count(), defaults::BATCH + 1 - most);
        }
    }
}
