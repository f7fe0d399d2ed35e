//! How masters hold what is delayed: by levels, or by timers.

use std::time::Duration;

use cheetah_string::CheetahString;

use super::timers;
use crate::backend::Reach;
use crate::rocketmq::{Admin, RocketMqOptions, Unanswered};
use crate::{LevelTable, defaults};

/// What a backend wants of masters, and what is assumed of those that do not tell.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    Levels { configured: Option<LevelTable> },
    Timers { configured: Option<Duration> },
}

/// How a master holds a message until its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holding {
    /// For the delays of this table.
    Levels(LevelTable),
    /// For any delay up to this one.
    Timers(Duration),
    /// Not at all, for this reason.
    Not(String),
}

impl Holding {
    pub(super) fn table(&self) -> Option<&LevelTable> {
        match self {
            Self::Levels(table) => Some(table),
            Self::Timers(_) | Self::Not(_) => None,
        }
    }

    /// What it can hold; none, if nothing.
    pub(super) fn reach(&self) -> Option<Reach> {
        match self {
            Self::Levels(table) => Some(Reach::Levels(table.clone())),
            Self::Timers(longest) => Some(Reach::Any { max: *longest }),
            Self::Not(_) => None,
        }
    }
}

impl Wanted {
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

    /// What is assumed of masters as long as none is known.
    pub(super) fn reach(&self) -> Reach {
        match self {
            Self::Levels { configured } => Reach::Levels(configured.clone().unwrap_or_default()),
            Self::Timers { configured } => Reach::Any {
                max: configured.unwrap_or(defaults::TIMERS_LONGEST),
            },
        }
    }

    /// Asks a master.
    pub(super) async fn ask(&self, admin: &Admin, address: &CheetahString) -> Result<Holding, Unanswered> {
        match self {
            Self::Levels { .. } => table_of(admin, address).await.map(Holding::Levels),
            Self::Timers { .. } => timers::ask(admin, address).await,
        }
    }

    /// What a master tells, or if it is there and does not tell, what was configured, or the default.
    pub(super) fn or_assumed(
        &self,
        name: &CheetahString,
        told: Result<Holding, Unanswered>,
    ) -> Option<Holding> {
        match (self, told) {
            (Self::Levels { configured }, told) => {
                let told = told.map(|told| told.table().cloned().unwrap_or_default());
                table_or_assumed(name, told, configured.as_ref()).map(Holding::Levels)
            }
            (Self::Timers { configured }, told) => timers::or_assumed(name, told, *configured),
        }
    }
}

async fn table_of(admin: &Admin, address: &CheetahString) -> Result<LevelTable, Unanswered> {
    let settings = admin.settings(address).await?;
    settings.levels().map_err(Unanswered::Refused)
}

/// A master's table: what it tells, or if it is there and does not tell, what was configured, or the default.
fn table_or_assumed(
    name: &CheetahString,
    told: Result<LevelTable, Unanswered>,
    configured: Option<&LevelTable>,
) -> Option<LevelTable> {
    match (told, configured) {
        (Ok(told), Some(configured)) if told != *configured => {
            tracing::warn!(broker = %name, %told, %configured, "a broker has other levels than the configured ones; its own are used");
            Some(told)
        }
        (Ok(told), _) => Some(told),
        (Err(Unanswered::Refused(error)), Some(configured)) => {
            tracing::warn!(broker = %name, %error, levels = %configured, "a broker does not tell its delay levels; the configured ones are used");
            Some(configured.clone())
        }
        (Err(Unanswered::Refused(error)), None) => {
            let levels = LevelTable::default();
            tracing::warn!(
                broker = %name, %error, %levels,
                "a broker does not tell its delay levels, so RocketMQ's default ones are assumed; \
                 if that is wrong, configure them, or wake-ups will be early or late"
            );
            Some(levels)
        }
        (Err(Unanswered::Absent(_)), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rocketmq::transient;

    fn assumed(told: Result<&str, Unanswered>, configured: Option<&str>) -> Option<String> {
        let told = told.map(|text| text.parse().unwrap());
        let configured = configured.map(|text| text.parse().unwrap());
        let table = table_or_assumed(&"broker-a".into(), told, configured.as_ref());
        table.map(|table| table.to_string())
    }

    #[test]
    fn a_master_that_tells_its_table_has_it_whatever_was_configured() {
        assert_eq!(assumed(Ok("1s 2s"), None).unwrap(), "1s 2s");
        assert_eq!(assumed(Ok("1s 2s"), Some("1s 3s")).unwrap(), "1s 2s");
    }

    #[test]
    fn one_that_is_there_and_does_not_tell_has_the_configured_table_or_the_default_one() {
        let refused = || Err(Unanswered::Refused(transient("no permission")));
        assert_eq!(assumed(refused(), Some("1s 3s")).unwrap(), "1s 3s");
        assert_eq!(
            assumed(refused(), None).unwrap(),
            LevelTable::default().to_string()
        );
    }

    #[test]
    fn nothing_is_assumed_of_one_that_is_not_there() {
        let absent = Err(Unanswered::Absent(transient("refused")));
        assert_eq!(assumed(absent, Some("1s 3s")), None);
    }
}
