//! New tasks.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;

use axum::Json;
use axum::extract::{Extension, FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use delayline::store::When;
use delayline::{Key, Kind, NewTask, Scheduler, TaskId, Timestamp};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{AllOfBuilder, ArrayBuilder, ObjectBuilder, OneOfBuilder};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::Shared;
use super::access::Caller;
use super::answer::{Answered, refused, scheduled, tagged};
use super::body::{Body, OneOrMany};
use super::problem::{Problem, Refusals};
use super::texts;
use crate::serve::depth::{DEEPEST, depth};
use crate::serve::derived_id::derived_id;
use crate::serve::traces::{Create, Place};
use crate::span::Span;

/// A task to schedule.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskBody {
    /// In a `PUT` what the path says.
    #[schema(value_type = Option<texts::Kind>)]
    kind: Option<String>,
    /// The caller's own name for it: of a kind and key there is one live task.
    #[schema(value_type = Option<texts::Key>)]
    key: Option<String>,
    /// From now. Either this or `at`.
    #[schema(value_type = Option<texts::Span>)]
    after: Option<Span>,
    /// Either this or `after`.
    #[schema(value_type = Option<texts::Time>)]
    at: Option<Time>,
    /// Any JSON of up to 120 levels of arrays and objects.
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Whether a task of the same kind and key that still waits takes all this.
    #[serde(default)]
    replace: bool,
    /// After how many attempts it is given up; else its kind says.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 4_294_967_295_u32)]
    max_attempts: Option<u32>,
}

/// A time in RFC 3339.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Time(pub(super) Timestamp);

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // It has another way to write years that have no four digits.
        if text.starts_with(['-', '+']) {
            return Err(format!("time is {text:?}: allowed are the years 0000 to 9999"));
        }
        text.parse()
            .map(Self)
            .map_err(|error: delayline::Error| error.to_string())
    }
}

/// The time that is meant: exactly one of both is given.
pub(super) fn when(after: Option<Span>, at: Option<Time>) -> Result<When, Problem> {
    match (after, at) {
        (Some(Span(delay)), None) => Ok(When::After(delay)),
        (None, Some(Time(time))) => Ok(When::At(time)),
        (None, None) => Err(Problem::invalid(
            "after",
            "missing",
            "allowed is one of after, such as \"15m\", and at, such as \"2026-12-24T18:00:00Z\"",
        )),
        (Some(_), Some(Time(at))) => Err(Problem::invalid(
            "at",
            at,
            "allowed is one of after and at, not both",
        )),
    }
}

/// Where a request stands in a trace, if its headers say so.
pub(super) struct Within(Option<Place>);

impl<S: Send + Sync> FromRequestParts<S> for Within {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let header = |name: &str| parts.headers.get(name)?.to_str().ok();
        Ok(Self(Place::of(header)))
    }
}

impl TaskBody {
    /// The task, as a part of the trace that its own headers name, or else the request, and the span in which it is made.
    fn into_traced(self, app: &Shared, request: &Within) -> Result<(Create, NewTask), Problem> {
        let named = Place::of(|name| self.headers.get(name).map(String::as_str));
        let caller = named.or_else(|| request.0.clone());
        let kind = self.kind.clone().unwrap_or_default();
        let task = self.into_task()?;
        let span = app.traces.create(&kind, caller);
        let task = span.kept_by(task);
        Ok((span, task))
    }

    fn into_task(self) -> Result<NewTask, Problem> {
        let due = when(self.after, self.at)?;
        let kind = self.kind.ok_or_else(|| {
            Problem::invalid(
                "kind",
                "missing",
                "allowed is the kind of the task, such as \"order.cancel\"",
            )
        })?;
        let payload = self.payload.map_or_else(
            || b"null".to_vec(),
            |payload| String::from(Box::<str>::from(payload)).into_bytes(),
        );
        let deep = depth(&payload);
        if deep > DEEPEST {
            return Err(Problem::invalid(
                "payload",
                format!("{deep} levels of arrays and objects"),
                format!("allowed are up to {DEEPEST} levels, as workers in other languages read no more"),
            ));
        }
        let mut task = NewTask::from_bytes(Kind::from(kind), payload);
        task = match due {
            When::After(delay) => task.after(delay),
            When::At(time) => task.at(time),
        };
        if let Some(key) = self.key {
            task = task.key(Key::from(key));
        }
        for (name, value) in self.headers {
            task = task.header(name, value);
        }
        if let Some(attempts) = self.max_attempts {
            task = task.max_attempts(attempts);
        }
        if self.replace {
            task = task.replace();
        }
        Ok(task)
    }
}

/// One task, or many.
#[derive(Debug)]
pub(super) enum Tasks {
    One(Box<TaskBody>),
    Many(Vec<TaskBody>),
}

