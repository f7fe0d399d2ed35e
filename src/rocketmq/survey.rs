//! Reports what brokers say about themselves: for operators.

use std::time::Duration;

use cheetah_string::CheetahString;
use tokio::time::{sleep, timeout};

use super::Hidden;
use super::admin::{Admin, AskError};
use super::broker_info::BrokerInfo;
use super::client::Client;
use super::failure::{transient, unreached};
use super::options::RocketMqOptions;
use super::version::Version;
use crate::Error;
use crate::delay::LevelTable;

/// How long the nameservers, and then each master, may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// For how many seconds after its start a broker may have no stats (an error in its `prepareRuntimeInfo`, seen with
/// 4.8.0 to 5.3.3).
const FIGURES_WITHIN: u32 = 5;

/// What the brokers behind a set of nameservers report.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Survey {
    /// The masters, by name.
    pub masters: Vec<Master>,
    /// The brokers without a master that the nameservers know: their messages are not delivered for now.
    pub headless: Vec<String>,
}

/// What one master reports; none, where it does not answer.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Master {
    /// The broker's name.
    pub name: String,
    /// Its address, as the nameservers give it to clients.
    pub address: String,
    /// Its version (figure `brokerVersionDesc`).
    pub version: Option<Version>,
    /// Its levels (setting `messageDelayLevel`).
    pub levels: Option<LevelTable>,
    /// How it holds messages with a delay that is no level; brokers before 5.0 have no timers.
    pub timers: Option<Timers>,
    /// Which clients it serves.
    pub access: Option<Access>,
    /// For how long it keeps messages, delivered or not (setting `fileReservedTime`).
    pub retention: Option<Duration>,
    /// Whether it makes a consumer group when one first asks (setting `autoCreateSubscriptionGroup`).
    pub makes_groups: Option<bool>,
    /// How much of the disk with its messages is in use, from 0 to 1 (figure `commitLogDiskRatio`).
    pub disk_used: Option<f64>,
    /// The errors of requests that it did not answer.
    pub unanswered: Vec<Error>,
}

/// How a broker of 5.0 or later holds messages with a delay that is no level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timers {
    /// Whether it takes any (setting `timerWheelEnable`).
    pub enabled: bool,
    /// The longest delay (setting `timerMaxDelaySec`).
    pub longest: Duration,
    /// How precise its times are (setting `timerPrecisionMs`).
    pub precision: Duration,
}

/// Which clients a broker serves: by default, all. Before 5.0, one setting was for both (`aclEnable`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Access {
    /// Whether callers must authenticate (setting `authenticationEnabled`).
    pub authentication: bool,
    /// Whether each caller may only do what it is allowed to (setting `authorizationEnabled`).
    pub authorization: bool,
}

impl Survey {
    /// Asks the nameservers for their brokers, and each master for its settings and statistics.
    ///
    /// A master that does not answer is in the survey too, with the error. Nothing is created or changed.
    pub async fn take(options: impl Into<RocketMqOptions>) -> Result<Self, Error> {
        take(options.into()).await
    }

    /// Returns the levels that wake-ups can take: the masters' own table if all have the same; otherwise each delay
    /// once, by length; RocketMQ's own if no master reports it.
    pub fn levels(&self) -> LevelTable {
        let tables = self.masters.iter().filter_map(|master| master.levels.as_ref());
        LevelTable::of_all(tables).unwrap_or_default()
    }
}

/// Separate from `Survey::take`, which is compiled where it is called.
fn take(options: RocketMqOptions) -> Hidden<'static, Result<Survey, Error>> {
    Box::pin(async move {
        let client = Client::start(&options).await?;
        let factory = client.factory();
        let asking = client.run(async move {
            let admin = Admin::open(&factory).await?;
            let survey = ask(&admin).await;
            admin.close().await;
            survey
        });
        let survey = asking.await.flatten();
        client.close().await;
        survey
    })
}

async fn ask(admin: &Admin) -> Result<Survey, Error> {
    let brokers = match timeout(ANSWER_WITHIN, admin.brokers()).await {
        Ok(brokers) => brokers?,
        Err(_) => {
            return Err(transient(format!(
                "no nameserver answered within {ANSWER_WITHIN:?}"
            )));
        }
    };
    let mut survey = Survey::default();
    for (name, master) in brokers {
        match master {
            Some(address) => survey.masters.push(ask_master(admin, name, address).await),
            None => survey.headless.push(name.to_string()),
        }
    }
    if survey.masters.is_empty() {
        let text = match survey.headless.as_slice() {
            [] => "the nameservers know of no broker".to_owned(),
            names => format!("the nameservers know of no master, only of slaves of {names:?}"),
        };
        return Err(transient(text));
    }
    Ok(survey)
}

async fn ask_master(admin: &Admin, name: CheetahString, address: CheetahString) -> Master {
    let mut master = Master {
        name: name.to_string(),
        address: address.to_string(),
        ..Master::default()
    };
    let answered = timeout(ANSWER_WITHIN, async {
        match admin.broker_config(&address).await {
            Ok(settings) => master.note_settings(&settings),
            Err(AskError::Refused(error)) => master.unanswered.push(error),
            // The second request would only take as long.
            Err(AskError::Unreachable(error)) => return master.unanswered.push(error),
        }
        let mut stats = admin.runtime_stats(&address).await;
        for _ in 0..FIGURES_WITHIN {
            // A broker that reports its settings reports its statistics too, unless it has only just started, or is
            // busy.
            if master.levels.is_none() || stats.is_ok() {
                break;
            }
            sleep(Duration::from_secs(1)).await;
            stats = admin.runtime_stats(&address).await;
        }
        match stats {
            Ok(stats) => master.note_stats(&stats),
            Err(AskError::Refused(error) | AskError::Unreachable(error)) => master.unanswered.push(error),
        }
    });
    if answered.await.is_err() {
        let late = transient(format!("it took more than {ANSWER_WITHIN:?}"));
        let late = unreached(&master.address, late);
        master.unanswered.push(late);
    }
    master
}

