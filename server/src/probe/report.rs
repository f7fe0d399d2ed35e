//! Reports what a probe found: as JSON for scripts, and as text in the file beside this one.

use std::collections::BTreeSet;

use delayline::rocketmq::{Access, Master, Survey};
use serde::Serialize;

use super::lateness::Probed;
use crate::Failure;

/// What a probe found.
#[derive(Serialize)]
pub(crate) struct Report {
    /// That of all masters; if they differ, each once.
    pub(super) version: Option<String>,
    pub(super) masters: Vec<MasterReport>,
    /// If masters differ, each delay once.
    pub(super) levels: Vec<LevelReport>,
    pub(super) probes: Vec<ProbeReport>,
    pub(super) warnings: Vec<String>,
    /// How many probes were sent in a second through each level.
    #[serde(skip)]
    pub(super) pace: f64,
    #[serde(skip)]
    pub(super) probed: Vec<Probed>,
    #[serde(skip)]
    failed: bool,
}

#[derive(Serialize)]
pub(crate) struct MasterReport {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) version: Option<String>,
    /// In the broker's form.
    pub(super) levels: Option<String>,
    /// None if it has no timers, or does not report them.
    pub(super) timers: Option<TimersReport>,
    /// `off`, what it asks for, or `unknown`.
    pub(super) acl: &'static str,
    pub(super) retention_ms: Option<u128>,
    /// From 0 to 1.
    pub(super) disk_used: Option<f64>,
}

#[derive(Serialize)]
pub(crate) struct TimersReport {
    pub(super) enabled: bool,
    pub(super) longest_ms: u128,
    pub(super) precision_ms: u128,
}

#[derive(Serialize)]
pub(crate) struct LevelReport {
    pub(super) level: usize,
    pub(super) delay_ms: u128,
}

#[derive(Serialize)]
pub(crate) struct ProbeReport {
    pub(super) level: usize,
    pub(super) delay_ms: u128,
    pub(super) sent: usize,
    pub(super) arrived: usize,
    /// None if none arrived.
    pub(super) late_ms: Option<LateReport>,
}

#[derive(Serialize)]
pub(crate) struct LateReport {
    pub(super) p50: i64,
    pub(super) p99: i64,
    pub(super) max: i64,
}

impl Report {
    pub(super) fn new(survey: &Survey, pace: f64, probed: Vec<Probed>, warnings: Vec<String>) -> Self {
        let versions: BTreeSet<_> = survey
            .masters
            .iter()
            .filter_map(|master| master.version)
            .collect();
        let versions: Vec<_> = versions.iter().map(ToString::to_string).collect();
        let table = survey.levels();
        let levels = table.levels().map(|level| LevelReport {
            level: level.number,
            delay_ms: level.delay.as_millis(),
        });
        Self {
            version: (!versions.is_empty()).then(|| versions.join(", ")),
            masters: survey.masters.iter().map(master).collect(),
            levels: levels.collect(),
            probes: probed.iter().map(probe).collect(),
            warnings,
            pace,
            probed,
            failed: false,
        }
    }

    /// Makes a report of probes that could not even begin.
    pub(super) fn failed(self) -> Self {
        Self { failed: true, ..self }
    }

    pub(super) fn json(&self) -> Result<String, Failure> {
        let mut json = serde_json::to_string(self).map_err(|error| Failure::Output(error.into()))?;
        json.push('\n');
        Ok(json)
    }

    /// Fails if probes did not arrive.
    pub(super) fn verdict(&self) -> Result<(), Failure> {
        let total = |count: fn(&Probed) -> usize| self.probed.iter().map(count).sum::<usize>();
        let (unsent, lost) = (total(|level| level.unsent), total(Probed::lost));
        let all = unsent + total(|level| level.sent);
        match (unsent, lost) {
            _ if self.failed => Err(Failure::Found("the brokers could not be probed".to_owned())),
            (0, 0) => Ok(()),
            (unsent, lost) => Err(Failure::Found(format!(
                "of {all} probes {unsent} could not be sent and {lost} did not arrive"
            ))),
        }
    }
}

fn master(master: &Master) -> MasterReport {
    MasterReport {
        name: master.name.clone(),
        address: master.address.clone(),
        version: master.version.map(|version| version.to_string()),
        levels: master.levels.as_ref().map(ToString::to_string),
        timers: master.timers.map(|timers| TimersReport {
            enabled: timers.enabled,
            longest_ms: timers.longest.as_millis(),
            precision_ms: timers.precision.as_millis(),
        }),
        acl: acl(master.access),
        retention_ms: master.retention.map(|retention| retention.as_millis()),
        disk_used: master.disk_used,
    }
}

fn acl(access: Option<Access>) -> &'static str {
    match access.map(|access| (access.authentication, access.authorization)) {
        None => "unknown",
        Some((false, false)) => "off",
        Some((true, false)) => "authentication",
        Some((false, true)) => "authorization",
        Some((true, true)) => "authentication and authorization",
    }
}

