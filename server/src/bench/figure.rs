//! What was measured, and how it is told.

use std::borrow::Cow;

use serde::Serialize;

use super::ledger::Faults;
use super::workload::{Aim, Figure, Unit, Workload};
use crate::digits::grouped;
use crate::table::table;

/// What was measured once, of one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) tasks: usize,
    pub(crate) seconds: Option<f64>,
    /// How late each started, in ms, ascending.
    pub(crate) late: Vec<f64>,
    pub(crate) bytes_each: Option<f64>,
    /// Through how many levels of a broker each went.
    pub(crate) hops_each: Option<f64>,
    /// Statements or commands a second.
    pub(crate) asked: Option<f64>,
    /// What this process took of its processors, in ms a second.
    pub(crate) processor: Option<f64>,
    pub(crate) faults: Faults,
}

impl Measured {
    pub(crate) fn per_second(&self) -> Option<f64> {
        let seconds = self.seconds.filter(|seconds| *seconds > 0.0)?;
        Some(self.tasks as f64 / seconds)
    }

    /// How late this part of them were at the most, in ms.
    pub(crate) fn quantile(&self, part: f64) -> Option<f64> {
        let rank = (self.late.len() as f64 * part).ceil() as usize;
        self.late.get(rank.saturating_sub(1)).copied()
    }

    /// The one number by which runs are compared.
    fn value(&self, unit: Unit) -> Option<f64> {
        match unit {
            Unit::Rate => self.per_second(),
            Unit::Time => self.seconds,
            Unit::Lateness => self.quantile(0.99),
            Unit::Bytes => self.bytes_each,
            Unit::Asked => self.asked,
        }
    }

    /// The run in the middle.
    fn median(mut runs: Vec<Self>, unit: Unit) -> Option<Self> {
        runs.sort_by(|one, other| {
            one.value(unit)
                .unwrap_or(0.0)
                .total_cmp(&other.value(unit).unwrap_or(0.0))
        });
        let middle = runs.len() / 2;
        (middle < runs.len()).then(|| runs.swap_remove(middle))
    }

    /// As JSON has it.
    fn numbers(&self) -> Numbers {
        let quantile = |part| self.quantile(part).map_or(0.0, |ms| rounded(ms, 3));
        Numbers {
            seconds: self.seconds.map(|seconds| rounded(seconds, 6)),
            per_second: self.per_second().or(self.asked).map(|rate| rounded(rate, 2)),
            bytes_each: self.bytes_each.map(|bytes| rounded(bytes, 1)),
            hops_each: self.hops_each.map(|hops| rounded(hops, 2)),
            processor_ms_per_second: self.processor.map(|ms| rounded(ms, 2)),
            late_ms: (!self.late.is_empty()).then(|| Late {
                p50: quantile(0.5),
                p99: quantile(0.99),
                max: quantile(1.0),
            }),
        }
    }

    /// How late they started, for people: the median, and the 99th of a hundred.
    fn lateness(&self) -> Option<String> {
        let (p50, p99) = self.quantile(0.5).zip(self.quantile(0.99))?;
        let hops = self
            .hops_each
            .map_or_else(String::new, |hops| format!(", {hops:.1} hops each"));
        Some(format!("{p50:.1} / {p99:.1} ms{hops}"))
    }

    /// For people.
    fn text(&self, unit: Unit) -> String {
        let text = match unit {
            Unit::Rate => self.per_second().map(|rate| format!("{}/s", spaced(rate))),
            Unit::Time => self.seconds.map(|seconds| format!("{:.0} ms", seconds * 1e3)),
            Unit::Lateness => self.lateness(),
            Unit::Bytes => self.bytes_each.map(|bytes| format!("{bytes:.0} B")),
            Unit::Asked => {
                let asked = self.asked.map(|asked| format!("{asked:.1}/s"));
                let late = self.lateness().map(|late| format!("an earlier one {late} late"));
                let both: Vec<_> = asked.into_iter().chain(late).collect();
                (!both.is_empty()).then(|| both.join(", "))
            }
        };
        text.unwrap_or_else(|| "-".to_owned())
    }
}

