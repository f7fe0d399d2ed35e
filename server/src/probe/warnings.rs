//! Warns operators of brokers.

use std::time::Duration;

use delayline::delay::{self, Routing, Spelled};
use delayline::rocketmq::{Master, Survey, Version};

use super::lateness::Probed;

/// The versions that lose a delayed message when its delivery fails once: Apache issue #9249.
const LOSING: std::ops::RangeInclusive<Version> = version(5, 0, 0)..=version(5, 3, 2);

/// From here on a disk counts as nearly full: a broker's own limits begin a little higher by default.
const NEARLY_FULL: f64 = 0.8;

const fn version(major: u16, minor: u16, patch: u16) -> Version {
    Version { major, minor, patch }
}

/// Warns of what the brokers report.
pub(crate) fn of_survey(survey: &Survey) -> Vec<String> {
    let mut warnings: Vec<_> = survey.headless.iter().map(|name| headless(name)).collect();
    warnings.extend(survey.masters.iter().flat_map(of_master));
    let told = survey
        .masters
        .iter()
        .filter_map(|master| Some((&master.name, master.levels.as_ref()?)));
    let tables: Vec<_> = told.collect();
    match tables.as_slice() {
        [] => warnings.push(
            "no master tells its levels, so RocketMQ's own are assumed: if that is wrong, so are the figures here, and \
             wake-ups will be early or late unless delayline is told the levels"
                .into(),
        ),
        [(_, first), others @ ..] if others.iter().any(|(_, table)| table != first) => {
            let each = tables.iter().map(|(name, table)| format!("{name}: {table}"));
            let each: Vec<_> = each.collect();
            warnings.push(format!(
                "the masters have unlike levels, so each wake-up goes to one that has its level, and levels are numbered \
                 here by length: {}",
                each.join("; ")
            ));
        }
        _ => {}
    }
    warnings
}

fn headless(name: &str) -> String {
    format!("{name} has no master: what it holds is not delivered until it has one")
}

fn of_master(master: &Master) -> Vec<String> {
    let name = &master.name;
    let mut warnings: Vec<_> = master
        .unanswered
        .iter()
        .map(|error| format!("{name}: {error}"))
        .collect();
    if let Some(version) = master.version.filter(|version| LOSING.contains(version)) {
        warnings.push(format!(
            "{name} is {version}: versions 5.0.0 to 5.3.2 lose a delayed message when its delivery fails (Apache issue \
             #9249, fixed in 5.3.3); tasks are found by the sweep all the same"
        ));
    }
    if let Some(retention) = master.retention {
        let kept = Spelled(retention);
        let longest = master.levels.as_ref().and_then(longest);
        if let Some(longest) = longest.filter(|longest| longest.delay >= retention) {
            warnings.push(format!(
                "{name} keeps messages for {kept} (fileReservedTime), and its longest level is {longest}: it may delete \
                 what it has not delivered"
            ));
        }
        let horizon = Routing::default().horizon;
        if retention < horizon {
            warnings.push(format!(
                "{name} keeps messages for {kept} (fileReservedTime), less than the horizon of {}: if the workers are \
                 away for longer, their wake-ups are gone, and the sweep finds their tasks",
                Spelled(horizon)
            ));
        }
    }
    if let Some(used) = master.disk_used.filter(|&used| used >= NEARLY_FULL) {
        warnings.push(format!(
            "the disk of {name} is {:.0} % full: unless its limits were changed, it deletes messages before their time \
             from 85 % on, and takes none from 90 % on",
            used * 100.0
        ));
    }
    if master.makes_groups == Some(false) {
        warnings.push(format!(
            "{name} makes no consumer groups by itself (autoCreateSubscriptionGroup): make that of the workers, or they \
             receive nothing"
        ));
    }
    warnings
}

fn longest(table: &delayline::delay::LevelTable) -> Option<delay::Level> {
    table.largest_within(Duration::MAX)
}

/// Warns of what the probes show.
pub(crate) fn of_probes(levels: &[Probed]) -> Vec<String> {
    levels.iter().flat_map(of_level).collect()
}

