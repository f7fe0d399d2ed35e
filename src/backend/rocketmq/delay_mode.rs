//! Chooses which delays of masters a backend uses, and how to ask a master for them.

use std::time::Duration;

use cheetah_string::CheetahString;

use super::delay_support::DelaySupport;
use crate::backend::Reach;
use crate::defaults;
use crate::delay::LevelTable;
use crate::rocketmq::{Admin, AskError, BrokerInfo, RocketMqOptions};

/// Which delays of masters a backend uses, and the configured ones for masters that do not report theirs.
#[derive(Clone, Debug)]
pub(super) enum DelayMode {
    Levels { configured: Option<LevelTable> },
    Timers { configured: Option<Duration> },
}

impl DelayMode {
    pub(super) fn levels(options: &RocketMqOptions) -> Self {
        Self::Levels {
            configured: options.levels.clone(),
        }
    }

    pub(super) fn timers(options: &RocketMqOptions) -> Self {
        Self::Timers {
            configured: options.longest_timer,
        }
    }

    /// Returns what is assumed of masters as long as none is known.
    pub(super) fn reach(&self) -> Reach {
        match self.assumed() {
            DelaySupport::Timers(max) => Reach::Any { max },
            support => Reach::Levels(support.table().cloned().unwrap_or_default()),
        }
    }

    /// Returns what a master that does not report is assumed to support: the configured delays, or RocketMQ's default.
    fn assumed(&self) -> DelaySupport {
        match self {
            Self::Levels { configured } => DelaySupport::Levels(configured.clone().unwrap_or_default()),
            Self::Timers { configured } => {
                DelaySupport::Timers(configured.unwrap_or(defaults::TIMERS_LONGEST))
            }
        }
    }

    /// Asks a master for the delays that it supports.
    pub(super) async fn ask(&self, admin: &Admin, address: &CheetahString) -> Result<DelaySupport, AskError> {
        match (self, admin.broker_config(address).await) {
            (Self::Levels { .. }, config) => {
                let levels = config?.levels().map_err(AskError::Refused)?;
                Ok(DelaySupport::Levels(levels))
            }
            (Self::Timers { .. }, Ok(config)) => Ok(timers_by_config(&config)),
            // An old broker must not be mistaken for one that refuses to answer: it would deliver timers at once, and
            // so would bring each wake-up again and again. An account that may not read its configuration may often
            // read statistics.
            (Self::Timers { .. }, Err(AskError::Refused(error))) => {
                let stats = admin.runtime_stats(address).await.unwrap_or_default();
                no_timers_by_version(&stats).ok_or(AskError::Refused(error))
            }
            (Self::Timers { .. }, Err(unreachable)) => Err(unreachable),
        }
    }

    /// Returns what a master reports, or if it is there and does not report it, what is assumed.
    pub(super) fn or_assumed(
        &self,
        name: &CheetahString,
        reported: Result<DelaySupport, AskError>,
    ) -> Option<DelaySupport> {
        match (self, reported) {
            (_, Ok(reported)) => {
                if let (Self::Levels { configured }, DelaySupport::Levels(levels)) = (self, &reported)
                    && let Some(configured) = configured.as_ref().filter(|table| *table != levels)
                {
                    tracing::warn!(
                        broker = %name, %levels, %configured,
                        "a broker has other delay levels than RocketMqOptions::levels says; the broker's own are used, so \
                         nothing is late: correct or remove the option"
                    );
                }
                Some(reported)
            }
            (_, Err(AskError::Unreachable(_))) => None,
            (Self::Levels { configured }, Err(AskError::Refused(error))) => {
                let levels = configured.clone().unwrap_or_default();
                tracing::warn!(
                    broker = %name, %error, %levels, configured = configured.is_some(),
                    "a broker does not report its delay levels, so these are assumed; if they are not what its \
                     messageDelayLevel says, wake-ups are early or late: set RocketMqOptions::levels, or let the account \
                     read the broker's configuration"
                );
                Some(self.assumed())
            }
            (Self::Timers { configured }, Err(AskError::Refused(error))) => {
                let longest = configured.unwrap_or(defaults::TIMERS_LONGEST);
                tracing::warn!(
                    broker = %name, %error, ?longest, configured = configured.is_some(),
                    "a broker does not report its longest timer, so this is assumed; if it is shorter, the broker refuses \
                     longer delays and they take the precise backend: set RocketMqOptions::longest_timer, or let the \
                     account read the broker's configuration"
                );
                Some(self.assumed())
            }
        }
    }
}

