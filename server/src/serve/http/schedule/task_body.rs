//! What a request to schedule has in it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use delayline::store::{Target, When};
use delayline::{Key, Kind, NewTask};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{AllOfBuilder, ArrayBuilder, ObjectBuilder, OneOfBuilder};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::super::Shared;
use super::super::access::Caller;
use super::super::idempotency::Fingerprint;
use super::super::problem::Problem;
use crate::depth;
use crate::reserved;
use crate::schemas;
use crate::serve::config::Right;
use crate::serve::traces::{Create, Place};
use crate::span::Span;
use crate::time::Time;

/// How many tasks an array has at the most.
const MOST: usize = 10_000;

/// A task to schedule.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct TaskBody {
    /// In a `PUT` what the path says.
    #[schema(value_type = Option<schemas::Kind>)]
    pub(super) kind: Option<String>,
    /// The caller's own name for it: of a kind and key there is one live task.
    #[schema(value_type = Option<schemas::Key>)]
    pub(super) key: Option<String>,
    /// From now. Either this or `at`.
    after: Option<Span>,
    /// Either this or `after`.
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

/// The time that is meant: exactly one of both is given.
pub(in super::super) fn when(after: Option<Span>, at: Option<Time>) -> Result<When, Problem> {
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
pub(in super::super) struct Within(Option<Place>);

impl<S: Send + Sync> FromRequestParts<S> for Within {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let header = |name: &str| parts.headers.get(name)?.to_str().ok();
        Ok(Self(Place::of(header)))
    }
}

impl TaskBody {
    /// Refuses what this caller may not schedule, or not so.
    pub(super) fn check(&self, app: &Shared, caller: &Caller) -> Result<(), Problem> {
        reserved::check_headers(self.headers.keys())?;
        if let Some(kind) = &self.kind {
            reserved::check(kind)?;
            let kind = Kind::from(kind.as_str());
            caller.reach(&kind)?;
            if app.current().of_gateway.contains(&kind) {
                let allowed =
                    "allowed are kinds that are not in gateway.kinds: the tasks of this one come as messages";
                return Err(Problem::invalid("kind", kind, allowed));
            }
        }
        match self.replace {
            // It changes a task that is there.
            true => caller.need(Right::Change),
            false => Ok(()),
        }
    }

    /// What is the same of a request that comes again.
    pub(super) fn add_to(&self, fingerprint: &mut Fingerprint) {
        for text in [&self.kind, &self.key] {
            fingerprint.add(text.as_deref().unwrap_or_default().as_bytes());
        }
        let numbers = format!(
            "{:?} {:?} {} {:?}",
            self.after, self.at, self.replace, self.max_attempts
        );
        fingerprint.add(numbers.as_bytes());
        let payload = self.payload.as_ref().map_or("null", |payload| payload.get());
        fingerprint.add(payload.as_bytes());
        for (name, value) in &self.headers {
            fingerprint.add(name.as_bytes());
            fingerprint.add(value.as_bytes());
        }
        fingerprint.add(b"");
    }

    /// The kind and the key of the task that it may replace.
    pub(super) fn replaceable(&self) -> Option<Target> {
        let (true, Some(kind), Some(key)) = (self.replace, &self.kind, &self.key) else {
            return None;
        };
        Some(Target::Key(kind.as_str().into(), key.as_str().into()))
    }

    /// The task, as a part of the trace that its own headers name, or else the request, and the span in which it is made.
    pub(super) fn into_traced(self, app: &Shared, request: &Within) -> Result<(Create, NewTask), Problem> {
        let named = Place::of(|name| self.headers.get(name).map(String::as_str));
        let within = named.or_else(|| request.0.clone());
        let kind = self.kind.clone().unwrap_or_default();
        let task = self.into_task()?;
        let span = app.traces.create(&kind, within);
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
        let payload = self.payload.map_or_else(|| "null".to_owned(), text);
        depth::check(&payload)?;
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

fn text(json: Box<RawValue>) -> String {
    Box::<str>::from(json).into()
}

/// One task, or many.
#[derive(Debug)]
pub(in super::super) enum Tasks {
    One(Box<TaskBody>),
    Many(Vec<TaskBody>),
}

impl PartialSchema for Tasks {
    fn schema() -> RefOr<Schema> {
        let kind = Ref::from_schema_name(schemas::Kind::name());
        let with_kind = ObjectBuilder::new().property("kind", kind).required("kind");
        let task = Ref::from_schema_name(TaskBody::name());
        let one: RefOr<Schema> = AllOfBuilder::new().item(task).item(with_kind).into();
        OneOfBuilder::new()
            .item(one.clone())
            .item(ArrayBuilder::new().items(one).max_items(Some(MOST)))
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

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tasks, A::Error> {
                let mut tasks = Vec::new();
                while let Some(task) = seq.next_element()? {
                    // A task takes much more memory than the three bytes that may say it.
                    if tasks.len() == MOST {
                        let allowed = format!("an array of up to {MOST} tasks");
                        return Err(A::Error::invalid_length(MOST + 1, &allowed.as_str()));
                    }
                    tasks.push(task);
                }
                Ok(Tasks::Many(tasks))
            }
        }
        deserializer.deserialize_any(Either)
    }
}