/// A number with its thousands apart.
fn spaced(value: f64) -> String {
    grouped(format_args!("{value:.0}"))
}

fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

/// What JSON says of one side; what was not measured is left out.
#[derive(Serialize)]
struct Numbers {
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_each: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hops_each: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    processor_ms_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    late_ms: Option<Late>,
}

#[derive(Serialize)]
struct Late {
    p50: f64,
    p99: f64,
    max: f64,
}

/// What JSON says of a figure.
#[derive(Serialize)]
struct Told {
    workload: Workload,
    what: Cow<'static, str>,
    system: &'static str,
    store: &'static str,
    tasks: usize,
    #[serde(flatten)]
    ours: Numbers,
    limit: Option<Numbers>,
    ratio: Option<f64>,
    aim: String,
    is_met: Option<bool>,
    #[serde(flatten)]
    faults: Faults,
}

/// One figure of one workload on one server: both sides, and what comes of them.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) workload: Workload,
    pub(crate) figure: Figure,
    pub(crate) store: &'static str,
    /// What was measured in the median run; the faults are those of all runs.
    pub(crate) ours: Measured,
    pub(crate) limit: Option<Measured>,
}

impl Line {
    /// From the runs of both sides; none if there were none.
    pub(crate) fn of(
        workload: Workload,
        figure: Figure,
        store: &'static str,
        ours: Vec<Measured>,
        limits: Vec<Measured>,
    ) -> Option<Self> {
        let faults = ours
            .iter()
            .fold(Faults::default(), |sum, run| sum.and(run.faults));
        let ours = Measured::median(ours, figure.unit)?;
        let limit = Measured::median(limits, figure.unit);
        Some(Self {
            workload,
            figure,
            store,
            ours: Measured { faults, ..ours },
            limit,
        })
    }

    /// Ours to the limit; of lateness the worse of the medians' ratio and that of the 99th parts.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let limit = self.limit.as_ref()?;
        let of = |ours: Option<f64>, limit: Option<f64>| {
            let (ours, limit) = ours.zip(limit)?;
            (limit > 0.0).then_some(ours / limit)
        };
        let unit = self.figure.unit;
        match unit {
            Unit::Lateness => {
                let at = |part| of(self.ours.quantile(part), limit.quantile(part));
                Some(at(0.5)?.max(at(0.99)?))
            }
            unit => of(self.ours.value(unit), limit.value(unit)),
        }
    }

    /// Whether it is as one would like; none where it could not be measured.
    pub(crate) fn is_met(&self) -> Option<bool> {
        match self.figure.aim {
            Aim::AtLeast(aim) => self.ratio().map(|ratio| ratio >= aim),
            Aim::AtMost(aim) => self.ratio().map(|ratio| ratio <= aim),
            Aim::NoMoreThan(aim) => self.ours.value(self.figure.unit).map(|value| value <= aim),
            #[cfg(feature = "rocketmq")]
            Aim::AtMostLaterBy(aim) => {
                let limit = self.limit.as_ref()?.quantile(0.99)?;
                self.ours.quantile(0.99).map(|late| late <= limit + aim)
            }
        }
    }

    /// One line of JSON.
    pub(crate) fn json(&self) -> impl Serialize + use<> {
        Told {
            workload: self.workload,
            what: self.figure.what.clone(),
            system: "delayline",
            store: self.store,
            tasks: self.ours.tasks,
            ours: self.ours.numbers(),
            limit: self.limit.as_ref().map(Measured::numbers),
            ratio: self.ratio().map(|ratio| rounded(ratio, 3)),
            aim: self.aim(),
            is_met: self.is_met(),
            faults: self.ours.faults,
        }
    }

    /// The aim, for people.
    pub(crate) fn aim(&self) -> String {
        match self.figure.aim {
            Aim::AtLeast(aim) => format!("at least {aim} x"),
            Aim::AtMost(aim) => format!("at most {aim} x"),
            Aim::NoMoreThan(aim) => format!("at most {aim}/s"),
            #[cfg(feature = "rocketmq")]
            Aim::AtMostLaterBy(aim) => format!("at most {aim} ms later"),
        }
    }

    /// The cells of a table, below [`HEADER`].
    pub(crate) fn cells(&self) -> [String; 9] {
        let unit = self.figure.unit;
        let Faults { lost, twice, early } = self.ours.faults;
        let faults = match self.ours.faults.sum() {
            0 => String::new(),
            _ => format!("{lost} lost, {twice} twice, {early} early"),
        };
        [
            self.store.to_owned(),
            self.workload.to_string(),
            format!("{} {}", spaced(self.ours.tasks as f64), self.figure.what),
            self.limit
                .as_ref()
                .map_or_else(|| "-".to_owned(), |limit| limit.text(unit)),
            self.ours.text(unit),
            self.ratio()
                .map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2} x")),
            self.aim(),
            match self.is_met() {
                Some(true) => "met",
                Some(false) => "not met",
                None => "-",
            }
            .to_owned(),
            faults,
        ]
    }
}

