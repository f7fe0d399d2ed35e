//! Which levels are probed.

use std::collections::BTreeSet;
use std::time::Duration;

use delayline::LevelTable;
use delayline::delay::Level;
use delayline::rocketmq::Survey;

use crate::Failure;

/// The longest level that is probed without being named.
const SHORT: Duration = Duration::from_secs(10);

/// The level tables of the masters.
pub(crate) struct Tables {
    /// The first that is told, by which the others are judged; RocketMQ's own if none is.
    first: LevelTable,
    others: Vec<LevelTable>,
}

impl Tables {
    pub(crate) fn of(survey: &Survey) -> Self {
        let mut told = survey.masters.iter().filter_map(|master| master.levels.clone());
        Self {
            first: told.next().unwrap_or_default(),
            others: told.collect(),
        }
    }

    /// A table in which the levels that can be probed are the same as on every master.
    pub(crate) fn table(&self) -> &LevelTable {
        &self.first
    }

    /// The levels that are the same on all masters.
    pub(crate) fn common(&self) -> impl Iterator<Item = Level> + '_ {
        let has = |table: &LevelTable, level: Level| table.levels().nth(level.number - 1) == Some(level);
        let common = move |level: &Level| self.others.iter().all(|table| has(table, *level));
        self.first.levels().filter(common)
    }

    /// The shortest level, unless that is a long one.
    pub(crate) fn shortest(&self) -> Option<Level> {
        let levels = self
            .common()
            .filter(|&level| self.is_taken(level) && level.delay <= SHORT);
        levels.min_by_key(|level| level.delay)
    }

    /// The levels that are probed unless some are named.
    pub(crate) fn short(&self, warnings: &mut Vec<String>) -> Vec<Level> {
        let levels = self
            .common()
            .filter(|&level| self.is_taken(level) && level.delay <= SHORT);
        let levels: Vec<_> = levels.collect();
        if levels.is_empty() {
            warnings.push(
                "no level that all masters have is as short as 10s, so none is probed: name some".into(),
            );
        }
        levels
    }

    /// The levels of these numbers, and warnings of those that cannot be probed.
    pub(crate) fn named(
        &self,
        numbers: &BTreeSet<usize>,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Level>, Failure> {
        let most = self.all().map(|table| table.levels().len()).max().unwrap_or(0);
        if let Some(unknown) = numbers.iter().find(|&&number| number > most) {
            return Err(Failure::Argument(format!(
                "--levels has {unknown}: the brokers have the levels 1 to {most}"
            )));
        }
        let mut levels = Vec::new();
        for &number in numbers {
            match self.common().find(|level| level.number == number) {
                None => warnings.push(format!(
                    "level {number} is not probed, as it is not the same on all masters"
                )),
                Some(level) if !self.is_taken(level) => warnings.push(format!(
                    "level {number} is not probed, as wake-ups take another of the same {level}"
                )),
                Some(level) => levels.push(level),
            }
        }
        Ok(levels)
    }

    /// Whether wake-ups take this level on every master: of several with one delay they take the first.
    fn is_taken(&self, level: Level) -> bool {
        self.all().all(|table| table.level_of(level.delay) == Some(level))
    }

    fn all(&self) -> impl Iterator<Item = &LevelTable> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn tables(first: &str, others: &[&str]) -> Tables {
        Tables {
            first: first.parse().unwrap(),
            others: others.iter().map(|table| table.parse().unwrap()).collect(),
        }
    }

    fn numbers(levels: impl IntoIterator<Item = Level>) -> Vec<usize> {
        levels.into_iter().map(|level| level.number).collect()
    }

    #[test]
    fn the_levels_of_at_most_10_s_are_probed() {
        let mut warnings = Vec::new();
        let tables = tables("30s 10s 11s 1s", &[]);
        assert_eq!(numbers(tables.short(&mut warnings)), [2, 4]);
        assert_eq!(tables.shortest().unwrap().number, 4);
        assert_eq!(warnings, [""; 0]);
    }

    #[test]
    fn a_table_of_long_levels_is_not_probed_by_itself() {
        let mut warnings = Vec::new();
        let tables = tables("1m", &[]);
        assert!(tables.short(&mut warnings).is_empty() && tables.shortest().is_none());
        assert_eq!(warnings.len(), 1);
        assert_eq!(
            numbers(tables.named(&[1].into(), &mut warnings).ok().unwrap()),
            [1]
        );
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn only_what_is_the_same_on_every_master_is_probed() {
        let mut warnings = Vec::new();
        let tables = tables("1s 2s 5s", &["1s 3s 5s 9s"]);
        assert_eq!(numbers(tables.common()), [1, 3]);
        assert_eq!(numbers(tables.short(&mut warnings)), [1, 3]);
        assert_eq!(warnings, [""; 0]);
        let named = tables.named(&[2, 3, 4].into(), &mut warnings).ok().unwrap();
        assert_eq!(numbers(named), [3]);
        assert_eq!(
            warnings,
            [2, 4]
                .map(|number| format!("level {number} is not probed, as it is not the same on all masters"))
        );
    }

    #[test]
    fn of_twins_only_the_one_that_wake_ups_take_is_probed() {
        let mut warnings = Vec::new();
        // Through the second master's first level, 1s would be 2s long.
        let unlike = tables("1s 5s 1s", &["2s 5s 1s"]);
        assert_eq!(numbers(unlike.short(&mut warnings)), [2]);
        let alike = tables("1s 1s", &[]);
        assert_eq!(numbers(alike.short(&mut warnings)), [1]);
        assert_eq!(warnings, [""; 0]);
        assert!(alike.named(&[2].into(), &mut warnings).ok().unwrap().is_empty());
        assert_eq!(
            warnings,
            ["level 2 is not probed, as wake-ups take another of the same 1s"]
        );
    }

    #[test]
    fn a_number_that_no_broker_has_is_refused() {
        let refused = tables("1s 5s", &[]).named(&[1, 19].into(), &mut Vec::new());
        assert_eq!(
            refused.err().unwrap().to_string(),
            "--levels has 19: the brokers have the levels 1 to 2"
        );
    }
}
