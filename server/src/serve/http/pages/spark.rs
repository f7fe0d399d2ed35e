//! The course of the last hour, as small pictures.

use std::time::Duration;

use super::words::lasted;
use crate::digits::grouped;
use crate::serve::recent::{MINUTES, Minute};

/// How high a picture is; it is as wide as there are minutes.
const HEIGHT: f64 = 20.0;
/// What is not zero is this high at the least, so that it is seen.
const LOWEST: f64 = 1.5;

/// How many tasks were started, and how late, minute by minute.
#[derive(Debug)]
pub(super) struct Sparks {
    pub(super) started: Spark,
    pub(super) late: Spark,
}

/// A picture, and what it shows in words.
#[derive(Debug)]
pub(super) struct Spark {
    /// The outline, in the language of SVG; empty, if there is nothing to see.
    pub(super) path: String,
    pub(super) text: String,
    /// The figure that stands beside it.
    pub(super) figure: String,
}

impl Sparks {
    pub(super) fn of(course: &[Minute; MINUTES]) -> Self {
        let started = course.map(|minute| minute.started);
        let latest = course.map(|minute| minute.latest);
        let all: u64 = started.iter().copied().map(u64::from).sum();
        let (most, late) = (
            most(&started),
            lasted(Duration::from_millis(most(&latest).into())),
        );
        Self {
            started: Spark {
                path: outline(&started),
                text: format!(
                    "{} started within the last hour, at most {} in a minute",
                    grouped(all),
                    grouped(most)
                ),
                figure: grouped(all),
            },
            late: Spark {
                path: outline(&latest),
                text: match all {
                    0 => "none was started within the last hour".to_owned(),
                    _ => format!("the latest start within the last hour was late by {late}"),
                },
                figure: if all > 0 { late } else { "–".to_owned() },
            },
        }
    }
}

fn most(values: &[u32; MINUTES]) -> u32 {
    values.iter().copied().max().unwrap_or_default()
}

/// Draws steps, one a minute, up to the top for the highest.
fn outline(values: &[u32; MINUTES]) -> String {
    let top = f64::from(most(values));
    if top == 0.0 {
        return String::new();
    }
    let mut path = format!("M0 {HEIGHT}");
    for run in values.chunk_by(|one, next| one == next) {
        let value = f64::from(run[0]);
        let height = match run[0] {
            0 => 0.0,
            _ => (value / top * HEIGHT).max(LOWEST),
        };
        path += &format!("V{:.1}h{}", HEIGHT - height, run.len());
    }
    path + &format!("V{HEIGHT}z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_reaches_the_top_and_the_lowest_is_seen() {
        let mut course = [Minute::default(); MINUTES];
        for (at, started, latest) in [(10, 1, 3), (11, 1_000, 2_500), (59, 500, 0)] {
            course[at] = Minute { started, latest };
        }
        let sparks = Sparks::of(&course);
        assert_eq!(
            sparks.started.path,
            "M0 20V20.0h10V18.5h1V0.0h1V20.0h47V10.0h1V20z"
        );
        assert_eq!(
            sparks.started.text,
            "1,501 started within the last hour, at most 1,000 in a minute"
        );
        assert_eq!(sparks.late.figure, "2 s");
        assert!(sparks.late.path.starts_with("M0 20V20.0h10V18.5h1V0.0h1V20.0h48"));
    }

    #[test]
    fn where_nothing_was_started_there_is_nothing_to_see() {
        let sparks = Sparks::of(&[Minute::default(); MINUTES]);
        assert_eq!(
            (sparks.started.path.as_str(), sparks.late.path.as_str()),
            ("", "")
        );
        assert_eq!(
            (sparks.started.figure.as_str(), sparks.late.figure.as_str()),
            ("0", "–")
        );
    }
}