/// What [`Line::cells`] are.
pub(crate) const HEADER: [&str; 9] = ["STORE", "", "TASKS", "LIMIT", "DELAYLINE", "RATIO", "AIM", "", ""];

/// All of them, for people.
pub(crate) fn text(lines: &[Line]) -> String {
    table(HEADER, lines.iter().map(Line::cells))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn took(seconds: f64) -> Measured {
        Measured {
            tasks: 100,
            seconds: Some(seconds),
            ..Measured::default()
        }
    }

    fn line(unit: Unit, aim: Aim, ours: Vec<Measured>, limits: Vec<Measured>) -> Line {
        let figure = Figure {
            what: "w".into(),
            unit,
            aim,
        };
        Line::of(Workload::W1, figure, "memory", ours, limits).unwrap()
    }

    #[test]
    fn the_run_in_the_middle_counts_and_the_faults_of_all() {
        let mut spoilt = took(9.0);
        spoilt.faults.lost = 2;
        let ours = vec![took(1.0), spoilt, took(2.0)];
        let limits = vec![took(1.0), took(4.0), took(0.5)];
        let line = line(Unit::Time, Aim::AtMost(2.0), ours, limits);
        assert_eq!((line.ratio(), line.is_met()), (Some(2.0), Some(true)));
        assert_eq!(line.ours.faults.lost, 2);
        let json = serde_json::to_value(line.json()).unwrap();
        assert_eq!(
            (&json["seconds"], &json["limit"]["seconds"]),
            (&json!(2.0), &json!(1.0))
        );
        assert_eq!((&json["per_second"], &json["lost"]), (&json!(50.0), &json!(2)));
    }

    #[test]
    fn of_lateness_the_worse_ratio_counts() {
        let late = |late: &[f64]| Measured {
            late: late.to_vec(),
            ..Measured::default()
        };
        let line = line(
            Unit::Lateness,
            Aim::AtMost(2.5),
            vec![late(&[3.0, 3.0, 4.0])],
            vec![late(&[1.0, 1.0, 4.0])],
        );
        assert_eq!((line.ratio(), line.is_met()), (Some(3.0), Some(false)));
    }

    #[cfg(feature = "rocketmq")]
    #[test]
    fn what_may_be_so_much_later_may_be_no_later_than_that() {
        for (late, is_met) in [(206.0, true), (206.5, false)] {
            let measured = |late| Measured {
                late: vec![late],
                ..Measured::default()
            };
            let (ours, limits) = (vec![measured(late)], vec![measured(1.0)]);
            let line = line(Unit::Lateness, Aim::AtMostLaterBy(205.0), ours, limits);
            assert_eq!(line.is_met(), Some(is_met));
            assert_eq!(line.aim(), "at most 205 ms later");
        }
    }

    #[test]
    fn what_has_no_limit_has_an_aim_of_its_own() {
        let asked = Measured {
            asked: Some(0.5),
            ..Measured::default()
        };
        let line = line(Unit::Asked, Aim::NoMoreThan(1.0), vec![asked], Vec::new());
        assert_eq!((line.ratio(), line.is_met()), (None, Some(true)));
        assert_eq!(spaced(1_234_567.4), "1,234,567");
    }
}