impl Master {
    fn note_settings(&mut self, settings: &BrokerInfo) {
        match settings.levels() {
            Ok(levels) => self.levels = Some(levels),
            Err(error) => self.unanswered.push(error),
        }
        self.timers = settings
            .read("timerWheelEnable")
            .zip(settings.longest_timer())
            .zip(settings.read("timerPrecisionMs").map(Duration::from_millis))
            .map(|((enabled, longest), precision)| Timers {
                enabled,
                longest,
                precision,
            });
        // Brokers of 5.0 to 5.2 have the old setting, later ones the new ones or both.
        let old = settings.read("aclEnable");
        let [authentication, authorization] =
            ["authenticationEnabled", "authorizationEnabled"].map(|name| settings.read::<bool>(name));
        self.access = (old.is_some() || authentication.is_some()).then(|| Access {
            authentication: old == Some(true) || authentication == Some(true),
            authorization: old == Some(true) || authorization == Some(true),
        });
        let hours: Option<u64> = settings.read("fileReservedTime");
        self.retention = hours
            .and_then(|hours| hours.checked_mul(3_600))
            .map(Duration::from_secs);
        self.makes_groups = settings.read("autoCreateSubscriptionGroup");
    }

    fn note_stats(&mut self, stats: &BrokerInfo) {
        self.version = stats.version();
        // Below 0 if the broker does not know.
        self.disk_used = stats
            .read("commitLogDiskRatio")
            .filter(|used| (0.0..=1.0).contains(used));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master<const S: usize, const F: usize>(
        settings: [(&str, &str); S],
        stats: [(&str, &str); F],
    ) -> Master {
        let mut master = Master::default();
        master.note_settings(&settings.into());
        master.note_stats(&stats.into());
        master
    }

    #[test]
    fn what_a_broker_of_5_3_says_is_read() {
        let master = master(
            [
                ("messageDelayLevel", "1s 5s"),
                ("timerWheelEnable", "true"),
                ("timerMaxDelaySec", "259200"),
                ("timerPrecisionMs", "1000"),
                ("authenticationEnabled", "true"),
                ("authorizationEnabled", "false"),
                ("fileReservedTime", "72"),
                ("autoCreateSubscriptionGroup", "false"),
            ],
            [("brokerVersionDesc", "V5_3_3"), ("commitLogDiskRatio", "0.25")],
        );
        assert_eq!(master.version.unwrap().to_string(), "5.3.3");
        assert_eq!(master.levels.unwrap().to_string(), "1s 5s");
        let timers = Timers {
            enabled: true,
            longest: Duration::from_secs(259_200),
            precision: Duration::from_secs(1),
        };
        assert_eq!(master.timers, Some(timers));
        let access = Access {
            authentication: true,
            authorization: false,
        };
        assert_eq!(master.access, Some(access));
        assert_eq!(master.retention, Some(Duration::from_secs(72 * 3_600)));
        assert_eq!((master.makes_groups, master.disk_used), (Some(false), Some(0.25)));
        assert!(master.unanswered.is_empty());
    }

    #[test]
    fn the_one_setting_of_4_9_stands_for_both() {
        for (value, on) in [("true", true), ("false", false)] {
            let master = master([("messageDelayLevel", "1s"), ("aclEnable", value)], []);
            let access = Access {
                authentication: on,
                authorization: on,
            };
            assert_eq!((master.access, master.timers), (Some(access), None));
        }
        // 5.3 has both settings, and uses the new ones.
        let both = [("aclEnable", "false"), ("authenticationEnabled", "true")];
        assert!(master(both, []).access.unwrap().authentication);
    }

    #[test]
    fn what_cannot_be_read_counts_as_not_told() {
        let master = master(
            [
                ("messageDelayLevel", "0s"),
                ("timerWheelEnable", "TRUE!"),
                ("timerMaxDelaySec", "-1"),
                ("timerPrecisionMs", ""),
                ("aclEnable", "maybe"),
                ("fileReservedTime", "18446744073709551615"),
            ],
            [
                ("brokerVersionDesc", "\u{1b}[31m"),
                ("commitLogDiskRatio", "-1.0"),
            ],
        );
        assert!(master.levels.is_none() && master.timers.is_none() && master.access.is_none());
        assert!(master.retention.is_none() && master.version.is_none() && master.disk_used.is_none());
        let [error] = &master.unanswered[..] else {
            panic!("{:?}", master.unanswered)
        };
        assert!(error.to_string().contains("0s"), "{error}");
        for figure in ["NaN", "inf", "1.5", "full"] {
            let master = self::master([], [("commitLogDiskRatio", figure)]);
            assert_eq!(master.disk_used, None, "{figure}");
        }
    }

    #[test]
    fn the_levels_are_those_of_all_masters() {
        let levels = |tables: &[Option<&str>]| {
            let master = |table: &Option<&str>| Master {
                levels: table.map(|table| table.parse().unwrap()),
                ..Master::default()
            };
            let masters = tables.iter().map(master).collect();
            let survey = Survey {
                masters,
                ..Survey::default()
            };
            survey.levels().to_string()
        };
        assert_eq!(levels(&[Some("5s 1s 5s"), None, Some("5s 1s 5s")]), "5s 1s 5s");
        assert_eq!(levels(&[Some("5s 1s"), Some("1s 5s 2s")]), "1s 2s 5s");
        assert_eq!(levels(&[None]), crate::delay::ROCKETMQ_LEVELS);
    }
}