fn timers_by_config(config: &BrokerInfo) -> DelaySupport {
    match config.get("timerWheelEnable") {
        Some("true") => DelaySupport::Timers(config.longest_timer().unwrap_or(defaults::TIMERS_LONGEST)),
        Some(_) => DelaySupport::Unsupported("it has no timers, by its setting timerWheelEnable".into()),
        None => DelaySupport::Unsupported(
            "it has no timers, which came with version 5.0, nor the setting timerWheelEnable".into(),
        ),
    }
}

/// None, if its version may have timers.
fn no_timers_by_version(stats: &BrokerInfo) -> Option<DelaySupport> {
    let version = stats.version()?;
    (version.major < 5).then(|| {
        let why = format!("it has no timers, which came with version 5.0, but is of {version}");
        DelaySupport::Unsupported(why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rocketmq::transient;

    fn refused() -> Result<DelaySupport, AskError> {
        Err(AskError::Refused(transient("no permission")))
    }

    fn seconds(count: u64) -> DelaySupport {
        DelaySupport::Timers(Duration::from_secs(count))
    }

    fn levels(text: &str) -> DelaySupport {
        DelaySupport::Levels(text.parse().unwrap())
    }

    #[test]
    fn a_master_has_what_it_tells_and_one_that_does_not_tell_what_is_configured_or_the_default() {
        let by_levels = |configured: Option<&str>| DelayMode::Levels {
            configured: configured.map(|text| text.parse().unwrap()),
        };
        let by_timers = |configured: Option<u64>| DelayMode::Timers {
            configured: configured.map(Duration::from_secs),
        };
        let default = DelaySupport::Levels(LevelTable::default());
        for (mode, reported, support) in [
            (by_levels(None), Ok(levels("1s 2s")), levels("1s 2s")),
            (by_levels(Some("1s 3s")), Ok(levels("1s 2s")), levels("1s 2s")),
            (by_levels(Some("1s 3s")), refused(), levels("1s 3s")),
            (by_levels(None), refused(), default),
            (by_timers(Some(60)), Ok(seconds(30)), seconds(30)),
            (by_timers(Some(60)), refused(), seconds(60)),
            (by_timers(None), refused(), seconds(259_200)),
        ] {
            let case = format!("{mode:?}, {reported:?}");
            assert_eq!(
                mode.or_assumed(&"broker-a".into(), reported),
                Some(support),
                "{case}"
            );
        }
        for mode in [by_levels(Some("1s 3s")), by_timers(Some(60))] {
            let unreachable = Err(AskError::Unreachable(transient("refused")));
            assert_eq!(mode.or_assumed(&"broker-a".into(), unreachable), None, "{mode:?}");
        }
    }

    #[test]
    fn settings_say_whether_there_are_timers_and_how_long() {
        let on = ("timerWheelEnable", "true");
        for (config, longest) in [
            (BrokerInfo::from([on, ("timerMaxDelaySec", "60")]), 60),
            (BrokerInfo::from([on]), 259_200),
            (BrokerInfo::from([on, ("timerMaxDelaySec", "-1")]), 259_200),
        ] {
            assert_eq!(timers_by_config(&config), seconds(longest));
        }
        for (config, reason) in [
            (
                BrokerInfo::from([("timerWheelEnable", "false")]),
                "by its setting",
            ),
            (BrokerInfo::from([("messageDelayLevel", "1s")]), "version 5.0"),
        ] {
            let DelaySupport::Unsupported(why) = timers_by_config(&config) else {
                panic!("{config:?}")
            };
            assert!(why.contains(reason), "{why}");
        }
    }

    #[test]
    fn an_old_version_is_known_by_its_statistics() {
        let version = |text| no_timers_by_version(&[("brokerVersionDesc", text)].into());
        assert!(matches!(version("V4_9_7"), Some(DelaySupport::Unsupported(why)) if why.contains("4.9.7")));
        for text in ["V5_0_0", "V5_3_3", "V10_0_0", "HIGHER_VERSION", "", "V", "é"] {
            assert_eq!(version(text), None, "{text}");
        }
        assert_eq!(no_timers_by_version(&[].into()), None);
    }
}