impl PartialSchema for Tasks {
    fn schema() -> RefOr<Schema> {
        let kind = Ref::from_schema_name(texts::Kind::name());
        let with_kind = ObjectBuilder::new().property("kind", kind).required("kind");
        let task = Ref::from_schema_name(TaskBody::name());
        let one: RefOr<Schema> = AllOfBuilder::new().item(task).item(with_kind).into();
        OneOfBuilder::new()
            .item(one.clone())
            .item(ArrayBuilder::new().items(one))
            .into()
    }
}

impl ToSchema for Tasks {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((TaskBody::name().into_owned(), TaskBody::schema()));
        TaskBody::schemas(schemas);
    }
}

impl<'de> Deserialize<'de> for Tasks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Tasks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a task, or an array of tasks")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Tasks, A::Error> {
                TaskBody::deserialize(MapAccessDeserializer::new(map)).map(|task| Tasks::One(Box::new(task)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Tasks, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Tasks::Many)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Schedules a task under its key.
#[utoipa::path(
    put,
    path = "/v1/tasks/{kind}/{key}",
    tag = "tasks",
    params(("kind" = texts::Kind, Path, description = "The kind of the task"), ("key" = texts::Key, Path, description = "The caller's own name for it")),
    request_body = TaskBody,
    responses(
        (status = 201, description = "`new`", body = Answered, headers(("ETag" = String))),
        (status = 200, description = "`existing` or `replaced`", body = Answered, headers(("ETag" = String))),
        (status = 409, description = "`running`", body = Problem, content_type = "application/problem+json"),
        Refusals
    )
)]
pub(super) async fn put(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((kind, key)): Path<(String, String)>,
    within: Within,
    Body(mut body): Body<TaskBody>,
) -> Result<Response, Problem> {
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
    let (span, task) = body.into_traced(&app, &within)?;
    one(&caller.scheduler(&app, None), span, task).await
}

/// Schedules a task, or an array of tasks.
#[utoipa::path(
    post,
    path = "/v1/tasks",
    tag = "tasks",
    params(("Idempotency-Key" = Option<String>, Header, description = "Names the request: one that is repeated makes no second task")),
    request_body = Tasks,
    responses(
        (status = 201, description = "`new`", body = Answered, headers(("ETag" = String))),
        (status = 200, description = "`existing` or `replaced`; for an array, what came of each, in its order", body = OneOrEach),
        (status = 409, description = "`running`", body = Problem, content_type = "application/problem+json"),
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
    let scheduler = caller.scheduler(&app, None);
    let name = headers.get("idempotency-key").map(|name| name.as_bytes());
    match tasks {
        Tasks::One(task) => {
            let (span, mut task) = task.into_traced(&app, &within)?;
            if let Some(name) = name {
                task = task.id(named(&caller, name, 0));
            }
            one(&scheduler, span, task).await
        }
        Tasks::Many(tasks) => {
            let id = |at| name.map(|name| named(&caller, name, at));
            Ok(many(&app, &scheduler, &within, tasks, id).await)
        }
    }
}

async fn one(scheduler: &Scheduler, span: Create, task: NewTask) -> Result<Response, Problem> {
    let answer = scheduler.schedule(task).await;
    span.ends(&answer);
    let (status, version, body) = scheduled(answer?);
    Ok(match status {
        StatusCode::CONFLICT => refused(status, "a task of this kind and key runs, and is as it was", body),
        status => tagged(status, version, body),
    })
}

/// What came of one task of many.
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

/// Those that cannot be used are answered so, and the others are scheduled.
async fn many(
    app: &Shared,
    scheduler: &Scheduler,
    request: &Within,
    tasks: Vec<TaskBody>,
    name: impl Fn(usize) -> Option<TaskId>,
) -> Response {
    let mut each = Vec::with_capacity(tasks.len());
    let mut usable = Vec::with_capacity(tasks.len());
    let mut spans = Vec::with_capacity(tasks.len());
    for (at, task) in tasks.into_iter().enumerate() {
        match task.into_traced(app, request) {
            Ok((span, task)) => {
                spans.push(span);
                usable.push(match name(at) {
                    Some(id) => task.id(id),
                    None => task,
                });
                each.push(None);
            }
            Err(problem) => each.push(Some(Each::Refused(problem))),
        }
    }
    let answers = scheduler.schedule_each(usable).await;
    let mut answers = spans.into_iter().zip(answers).map(|(span, answer)| {
        span.ends(&answer);
        match answer {
            Ok(done) => {
                let (status, _, answered) = scheduled(done);
                let (status, answered) = (status.as_u16(), Box::new(answered));
                Each::Scheduled { status, answered }
            }
            Err(error) => Each::Refused(error.into()),
        }
    });
    let each = each
        .into_iter()
        .filter_map(|refused| refused.or_else(|| answers.next()));
    Json(each.collect::<Vec<_>>()).into_response()
}

/// As the interface is described.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only its description is used")]
pub(super) enum OneOrEach {
    One(Box<Answered>),
    Each(Vec<Each>),
}

/// The id that a caller's `Idempotency-Key` stands for, and its place in a batch.
fn named(caller: &Caller, name: &[u8], at: usize) -> TaskId {
    derived_id([caller.0.as_bytes(), name], &at.to_be_bytes())
}
