//! Makes spans, and sends them.

use std::collections::HashMap;

use delayline::{Error, Outcome, Scheduled, Task};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use super::{Place, TRACEPARENT, TRACESTATE};
use crate::Failure;
use crate::serve::collector::{LIMIT, resource, sending_to};
use crate::serve::config::Otlp;

/// Begins spans, which are sent in batches, from a thread of their own. Spans that a collector does not take while it
/// is away are dropped.
#[derive(Clone, Debug)]
pub(super) struct Spans {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Spans {
    pub(super) fn start(config: &Otlp) -> Result<Self, Failure> {
        let exporter = sending_to(SpanExporter::builder().with_http(), "traces", config)
            .build()
            .map_err(|error| Failure::Found(format!("spans cannot be sent: {error}")))?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource(config))
            .build();
        let tracer = provider.tracer("delayline");
        Ok(Self { provider, tracer })
    }

    pub(super) fn create(&self, kind: &str, caller: Option<&Place>) -> Open {
        let parent = caller.map_or_else(Context::new, remote);
        let span = self
            .tracer
            .span_builder(format!("create {kind}"))
            .with_kind(SpanKind::Producer)
            .with_attributes(attributes("create", kind))
            .start_with_context(&self.tracer, &parent);
        Open(Context::new().with_span(span))
    }

    pub(super) fn process(&self, task: &Task) -> Open {
        let kind = task.kind.as_str();
        let mut attributes = attributes("process", kind);
        let attempt = i64::from(task.attempt);
        attributes.extend([
            KeyValue::new("messaging.message.id", task.id.to_string()),
            KeyValue::new("delayline.attempt", attempt),
            KeyValue::new("delayline.due_at", task.due_at.to_string()),
        ]);
        let mut span = self
            .tracer
            .span_builder(format!("process {kind}"))
            .with_kind(SpanKind::Consumer)
            .with_attributes(attributes);
        if let Some(made) = Place::of(|name| task.headers.get(name).map(String::as_str)) {
            let made = remote(&made).span().span_context().clone();
            span = span.with_links(vec![opentelemetry::trace::Link::with_context(made)]);
        }
        let span = span.start_with_context(&self.tracer, &Context::new());
        Open(Context::new().with_span(span))
    }

    pub(super) async fn end(self) {
        // It waits for its thread.
        let ended = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(LIMIT)).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "the last spans could not be sent");
        }
    }
}

/// Makes the attributes of every span, by the conventions for messaging. Never a key: it is the caller's own, and may
/// be a person's.
fn attributes(operation: &'static str, kind: &str) -> Vec<KeyValue> {
    vec![
        KeyValue::new("messaging.system", "delayline"),
        KeyValue::new("messaging.operation.name", operation),
        KeyValue::new("messaging.operation.type", operation),
        KeyValue::new("messaging.destination.name", kind.to_owned()),
    ]
}

/// Makes the context of a remote span.
fn remote(place: &Place) -> Context {
    let mut headers = HashMap::from([(TRACEPARENT.to_owned(), place.traceparent.clone())]);
    headers.extend(
        place
            .tracestate
            .clone()
            .map(|state| (TRACESTATE.to_owned(), state)),
    );
    TraceContextPropagator::new().extract_with_context(&Context::new(), &headers)
}

/// A span that has begun; it ends with this.
pub(super) struct Open(Context);

impl Open {
    pub(super) fn place(&self) -> Place {
        let mut headers = HashMap::new();
        TraceContextPropagator::new().inject_context(&self.0, &mut headers);
        Place {
            traceparent: headers.remove(TRACEPARENT).unwrap_or_default(),
            tracestate: headers.remove(TRACESTATE).filter(|state| !state.is_empty()),
        }
    }

    pub(super) fn made(self, made: &Result<Scheduled, Error>) {
        match made {
            Ok(scheduled) => {
                let id = scheduled.task().id.to_string();
                self.0
                    .span()
                    .set_attribute(KeyValue::new("messaging.message.id", id));
            }
            Err(error) => self.failed(error.to_string()),
        }
    }

    pub(super) fn ended(self, outcome: &Result<Outcome, delayline::Failure>) {
        match outcome {
            Ok(Outcome::Retry(reason) | Outcome::RetryAfter(reason, _) | Outcome::Discard(reason)) => {
                self.failed(reason.clone());
            }
            Ok(_) => {}
            Err(failure) => self.failed(failure.reason()),
        }
    }

    fn failed(&self, reason: String) {
        self.0.span().set_status(Status::error(reason));
    }
}
