//! How late the delay levels of brokers are, as a heat map.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::words::lasted;
use crate::serve::recent::LevelFigures;

/// Up to how late a level is as it should be, somewhat late, and late. The first is what a plan allows for by default.
const DEGREES: [(Duration, &str); 3] = [
    (Duration::from_millis(200), "mild"),
    (Duration::from_secs(1), "warm"),
    (Duration::from_secs(10), "hot"),
];
const BEYOND: &str = "burning";

/// A row for each delay, and a column for each master.
#[derive(Debug)]
pub(super) struct Levels {
    pub(super) masters: Vec<String>,
    pub(super) rows: Vec<Row>,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) delay: String,
    /// One for each master; none, where nothing is known.
    pub(super) cells: Vec<Option<Cell>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cell {
    /// How hot it is, as a class.
    pub(super) heat: &'static str,
    pub(super) text: String,
}

impl Levels {
    pub(super) fn of(levels: Vec<LevelFigures>) -> Self {
        let masters: BTreeSet<String> = levels.iter().map(|level| level.master.clone()).collect();
        let mut by_delay: BTreeMap<(Duration, String), BTreeMap<String, Cell>> = BTreeMap::new();
        for level in levels {
            let cell = Cell::of(&level);
            let length = humantime::parse_duration(&level.delay).unwrap_or(Duration::MAX);
            let of_delay = by_delay.entry((length, level.delay)).or_default();
            of_delay.insert(level.master, cell);
        }
        let row = |((_, delay), mut cells): (_, BTreeMap<String, Cell>)| Row {
            delay,
            cells: masters.iter().map(|master| cells.remove(master)).collect(),
        };
        Self {
            rows: by_delay.into_iter().map(row).collect(),
            masters: masters.into_iter().collect(),
        }
    }
}

impl Cell {
    fn of(level: &LevelFigures) -> Self {
        if level.is_stuck {
            let text = "stuck".to_owned();
            return Self { heat: BEYOND, text };
        }
        let (p50, p99) = (level.late.within(0.5), level.late.within(0.99));
        let degree = DEGREES.iter().find(|(most, _)| p99 <= *most);
        Self {
            heat: degree.map_or(BEYOND, |(_, heat)| heat),
            text: format!("{} / {}", lasted(p50), lasted(p99)),
        }
    }
}

#[cfg(test)]
mod tests {
    use askama::Template;

    use super::*;
    use crate::serve::recent::Spread;

    fn level(master: &str, delay: &str, late: &[u64], is_stuck: bool) -> LevelFigures {
        LevelFigures {
            master: master.to_owned(),
            delay: delay.to_owned(),
            late: Spread::of(late.iter().copied().map(Duration::from_millis)),
            is_stuck,
        }
    }

    #[derive(Template)]
    #[template(
        source = r#"{% import "parts.html" as parts %}{% call parts::levels(levels) %}{% endcall %}"#,
        ext = "html"
    )]
    struct Map {
        levels: Levels,
    }

    fn map(levels: Vec<LevelFigures>) -> String {
        let levels = Levels::of(levels);
        Map { levels }.render().unwrap()
    }

    #[test]
    fn each_level_of_each_master_has_a_cell_by_delay_and_by_name() {
        let text = map(vec![
            level("b", "10m", &[20], false),
            level("b", "1m", &[10, 10, 2_000], false),
            level("<a>", "10m", &[20_000], false),
            level("<a>", "30s", &[1], true),
        ]);
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("<tr><th")).collect();
        let row = |delay: &str, a: &str, b: &str| format!(r#"<tr><th scope="row">{delay}</th>{a}{b}</tr>"#);
        let unknown = r#"<td class="dim">no sample</td>"#;
        assert_eq!(
            lines,
            [
                row("30s", r#"<td class="burning">stuck</td>"#, unknown),
                row("1m", unknown, r#"<td class="hot">10 ms / 2 s</td>"#),
                row(
                    "10m",
                    r#"<td class="burning">20 s / 20 s</td>"#,
                    r#"<td class="mild">20 ms / 20 ms</td>"#
                ),
            ]
        );
        assert!(
            text.contains(r##"<th scope="col">&#60;a&#62;</th><th scope="col">b</th>"##),
            "{text}"
        );
        assert!(text.contains("<caption>"));
    }

    #[test]
    fn where_there_are_no_levels_there_is_no_map() {
        assert_eq!(map(Vec::new()).trim(), "");
    }

    #[test]
    fn a_level_is_as_hot_as_one_in_a_hundred_of_its_wake_ups_is_late() {
        for (late, heat) in [
            (190, "mild"),
            (230, "warm"),
            (900, "warm"),
            (9_000, "hot"),
            (11_000, "burning"),
        ] {
            assert_eq!(
                Cell::of(&level("a", "1m", &[1, late], false)).heat,
                heat,
                "{late}"
            );
        }
    }
}
