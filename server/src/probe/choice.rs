//! Chooses which levels are probed.

use std::collections::BTreeSet;
use std::time::Duration;

use delayline::delay::{Level, LevelTable};

use crate::Failure;

/// The longest level that is probed without being named.
const SHORT: Duration = Duration::from_secs(10);

/// Returns the levels that are probed unless some are named.
pub(crate) fn short(table: &LevelTable, warnings: &mut Vec<String>) -> Vec<Level> {
    let levels = table
        .levels()
        .filter(|&level| is_taken(table, level) && level.delay <= SHORT);
    let levels: Vec<_> = levels.collect();
    if levels.is_empty() {
        warnings.push("no level is as short as 10s, so none is probed: name some".into());
    }
    levels
}

/// Returns the levels of these numbers, and warns of those that cannot be probed.
pub(crate) fn named(
    table: &LevelTable,
    numbers: &BTreeSet<usize>,
    warnings: &mut Vec<String>,
) -> Result<Vec<Level>, Failure> {
    let most = table.levels().len();
    if let Some(unknown) = numbers.iter().find(|&&number| number > most) {
        return Err(Failure::Argument(format!(
            "--levels has {unknown}: the brokers have the levels 1 to {most}"
        )));
    }
    let named = table.levels().filter(|level| numbers.contains(&level.number));
    let (taken, others): (Vec<_>, Vec<_>) = named.partition(|&level| is_taken(table, level));
    warnings.extend(others.iter().map(|level| {
        let number = level.number;
        format!("level {number} is not probed, as wake-ups take another of the same {level}")
    }));
    Ok(taken)
}

/// Returns the shortest level, unless that is a long one.
pub(crate) fn shortest(table: &LevelTable) -> Option<Level> {
    let levels = table.levels().filter(|level| level.delay <= SHORT);
    levels.min_by_key(|level| level.delay)
}

/// Says whether wake-ups take it: of several with one delay they take the first.
fn is_taken(table: &LevelTable, level: Level) -> bool {
    table.level_of(level.delay) == Some(level)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn table(text: &str) -> LevelTable {
        text.parse().unwrap()
    }

    fn numbers(levels: impl IntoIterator<Item = Level>) -> Vec<usize> {
        levels.into_iter().map(|level| level.number).collect()
    }

    #[test]
    fn the_levels_of_at_most_10_s_are_probed() {
        let mut warnings = Vec::new();
        let table = table("30s 10s 11s 1s 1s");
        assert_eq!(numbers(short(&table, &mut warnings)), [2, 4]);
        assert_eq!(shortest(&table).unwrap().number, 4);
        assert_eq!(warnings, [""; 0]);
    }

    #[test]
    fn a_table_of_long_levels_is_not_probed_by_itself() {
        let mut warnings = Vec::new();
        let table = table("1m");
        assert!(short(&table, &mut warnings).is_empty() && shortest(&table).is_none());
        assert_eq!(warnings.len(), 1);
        assert_eq!(
            numbers(named(&table, &[1].into(), &mut warnings).ok().unwrap()),
            [1]
        );
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn of_twins_only_the_one_that_wake_ups_take_is_probed() {
        let mut warnings = Vec::new();
        let named = named(&table("1s 1s 5s"), &[3, 2].into(), &mut warnings);
        assert_eq!(numbers(named.ok().unwrap()), [3]);
        assert_eq!(
            warnings,
            ["level 2 is not probed, as wake-ups take another of the same 1s"]
        );
    }

    #[test]
    fn a_number_that_no_broker_has_is_refused() {
        let refused = named(&table("1s 5s"), &[1, 19].into(), &mut Vec::new());
        assert_eq!(
            refused.err().unwrap().to_string(),
            "--levels has 19: the brokers have the levels 1 to 2"
        );
    }
}