fn of_level(probed: &Probed) -> Vec<String> {
    let level = format!("level {} ({})", probed.level.number, probed.level);
    let all = probed.sent + probed.unsent;
    let mut warnings = Vec::new();
    let cause = match &probed.cause {
        Some(cause) => format!(": {cause}"),
        None => String::new(),
    };
    if probed.again > 0 {
        warnings.push(format!(
            "{} of {all} probes through {level} had to be sent more than once{cause}",
            probed.again
        ));
    }
    if probed.unsent > 0 {
        warnings.push(format!(
            "{} of {all} probes through {level} could not be sent{cause}",
            probed.unsent
        ));
    }
    if probed.lost() > 0 {
        warnings.push(format!(
            "{} of {} probes through {level} did not arrive",
            probed.lost(),
            probed.sent
        ));
    }
    if let Some(early) = probed.late.first().filter(|&&late| late < 0) {
        warnings.push(format!(
            "probes through {level} came up to {} ms early: the clock of a broker was moved, or its levels are others",
            early.unsigned_abs()
        ));
    }
    if probed.doubled > 0 {
        warnings.push(format!(
            "{} probes through {level} came more than once",
            probed.doubled
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::lateness::probed;
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// Makes a master with nothing to warn of.
    fn sound(name: &str) -> Master {
        let mut master = Master::default();
        master.name = name.to_owned();
        master.version = Some(version(5, 3, 3));
        master.levels = Some("1s 2h".parse().unwrap());
        master.retention = Some(72 * HOUR);
        master.makes_groups = Some(true);
        master.disk_used = Some(0.79);
        master
    }

    fn survey(masters: impl IntoIterator<Item = Master>) -> Survey {
        let mut survey = Survey::default();
        survey.masters = masters.into_iter().collect();
        survey
    }

    /// Returns the one warning of a changed master.
    #[track_caller]
    fn warning(change: impl FnOnce(&mut Master)) -> String {
        let mut master = sound("broker-a");
        change(&mut master);
        let warnings = of_survey(&survey([master]));
        let [warning] = &warnings[..] else {
            panic!("{warnings:?}")
        };
        assert!(warning.contains("broker-a"), "{warning}");
        warning.clone()
    }

    #[test]
    fn of_sound_brokers_and_probes_nothing_is_said() {
        let masters = ["broker-a", "broker-b"].map(sound);
        assert_eq!(of_survey(&survey(masters)), [""; 0]);
        assert_eq!(of_probes(&[probed(0..200)]), [""; 0]);
        // So is one that does not report everything.
        let mut quiet = Master::default();
        quiet.levels = sound("").levels;
        assert_eq!(of_survey(&survey([quiet])), [""; 0]);
    }

    #[test]
    fn only_versions_that_lose_messages_are_warned_of() {
        for (major, minor, patch) in [(5, 0, 0), (5, 1, 4), (5, 3, 2)] {
            let warning = warning(|master| master.version = Some(version(major, minor, patch)));
            assert!(
                warning.contains("#9249") && warning.contains(&format!("is {major}.{minor}.{patch}: ")),
                "{warning}"
            );
        }
        for (major, minor, patch) in [(4, 9, 7), (4, 99, 99), (5, 3, 3), (5, 4, 0), (6, 0, 0)] {
            let mut master = sound("broker-a");
            master.version = Some(version(major, minor, patch));
            assert_eq!(of_survey(&survey([master])), [""; 0]);
        }
    }

    #[test]
    fn messages_that_are_kept_for_too_short_a_time_are_warned_of() {
        let text = warning(|master| master.retention = Some(12 * HOUR));
        assert!(
            text.contains("for 12h") && text.contains("horizon of 1d"),
            "{text}"
        );
        let text = warning(|master| master.levels = Some("1s 3d".parse().unwrap()));
        assert!(text.contains("for 3d") && text.contains("level is 3d"), "{text}");
        let mut both = sound("broker-a");
        both.retention = Some(HOUR);
        assert_eq!(of_survey(&survey([both])).len(), 2);
        let mut just = sound("broker-a");
        just.retention = Some(24 * HOUR);
        assert_eq!(of_survey(&survey([just])), [""; 0]);
    }

    #[test]
    fn a_full_disk_a_missing_group_and_a_refusal_are_warned_of() {
        let text = warning(|master| master.disk_used = Some(0.8));
        assert!(text.contains("80 % full"), "{text}");
        let text = warning(|master| master.makes_groups = Some(false));
        assert!(text.contains("autoCreateSubscriptionGroup"), "{text}");
        let refusal = || delayline::Error::Backend {
            backend: "rocketmq",
            transient: false,
            source: "no permission".into(),
        };
        let text = warning(|master| master.unanswered.push(refusal()));
        assert_eq!(text, "broker-a: backend rocketmq: no permission");
    }

    #[test]
    fn unlike_missing_and_unknown_tables_and_masters_are_warned_of() {
        let mut other = sound("broker-b");
        other.levels = Some("1s 3h".parse().unwrap());
        let warnings = of_survey(&survey([sound("broker-a"), other]));
        assert!(
            warnings[0].contains("broker-a: 1s 2h; broker-b: 1s 3h"),
            "{warnings:?}"
        );
        assert_eq!(warnings.len(), 1);

        let mut silent = sound("broker-b");
        silent.levels = None;
        assert_eq!(of_survey(&survey([sound("broker-a"), silent])), [""; 0]);
        let mut silent = sound("broker-b");
        silent.levels = None;
        let warnings = of_survey(&survey([silent]));
        assert!(
            warnings.len() == 1 && warnings[0].contains("assumed"),
            "{warnings:?}"
        );

        let mut survey = survey([sound("broker-a")]);
        survey.headless.push("broker-c".to_owned());
        assert_eq!(
            of_survey(&survey),
            ["broker-c has no master: what it holds is not delivered until it has one"]
        );
    }

    #[test]
    fn what_became_of_bad_probes_is_told() {
        let mut level = probed([-7, 3]);
        level.sent = 4;
        level.unsent = 1;
        level.again = 2;
        level.doubled = 1;
        level.cause = "".parse::<delayline::delay::LevelTable>().err();
        let warnings = of_probes(&[probed([1]), level]);
        let beginnings = [
            "2 of 5 probes through level 1 (1s) had to be sent more than once: level table is",
            "1 of 5 probes through level 1 (1s) could not be sent: level table is",
            "2 of 4 probes through level 1 (1s) did not arrive",
            "probes through level 1 (1s) came up to 7 ms early",
            "1 probes through level 1 (1s) came more than once",
        ];
        assert_eq!(warnings.len(), beginnings.len());
        for (warning, beginning) in warnings.iter().zip(beginnings) {
            assert!(warning.starts_with(beginning), "{warning}");
        }
    }
}
