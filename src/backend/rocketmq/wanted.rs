//! What a backend wants of masters.

use std::time::Duration;

use cheetah_string::CheetahString;

use super::holding::Holding;
use super::{by_levels, by_timers};
use crate::backend::Reach;
use crate::rocketmq::{Admin, RocketMqOptions, Unanswered};
use crate::{LevelTable, defaults};

/// What a backend wants of masters, and what is assumed of those that do not tell.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    Levels { configured: Option<LevelTable> },
    Timers { configured: Option<Duration> },
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
            Self::Levels { .. } => by_levels::ask(admin, address).await.map(Holding::Levels),
            Self::Timers { .. } => by_timers::ask(admin, address).await,
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
                by_levels::or_assumed(name, told, configured.as_ref()).map(Holding::Levels)
            }
            (Self::Timers { configured }, told) => by_timers::or_assumed(name, told, *configured),
        }
    }
}
