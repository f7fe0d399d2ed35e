//! Timer messages, which brokers know since 5.0.

use std::time::Duration;

use async_trait::async_trait;
use cheetah_string::CheetahString;

use super::RocketMqBackend;
use super::holding::{Holding, Wanted};
use crate::backend::{Arrival, Backend, Delays, Departure, SendError};
use crate::rocketmq::{Admin, RocketMqOptions, Told, Unanswered};
use crate::{Error, Wake, defaults};

/// Carries wake-ups as timer messages of RocketMQ brokers of version 5: any delay up to the brokers' longest, which is
/// 3 days by default, in one message.
///
/// It stands in the place of a [`RocketMqBackend`], and shares topic, group and messages with it: a service may go from
/// one to the other while its tasks are on their way. It costs a message where levels cost a chain, and is ten times
/// less punctual: a timer comes up to 1.2 s late. So it brings each task up to shortly before its time, and the
/// precise backend the rest of the way.
///
/// Every master must have `timerWheelEnable`, which is the default. A delay may be as long as the least
/// `timerMaxDelaySec` of them, so that each can stand in for each.
#[derive(Debug)]
pub struct RocketMqTimers(RocketMqBackend);

impl RocketMqTimers {
    /// Connects to the nameservers, asks the masters how long they hold a timer, and makes the topic where it is
    /// missing.
    ///
    /// Fails for good if a master is of a version before 5.0, or has its timers switched off; one that comes later is
    /// left out.
    pub async fn connect(options: impl Into<RocketMqOptions>) -> Result<Self, Error> {
        RocketMqBackend::open(options.into(), Wanted::timers)
            .await
            .map(Self)
    }

    /// How many messages were received that were no wake-ups, and were dropped.
    pub fn foreign(&self) -> u64 {
        self.0.foreign()
    }
}

#[async_trait]
impl Backend for RocketMqTimers {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn delays(&self) -> Delays {
        self.0.delays()
    }

    async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        self.0.send(batch).await
    }

    /// Does nothing: a timer message that is taken back would need the moment for which it was sent, to the second.
    async fn remove(&self, wakes: &[Wake]) -> Result<(), Error> {
        self.0.remove(wakes).await
    }

    async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        self.0.receive(max).await
    }

    async fn acknowledge(&self, arrivals: Vec<Arrival>) {
        self.0.acknowledge(arrivals).await;
    }

    async fn health(&self) -> Result<(), Error> {
        self.0.health().await
    }

    /// What has been received and not been acknowledged is left to other workers of the group.
    async fn close(&self) -> Result<(), Error> {
        self.0.close().await
    }
}

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
    let longest = settings.read("timerMaxDelaySec");
    Holding::Timers(longest.map_or(defaults::TIMERS_LONGEST, Duration::from_secs))
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
