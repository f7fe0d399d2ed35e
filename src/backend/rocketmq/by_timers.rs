//! Masters that hold messages by timers.

use std::time::Duration;

use cheetah_string::CheetahString;

use super::holding::Holding;
use crate::defaults;
use crate::rocketmq::{Admin, Told, Unanswered};

/// Asks a master whether it holds timer messages, and for how long.
pub(super) async fn ask(admin: &Admin, address: &CheetahString) -> Result<Holding, Unanswered> {
    match admin.settings(address).await {
        Ok(settings) => Ok(by_settings(&settings)),
        // An old broker must not be mistaken for a shy one: it would deliver at once what is to be held, and so would
        // bring each wake-up again and again. Who may not read settings may often read figures.
        Err(Unanswered::Refused(error)) => {
            let figures = admin.figures(address).await.unwrap_or_default();
            by_version(&figures).ok_or(Unanswered::Refused(error))
        }
        Err(absent) => Err(absent),
    }
}

fn by_settings(settings: &Told) -> Holding {
    match settings.get("timerWheelEnable") {
        Some("true") => {}
        Some(_) => return Holding::Not("it has no timers, by its setting timerWheelEnable".into()),
        None => {
            return Holding::Not(
                "it has no timers, which came with version 5.0, nor the setting timerWheelEnable".into(),
            );
        }
    }
    Holding::Timers(settings.longest_timer().unwrap_or(defaults::TIMERS_LONGEST))
}

/// None, if it may have timers as far as its version goes.
fn by_version(figures: &Told) -> Option<Holding> {
    let version = figures.version()?;
    (version.major < 5).then(|| {
        let why = format!("it has no timers, which came with version 5.0, but is of {version}");
        Holding::Not(why)
    })
}

/// What a master tells, or if it is there and does not tell, what was configured, or the default.
pub(super) fn or_assumed(
    name: &CheetahString,
    told: Result<Holding, Unanswered>,
    configured: Option<Duration>,
) -> Option<Holding> {
    match told {
        Ok(told) => Some(told),
        Err(Unanswered::Refused(error)) => {
            let longest = configured.unwrap_or(defaults::TIMERS_LONGEST);
            tracing::warn!(
                broker = %name, %error, ?longest,
                "a broker does not tell how long it holds timers; what is configured is assumed, or RocketMQ's default"
            );
            Some(Holding::Timers(longest))
        }
        Err(Unanswered::Absent(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rocketmq::transient;

    fn seconds(count: u64) -> Holding {
        Holding::Timers(Duration::from_secs(count))
    }

    #[test]
    fn settings_say_whether_and_how_long() {
        let on = ("timerWheelEnable", "true");
        for (settings, longest) in [
            (Told::from([on, ("timerMaxDelaySec", "60")]), 60),
            (Told::from([on]), 259_200),
            (Told::from([on, ("timerMaxDelaySec", "-1")]), 259_200),
        ] {
            assert_eq!(by_settings(&settings), seconds(longest));
        }
        for (settings, reason) in [
            (Told::from([("timerWheelEnable", "false")]), "by its setting"),
            (Told::from([("messageDelayLevel", "1s")]), "version 5.0"),
        ] {
            let Holding::Not(why) = by_settings(&settings) else {
                panic!("{settings:?}")
            };
            assert!(why.contains(reason), "{why}");
        }
    }

    #[test]
    fn an_old_version_is_known_by_its_figures() {
        let version = |text| by_version(&[("brokerVersionDesc", text)].into());
        assert!(matches!(version("V4_9_7"), Some(Holding::Not(why)) if why.contains("4.9.7")));
        for text in ["V5_0_0", "V5_3_3", "V10_0_0", "HIGHER_VERSION", "", "V", "é"] {
            assert_eq!(version(text), None, "{text}");
        }
        assert_eq!(by_version(&[].into()), None);
    }

    #[test]
    fn one_that_is_there_and_does_not_tell_holds_what_is_configured_or_the_default() {
        let minute = Duration::from_secs(60);
        let shy = || Err(Unanswered::Refused(transient("no permission")));
        let name = "broker-a".into();
        assert_eq!(or_assumed(&name, shy(), Some(minute)), Some(seconds(60)));
        assert_eq!(or_assumed(&name, shy(), None), Some(seconds(259_200)));
        assert_eq!(
            or_assumed(&name, Ok(seconds(30)), Some(minute)),
            Some(seconds(30))
        );
        let absent = Err(Unanswered::Absent(transient("refused")));
        assert_eq!(or_assumed(&name, absent, Some(minute)), None);
    }
}
