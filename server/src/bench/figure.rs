//! Holds and prints figures.

use serde_json::{Value, json};

use super::ledger::Faults;
use super::workload::{Figure, Unit, Workload};
use crate::digits::grouped;
use crate::table::table;

/// One measurement of one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) tasks: usize,
    pub(crate) seconds: f64,
    /// How late each started, in ms, ascending.
    pub(crate) late: Vec<f64>,
    /// The mean number of levels of a broker that each went through.
    pub(crate) hops: Option<f64>,
    pub(crate) faults: Faults,
}

impl Measured {
    fn per_second(&self) -> f64 {
        self.tasks as f64 / self.seconds
    }

    /// Returns how late this part of them were at the most, in ms.
    fn quantile(&self, part: f64) -> f64 {
        let rank = (self.late.len() as f64 * part).ceil() as usize;
        self.late.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    /// Returns the one number by which runs and sides are compared.
    fn value(&self, unit: Unit) -> f64 {
        match unit {
            Unit::Rate => self.per_second(),
            Unit::Time => self.seconds,
            Unit::Lateness => self.quantile(0.99),
        }
    }

    /// Returns the run in the middle, of at least one.
    fn median(mut runs: Vec<Self>, unit: Unit) -> Self {
        runs.sort_by(|one, other| one.value(unit).total_cmp(&other.value(unit)));
        runs.swap_remove(runs.len() / 2)
    }

    /// Writes null for what is not a number.
    fn json(&self) -> Value {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| self.quantile(part));
        json!({
            "seconds": self.seconds,
            "per_second": self.per_second(),
            "late_ms": { "p50": p50, "p99": p99, "max": max },
            "hops_each": self.hops,
        })
    }

    /// Prints it as text.
    fn text(&self, unit: Unit) -> String {
        let hops = self.hops.map(|hops| format!(", {hops:.1} hops each"));
        let hops = hops.unwrap_or_default();
        match unit {
            Unit::Rate => format!("{}/s", grouped(format_args!("{:.0}", self.per_second()))),
            Unit::Time => format!("{:.0} ms", self.seconds * 1e3),
            Unit::Lateness => format!("{:.1} / {:.1} ms{hops}", self.quantile(0.5), self.quantile(0.99)),
        }
    }
}

/// One figure of one workload on one server: both sides, and their ratio.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    workload: Workload,
    figure: Figure,
    store: &'static str,
    /// The median run; the faults are those of all runs.
    pub(crate) ours: Measured,
    limit: Measured,
}

/// Makes lines from all runs, each with the measurements of both sides in the order of the figures.
pub(crate) fn lines(
    workload: Workload,
    store: &'static str,
    limits: &[Vec<Measured>],
    ours: &[Vec<Measured>],
) -> Vec<Line> {
    let line = |(at, figure): (usize, Figure)| {
        let of = |runs: &[Vec<Measured>]| -> Vec<_> { runs.iter().map(|run| run[at].clone()).collect() };
        let faults = of(ours)
            .iter()
            .map(|run| run.faults)
            .fold(Faults::default(), Faults::and);
        Line {
            workload,
            store,
            limit: Measured::median(of(limits), figure.unit),
            ours: Measured {
                faults,
                ..Measured::median(of(ours), figure.unit)
            },
            figure,
        }
    };
    workload
        .figures(store)
        .into_iter()
        .enumerate()
        .map(line)
        .collect()
}

impl Line {
    /// Returns ours to the limit; for lateness that of 99 in a hundred.
    fn ratio(&self) -> f64 {
        self.ours.value(self.figure.unit) / self.limit.value(self.figure.unit)
    }

    fn aim(&self) -> String {
        match self.figure.unit {
            Unit::Rate => format!("at least {} x", self.figure.aim),
            Unit::Time | Unit::Lateness => format!("at most {} x", self.figure.aim),
        }
    }

    /// Prints JSON for scripts.
    pub(crate) fn json(&self) -> Value {
        let Faults { lost, twice, early } = self.ours.faults;
        let mut json = self.ours.json();
        json["workload"] = json!(self.workload.to_string());
        json["what"] = json!(self.figure.what);
        json["store"] = json!(self.store);
        json["tasks"] = json!(self.ours.tasks);
        json["limit"] = self.limit.json();
        json["ratio"] = json!((self.ratio() * 1e3).round() / 1e3);
        json["aim"] = json!(self.aim());
        json["lost"] = json!(lost);
        json["twice"] = json!(twice);
        json["early"] = json!(early);
        json
    }

    fn cells(&self) -> [String; 7] {
        [
            self.store.to_owned(),
            self.workload.to_string(),
            format!("{} {}", grouped(self.ours.tasks), self.figure.what),
            self.limit.text(self.figure.unit),
            self.ours.text(self.figure.unit),
            format!("{:.2} x", self.ratio()),
            self.aim(),
        ]
    }
}

/// Prints all of them as text.
pub(crate) fn text(lines: &[Line]) -> String {
    let header = ["STORE", "", "TASKS", "LIMIT", "DELAYLINE", "RATIO", "AIM"];
    table(header, lines.iter().map(Line::cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(workload: Workload, ours: Vec<Measured>, limits: Vec<Measured>) -> Line {
        let each = |runs: Vec<Measured>| runs.into_iter().map(|run| vec![run]).collect::<Vec<_>>();
        let mut lines = lines(workload, "sqlite", &each(limits), &each(ours));
        assert_eq!(lines.len(), 1);
        lines.remove(0)
    }

    #[test]
    fn the_run_in_the_middle_counts_and_the_faults_of_all() {
        let took = |seconds| Measured {
            tasks: 100,
            seconds,
            ..Measured::default()
        };
        let mut spoilt = took(9.0);
        spoilt.faults.lost = 2;
        let ours = vec![took(1.0), spoilt, took(2.0)];
        let line = line(Workload::W2, ours, vec![took(1.0), took(4.0), took(0.5)]);
        let json = line.json();
        assert_eq!((&json["ratio"], &json["lost"]), (&json!(2.0), &json!(2)));
        assert_eq!(
            (&json["seconds"], &json["per_second"]),
            (&json!(2.0), &json!(50.0))
        );
        assert_eq!(
            (&json["limit"]["seconds"], &json["aim"]),
            (&json!(1.0), &json!("at most 1.5 x"))
        );
    }

    #[test]
    fn of_lateness_that_of_99_in_a_hundred_counts() {
        let late = |late: [f64; 3]| Measured {
            late: late.to_vec(),
            ..Measured::default()
        };
        let line = line(
            Workload::W3,
            vec![late([1.0, 3.0, 4.0])],
            vec![late([1.0, 1.0, 2.0])],
        );
        assert_eq!(line.json()["ratio"], json!(2.0));
        assert!(text(&[line]).contains("3.0 / 4.0 ms"));
    }
}