fn probe(probed: &Probed) -> ProbeReport {
    let late = [50, 99, 100].map(|percent| probed.percentile(percent));
    let late_ms = match late {
        [Some(p50), Some(p99), Some(max)] => Some(LateReport { p50, p99, max }),
        _ => None,
    };
    ProbeReport {
        level: probed.level.number,
        delay_ms: probed.level.delay.as_millis(),
        sent: probed.sent,
        arrived: probed.late.len(),
        late_ms,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::lateness::probed;
    use super::*;

    fn survey(masters: impl IntoIterator<Item = Master>) -> Survey {
        let mut survey = Survey::default();
        survey.masters = masters.into_iter().collect();
        survey
    }

    fn report(survey: &Survey, probed: Vec<Probed>) -> Report {
        Report::new(survey, 100.0, probed, vec!["beware".to_owned()])
    }

    fn master(name: &str, levels: &str, version: &str) -> Master {
        let mut master = Master::default();
        master.name = name.to_owned();
        master.address = "h:1".to_owned();
        master.levels = levels.parse().ok();
        master.version = version.parse().ok();
        master
    }

    #[test]
    fn json_is_one_line_with_its_members_in_order() {
        let mut none = probed([]);
        none.sent = 1;
        let survey = survey([master("a", "1s 5s", "V5_3_3")]);
        assert_eq!(
            report(&survey, vec![probed([1, 2, 3]), none])
                .json()
                .ok()
                .unwrap(),
            "{\"version\":\"5.3.3\",\"masters\":[{\"name\":\"a\",\"address\":\"h:1\",\"version\":\"5.3.3\",\
             \"levels\":\"1s 5s\",\"timers\":null,\"acl\":\"unknown\",\"retention_ms\":null,\"disk_used\":null}],\
             \"levels\":[{\"level\":1,\"delay_ms\":1000},{\"level\":2,\"delay_ms\":5000}],\
             \"probes\":[{\"level\":1,\"delay_ms\":1000,\"sent\":3,\"arrived\":3,\
             \"late_ms\":{\"p50\":2,\"p99\":3,\"max\":3}},\
             {\"level\":1,\"delay_ms\":1000,\"sent\":1,\"arrived\":0,\"late_ms\":null}],\
             \"warnings\":[\"beware\"]}\n"
        );
    }

    #[test]
    fn of_unlike_masters_every_version_and_every_level_is_told() {
        let survey = survey([
            master("a", "1s 5s", "V5_3_3"),
            master("b", "1s 6s", "V4_9_7"),
            master("c", "", "V5_3_3"),
            master("d", "", "?"),
        ]);
        let report = report(&survey, Vec::new());
        assert_eq!(report.version.as_deref(), Some("4.9.7, 5.3.3"));
        let levels: Vec<_> = report.levels.iter().map(|level| level.delay_ms).collect();
        assert_eq!(levels, [1_000, 5_000, 6_000]);
        assert_eq!(report.masters[3].version, None);
    }

    #[test]
    fn what_a_broker_asks_for_is_told() {
        let mut access = Access::default();
        assert_eq!(acl(Some(access)), "off");
        access.authentication = true;
        assert_eq!(acl(Some(access)), "authentication");
        access.authorization = true;
        assert_eq!(acl(Some(access)), "authentication and authorization");
        access.authentication = false;
        assert_eq!(acl(Some(access)), "authorization");
        assert_eq!(acl(None), "unknown");
    }

    #[test]
    fn only_lost_and_unsent_probes_are_a_failure() {
        let survey = survey([master("a", "1s", "V5_3_3")]);
        assert!(report(&survey, vec![probed([-1, 9_999])]).verdict().is_ok());
        assert!(report(&survey, Vec::new()).verdict().is_ok());
        assert!(report(&survey, Vec::new()).failed().verdict().is_err());
        let (mut lost, mut unsent) = (probed([1]), probed([1]));
        lost.sent = 3;
        unsent.unsent = 1;
        let mut only_lost = probed([1]);
        only_lost.sent = 2;
        assert!(report(&survey, vec![only_lost]).verdict().is_err());
        assert_eq!(
            report(&survey, vec![lost, unsent])
                .verdict()
                .err()
                .unwrap()
                .to_string(),
            "of 5 probes 1 could not be sent and 2 did not arrive"
        );
    }

    #[test]
    fn text_has_the_same_words_with_colours_and_without() {
        let mut bad = master("a\u{1b}[31m", "1s", "V5_3_3");
        bad.address = "h:1\n".to_owned();
        let report = report(&survey([bad]), vec![probed([0, 0, 1]), probed([])]);
        let text = report.text(false);
        assert_eq!(
            text,
            format!(
                "master   a\u{fffd}[31m at h:1\u{fffd}\nversion  5.3.3\nlevels   1s\ntimers   none\nacl      unknown\n\
                 keeps    unknown\nprobes   100 a second through each level, evenly\n\n\
                 level  delay    sent  arrived  p50 ms  p99 ms  max ms  0{:>29}\n    1     1s       3        3       0\
                 \u{20}      1       1  █▄\n    1     1s       0        0       -       -       -\n\nwarning  beware\n",
                "30 ms"
            )
        );
        let coloured = report.text(true);
        assert!(coloured.contains("\u{1b}[36m█▄\u{1b}[m"), "{coloured:?}");
        let stripped = ["\u{1b}[36m", "\u{1b}[33m", "\u{1b}[m"]
            .iter()
            .fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(stripped, text);
    }
}
