//! Traces tasks: the trace that makes a task ends with it, and each attempt begins one of its own, linked to that.
//!
//! A task may run days later, and often is cancelled: as a part of the trace that made it, it would keep that open, or
//! be cut off by samplers that decide when a trace seems to be complete.

#[cfg_attr(not(feature = "otlp"), path = "traces/no_spans.rs")]
mod spans;

use delayline::{NewTask, Outcome, Scheduled, Task};

use self::spans::{Open, Spans};
use super::config::Otlp;
use crate::Failure;

/// The names of the headers and properties of W3C Trace Context.
pub(crate) const TRACEPARENT: &str = "traceparent";
pub(crate) const TRACESTATE: &str = "tracestate";

/// A place in a trace, as W3C Trace Context writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) traceparent: String,
    pub(crate) tracestate: Option<String>,
}

impl Place {
    /// Reads a place from headers or properties; none if they have none, or an invalid one.
    pub(crate) fn of<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let traceparent = header(TRACEPARENT).filter(|value| is_traceparent(value))?;
        // Its own limit; a receiver of more may drop it.
        let tracestate = header(TRACESTATE).filter(|value| (1..=512).contains(&value.len()));
        Some(Self {
            traceparent: traceparent.to_owned(),
            tracestate: tracestate.map(str::to_owned),
        })
    }

    /// Returns the id of the trace.
    pub(crate) fn trace_id(&self) -> &str {
        self.traceparent.split('-').nth(1).unwrap_or_default()
    }

    /// Records in the task that it comes from here.
    pub(crate) fn kept_by(&self, mut task: NewTask) -> NewTask {
        task = task.header(TRACEPARENT, &self.traceparent);
        match &self.tracestate {
            Some(tracestate) => task.header(TRACESTATE, tracestate),
            None => task,
        }
    }
}

/// Says whether it is of the first version, the only one so far: `00-` and 32, 16 and 2 digits, the first two not all
/// zero.
fn is_traceparent(value: &str) -> bool {
    let is_hex = |part: &str, digits: usize| {
        part.len() == digits
            && part
                .bytes()
                .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let is_one = |part: &str| part.bytes().any(|byte| byte != b'0');
    match value.split('-').collect::<Vec<_>>()[..] {
        ["00", trace, span, flags] => {
            is_hex(trace, 32) && is_one(trace) && is_hex(span, 16) && is_one(span) && is_hex(flags, 2)
        }
        _ => false,
    }
}

/// Begins spans, where a collector is configured; otherwise it passes on the caller's place.
#[derive(Clone, Debug)]
pub(crate) struct Traces(Option<Spans>);

impl Traces {
    pub(crate) fn start(config: Option<&Otlp>) -> Result<Self, Failure> {
        let config = config.filter(|config| config.traces);
        Ok(Self(config.map(Spans::start).transpose()?))
    }

    /// Begins the span in which a task of a kind is made, as a child of the caller's.
    pub(crate) fn create(&self, kind: &str, caller: Option<Place>) -> Create {
        let span = self.0.as_ref().map(|spans| spans.create(kind, caller.as_ref()));
        Create {
            place: span.as_ref().map(Open::place).or(caller),
            span,
        }
    }

    /// Begins the span of an attempt at a task: the first of a trace, linked to the one in which the task was made.
    pub(crate) fn process(&self, task: &Task) -> Process {
        Process(self.0.as_ref().map(|spans| spans.process(task)))
    }

    /// Sends the remaining spans, for some seconds at the most.
    pub(crate) async fn end(self) {
        if let Some(spans) = self.0 {
            spans.end().await;
        }
    }
}

/// The span in which a task is made.
pub(crate) struct Create {
    place: Option<Place>,
    span: Option<Open>,
}

impl Create {
    pub(crate) fn kept_by(&self, task: NewTask) -> NewTask {
        match &self.place {
            Some(place) => place.kept_by(task),
            None => task,
        }
    }

    /// Ends the span: the task is made, or not.
    pub(crate) fn ends(self, made: &Result<Scheduled, delayline::Error>) {
        if let Some(span) = self.span {
            span.made(made);
        }
    }
}

/// The span of an attempt.
pub(crate) struct Process(Option<Open>);

impl Process {
    /// Returns the place of the attempt, for its receiver; none if it is not traced.
    pub(crate) fn place(&self) -> Option<Place> {
        self.0.as_ref().map(Open::place)
    }

    /// Ends the span with this outcome.
    pub(crate) fn ended(self, outcome: &Result<Outcome, delayline::Failure>) {
        if let Some(span) = self.0 {
            span.ended(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn of(traceparent: &str, tracestate: &str) -> Option<Place> {
        Place::of(|name| match name {
            TRACEPARENT => Some(traceparent),
            TRACESTATE => Some(tracestate),
            _ => None,
        })
    }

    #[test]
    fn a_place_is_what_the_standard_says() {
        let place = of(PARENT, "a=1,b=2").unwrap();
        assert_eq!(place.traceparent, PARENT);
        assert_eq!(place.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(place.tracestate.as_deref(), Some("a=1,b=2"));
        let too_long = "x".repeat(513);
        assert_eq!(of(PARENT, &too_long).unwrap().tracestate, None);
        for garbled in [
            "",
            "00-1-2-01",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-0af7651916cd43dd8448eb211c80319ü-b7ad6b7169203331-01",
        ] {
            assert_eq!(of(garbled, "a=1"), None, "{garbled}");
        }
    }
}
