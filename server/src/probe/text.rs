//! Prints what a probe found.

use std::fmt::Write as _;
use std::time::Duration;

use delayline::delay::Spelled;

use super::picture::Scale;
use super::report::{MasterReport, Report};

const YELLOW: &str = "\u{1b}[33m";
const CYAN: &str = "\u{1b}[36m";
const PLAIN: &str = "\u{1b}[m";

impl Report {
    /// Prints the same text with colours or without.
    pub(super) fn text(&self, coloured: bool) -> String {
        let colour = |colour: &str, text: &str| match coloured && !text.is_empty() {
            true => format!("{colour}{text}{PLAIN}"),
            false => text.to_owned(),
        };
        let mut text = String::new();
        for master in &self.masters {
            text += &of_master(master);
        }
        if !self.probes.is_empty() {
            let scale = Scale::of(&self.probed);
            let _ = writeln!(
                text,
                "probes   {} a second through each level, evenly\n\nlevel  delay    sent  arrived  p50 ms  p99 ms  max ms  {}",
                rounded(self.pace),
                scale.legend()
            );
            for (probe, probed) in self.probes.iter().zip(&self.probed) {
                let late = match &probe.late_ms {
                    Some(late) => [late.p50, late.p99, late.max].map(|late| late.to_string()),
                    None => [(); 3].map(|()| "-".to_owned()),
                };
                let line = format!(
                    "{:>5}  {:>5}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6}  {}",
                    probe.level,
                    probed.level.to_string(),
                    probe.sent,
                    probe.arrived,
                    late[0],
                    late[1],
                    late[2],
                    colour(CYAN, scale.draw(probed).trim_end()),
                );
                text += line.trim_end();
                text.push('\n');
            }
        }
        if !self.warnings.is_empty() {
            text.push('\n');
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "{}  {}", colour(YELLOW, "warning"), plain(warning));
        }
        text
    }
}

fn of_master(master: &MasterReport) -> String {
    let or_unknown = |text: Option<&str>| text.unwrap_or("unknown").to_owned();
    let spelled =
        |ms: u128| Spelled(Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))).to_string();
    let timers = match &master.timers {
        Some(timers) if timers.enabled => format!(
            "up to {}, in steps of {}",
            spelled(timers.longest_ms),
            spelled(timers.precision_ms)
        ),
        Some(_) => "off".to_owned(),
        None if master.levels.is_some() => "none".to_owned(),
        None => or_unknown(None),
    };
    let disk = master
        .disk_used
        .map(|used| format!("; {:.0} % of its disk is in use", used * 100.0));
    format!(
        "master   {} at {}\nversion  {}\nlevels   {}\ntimers   {timers}\nacl      {}\nkeeps    {}{}\n",
        plain(&master.name),
        plain(&master.address),
        or_unknown(master.version.as_deref()),
        or_unknown(master.levels.as_deref()),
        master.acl,
        master
            .retention_ms
            .map_or_else(|| or_unknown(None), |ms| format!("messages for {}", spelled(ms))),
        disk.unwrap_or_default(),
    )
}

/// Rounds as far as the number still says enough.
fn rounded(pace: f64) -> String {
    match pace < 10.0 {
        true => format!("{pace:.1}"),
        false => format!("{pace:.0}"),
    }
}

/// Removes control characters from text of a network.
fn plain(text: &str) -> String {
    let plain = |c: char| {
        if c.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    text.chars().map(plain).collect()
}
