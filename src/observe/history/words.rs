//! What has become of a task in plain English.

use std::time::Duration;

use super::{Entry, Explanation, LOOK_AHEAD, Leg};
use crate::delay::Spelled;
use crate::task::timestamp::duration;
use crate::{State, Timestamp};

/// How many legs of a plan are named.
const LEGS: usize = 12;

impl Explanation {
    /// All of it, in a few sentences.
    pub(crate) fn in_words(&self) -> Vec<String> {
        let mut words = vec![self.state()];
        if self.task.state == State::Scheduled {
            words.push(self.way());
            words.extend(self.next());
        }
        if let Some(paused) = &self.paused
            && self.task.state.is_live()
        {
            let until = match paused.until {
                Some(until) => format!("until {until}"),
                None => "until it is resumed".to_owned(),
            };
            words.push(format!(
                "Its kind is paused since {}, {until}{}: no worker starts it before.",
                paused.since,
                because(Some(&paused.reason))
            ));
        }
        if self.history.is_empty() {
            words.push("Nothing was noted of what has happened to it.".to_owned());
        } else if self.is_cut {
            words.push("What is older than this history was dropped.".to_owned());
        }
        words
    }

    fn state(&self) -> String {
        let task = &self.task;
        let ended = task.finished_at.unwrap_or(task.updated_at);
        match task.state {
            State::Scheduled if task.due_at > self.now => {
                let remaining = to_the_second(span(self.now, task.due_at));
                let again = task.last_error.as_ref().map_or(String::new(), |error| {
                    let error = one_line(error);
                    let last = self.history.iter().rfind(|entry| entry.event != "hop");
                    // Also where no history says so: an attempt that is put off is given back.
                    match task.attempt == 0 || last.is_some_and(|last| last.event == "snoozed") {
                        true => format!(" Put off: {error}."),
                        false => format!(" Attempt {} failed: {error}.", task.attempt),
                    }
                });
                format!("Scheduled, due at {} (in {remaining}).{again}", task.due_at)
            }
            State::Scheduled => format!(
                "Due since {} ({} ago), and waits for a worker that has room for its kind.",
                task.due_at,
                to_the_second(span(task.due_at, self.now))
            ),
            State::Running => {
                let lease = task.wake_at.map_or(String::new(), |until| {
                    format!("; its claim holds until {until} unless it is renewed")
                });
                format!(
                    "Claimed at {} by {}, as attempt {}{lease}.",
                    task.updated_at,
                    task.owner.as_deref().map_or("an unknown worker".into(), one_line),
                    task.attempt
                )
            }
            State::Done => format!("Done at {ended}."),
            State::Dead => {
                let stays = match task.wake_at {
                    None => "stays until it is redriven or dismissed".to_owned(),
                    Some(removed) => {
                        format!("is removed after {removed}, unless it is redriven or dismissed before")
                    }
                };
                format!(
                    "Dead since {ended}, after attempt {}: {}. It {stays}.",
                    task.attempt,
                    one_line(task.last_error.as_deref().unwrap_or("no error is known"))
                )
            }
            State::Cancelled => {
                let last = self.history.last().filter(|entry| entry.version == task.version);
                format!("Cancelled at {ended}{}.", last.map_or(String::new(), said))
            }
        }
    }

    /// Where the wake-up is.
    fn way(&self) -> String {
        let missed = match self.task.wake_at {
            Some(missed) if missed > self.now => {
                format!("it counts as missed at {missed}, when the sweep looks")
            }
            Some(missed) => {
                format!("it counts as missed since {missed}, and the sweep of the next worker looks")
            }
            None => "it is never missed".to_owned(),
        };
        let Some(wake) = &self.wake else {
            return format!("Where its wake-up is was not noted; {missed}.");
        };
        if wake.leg.backend == LOOK_AHEAD {
            return format!(
                "No broker or Redis holds a wake-up of it: a worker finds it by looking ahead in the store; {missed}."
            );
        }
        // Which way it goes is noted before it is sent: whether the backend has taken it, no row says.
        let arrives = match wake.arrives_at > self.now {
            true => "It arrives",
            false => "It was to arrive",
        };
        format!(
            "Its wake-up was routed to {} at {}. {arrives} at {} if {} took it; {missed}.",
            wake.leg.in_words(),
            wake.since,
            wake.arrives_at,
            wake.leg.backend
        )
    }

    /// What comes after it.
    fn next(&self) -> Option<String> {
        let Some(plan) = &self.plan else {
            return Some("The process that receives it decides what comes then.".to_owned());
        };
        let mut parts: Vec<String> = plan
            .iter()
            .take(LEGS)
            .map(|leg| format!("{} {}", leg.length(), leg.by()))
            .collect();
        if plan.len() > LEGS {
            parts.push(format!("{} more", plan.len() - LEGS));
        }
        let then = match self.wake {
            Some(_) => "Then",
            None => "From now on, by the ways of this process",
        };
        (!parts.is_empty()).then(|| format!("{then}: {}.", parts.join(", ")))
    }
}

impl Leg {
    /// What a wake-up is with on it.
    fn in_words(&self) -> String {
        match self.level {
            Some(number) => format!("level {number} of {} ({})", self.backend, self.length()),
            None => format!("{} ({})", self.backend, self.length()),
        }
    }

    /// How long it takes. A level is told as it is, as its delay is its name.
    fn length(&self) -> Spelled {
        match self.level {
            Some(_) => Spelled(self.delay),
            None => to_the_second(self.delay),
        }
    }

    /// By what it goes.
    fn by(&self) -> String {
        match (self.level, self.backend.as_str()) {
            (Some(number), backend) => format!("by level {number} of {backend}"),
            (None, LOOK_AHEAD) => "by a look ahead in the store".to_owned(),
            (None, backend) => format!("by {backend}"),
        }
    }
}

/// Who and why, as far as it was said.
fn said(entry: &Entry) -> String {
    let by = entry.actor.as_deref();
    let by = by.map_or(String::new(), |by| format!(" by {}", one_line(by)));
    by + &because(entry.reason.as_deref())
}

fn because(reason: Option<&str>) -> String {
    match reason {
        Some(reason) if !reason.is_empty() => format!(" ({})", one_line(reason)),
        _ => String::new(),
    }
}

/// A text from a caller on one line, without control characters, which a terminal would obey.
fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.trim_end_matches('.').chars().map(plain).collect()
}

fn span(from: Timestamp, to: Timestamp) -> Duration {
    duration(to.millis_since(from))
}

/// Spells a duration for people, without the fraction of its last second.
fn to_the_second(duration: Duration) -> Spelled {
    match duration.as_secs() {
        0 => Spelled(duration),
        seconds => Spelled(Duration::from_secs(seconds)),
    }
}
