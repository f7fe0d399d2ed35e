//! What is set up for a kind of tasks.

use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::Range;
use std::time::Duration;

use delayline::store::Keep;
use delayline::{Kind, Policy, defaults};
use serde::Deserialize;
use toml::Spanned;

use super::changes::compared;
use super::{Delivery, Kept};
use crate::serve::webhook;
use crate::span::{NoSpan, Span};

/// A kind of tasks.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KindTable {
    pub(super) deliver: Spanned<Delivery>,
    attempts: Option<NonZeroU32>,
    concurrency: Option<NonZeroUsize>,
    backoff_first: Option<Spanned<Time>>,
    backoff_max: Option<Spanned<Time>>,
    execution_timeout: Option<Spanned<Time>>,
    deadline: Option<Spanned<Time>>,
    history: Option<Kept>,
    keep_ended: Option<Time>,
    keep_dead: Option<Time>,
}

/// A time span, whose error says what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Time(Duration);

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = |error: NoSpan| format!("{text:?} is no time: {error}");
        text.parse().map(|Span(time)| Self(time)).map_err(wrong)
    }
}

/// The time that a setting says.
fn said(time: &Option<Spanned<Time>>) -> Option<Duration> {
    time.as_ref().map(|time| time.get_ref().0)
}

/// A kind of tasks, and what becomes of them when they are due.
#[derive(Clone, Debug)]
pub(crate) struct KindConfig {
    pub(crate) kind: Kind,
    pub(crate) deliver: Delivery,
    /// How they are run, tried again and given up.
    pub(crate) policy: Policy,
    /// How long an attempt of a webhook may take.
    pub(crate) timeout: Duration,
    /// What is kept of them.
    pub(crate) keep: Keep,
}

impl KindTable {
    /// What it says of its kind.
    pub(super) fn config(&self, kind: &str) -> KindConfig {
        KindConfig {
            kind: Kind::from(kind),
            deliver: self.deliver.get_ref().clone(),
            policy: self.policy(),
            timeout: said(&self.execution_timeout).unwrap_or(webhook::LIMIT),
            keep: self.keep(),
        }
    }

    fn policy(&self) -> Policy {
        let (first, longest) = self.backoff();
        let mut policy = Policy::new().backoff(first, longest);
        if let Some(attempts) = self.attempts {
            policy = policy.max_attempts(attempts.get());
        }
        let concurrency = self.concurrency.map_or(defaults::CONCURRENCY, NonZeroUsize::get);
        policy = policy.concurrency(concurrency);
        if let Some(deadline) = said(&self.deadline) {
            policy = policy.deadline(deadline);
        }
        if let Some(timeout) = said(&self.execution_timeout) {
            policy = policy.execution_timeout(timeout);
        }
        match self.deliver.get_ref() {
            // What is claimed in advance waits for a receiver that may be slow, and meanwhile can be neither cancelled nor
            // posted by another server. And its client ends first, which says more.
            Delivery::Webhook(_) => {
                let timeout = said(&self.execution_timeout).unwrap_or(webhook::LIMIT);
                policy
                    .prefetch(concurrency)
                    .execution_timeout(timeout.saturating_add(webhook::MARGIN))
            }
            Delivery::Pull | Delivery::Topic(_) => policy,
        }
    }

    /// The first pause and the longest; where one is said alone, the other is not on its wrong side.
    fn backoff(&self) -> (Duration, Duration) {
        match (said(&self.backoff_first), said(&self.backoff_max)) {
            (None, None) => (defaults::BACKOFF_FIRST, defaults::BACKOFF_MAX),
            (Some(first), None) => (first, defaults::BACKOFF_MAX.max(first)),
            (None, Some(longest)) => (defaults::BACKOFF_FIRST.min(longest), longest),
            (Some(first), Some(longest)) => (first, longest),
        }
    }

    fn keep(&self) -> Keep {
        let mut keep = Keep::new();
        if let Some(Kept(history)) = self.history {
            keep = keep.history(history);
        }
        if let Some(Time(time)) = self.keep_ended {
            keep = keep.ended(time);
        }
        if let Some(Time(time)) = self.keep_dead {
            keep = keep.dead(time);
        }
        keep
    }

    /// What is right by itself and wrong beside the rest, of the kind of this name.
    pub(super) fn contradiction(&self, kind: &str) -> Option<(Range<usize>, String)> {
        let (first, longest) = self.backoff();
        if let Some(max) = self.backoff_max.as_ref().filter(|_| first > longest) {
            let what = format!(
                "kinds.{kind:?}.backoff_max is \"{}\", and backoff_first \"{}\": allowed is a first pause of at most the longest",
                Span(longest),
                Span(first)
            );
            return Some((max.span(), what));
        }
        let times = [
            ("deadline", &self.deadline),
            ("execution_timeout", &self.execution_timeout),
        ];
        for (key, time) in times {
            if let Some(time) = time.as_ref().filter(|time| time.get_ref().0.is_zero()) {
                let what = format!("kinds.{kind:?}.{key} is \"0\": allowed is more than that");
                return Some((time.span(), what));
            }
        }
        match (&self.execution_timeout, self.deliver.get_ref()) {
            (Some(timeout), Delivery::Pull) => {
                let what = format!(
                    "kinds.{kind:?}.execution_timeout is \"{}\", and the kind is delivered by \"pull\": allowed is none, as the \
                     lease that a worker asks for says how long it may take",
                    Span(timeout.get_ref().0)
                );
                Some((timeout.span(), what))
            }
            _ => None,
        }
    }

    /// The keys by which two differ.
    pub(super) fn differences(&self, other: &Self) -> impl Iterator<Item = &'static str> {
        let keys = compared!(
            self, other;
            deliver, attempts, concurrency, backoff_first, backoff_max, execution_timeout, deadline, history,
            keep_ended, keep_dead,
        );
        keys.into_iter()
            .filter(|(_, differs)| *differs)
            .map(|(key, _)| key)
    }
}
