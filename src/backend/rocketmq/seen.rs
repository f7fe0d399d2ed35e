//! A look at one master.

use std::time::Duration;

use cheetah_string::CheetahString;
use tokio::time::timeout;

use super::flow::Taken;
use super::holding::Holding;
use super::lines::ANSWER_WITHIN;
use super::master::Groups;
use super::wanted::Wanted;
use crate::rocketmq::{Admin, Told, Unanswered, transient};

/// When the broker was started, in its figures.
pub(super) const BOOT: &str = "bootTimestamp";

/// What one master is asked, by what is known of it.
pub(super) struct Question {
    pub(super) name: CheetahString,
    pub(super) address: CheetahString,
    pub(super) boot: Option<String>,
    /// Whether it is known how it holds messages.
    pub(super) holds: bool,
    pub(super) groups: Groups,
    /// Whether to ask how far the group has taken what it delivered.
    pub(super) flow: bool,
    pub(super) wanted: Wanted,
    pub(super) topic: String,
    pub(super) group: String,
}

/// What a look has found out about one master.
pub(super) struct Seen {
    pub(super) name: CheetahString,
    pub(super) figures: Result<Told, Unanswered>,
    /// How it holds messages, if it was asked.
    pub(super) holding: Option<Result<Holding, Unanswered>>,
    pub(super) groups: Groups,
    /// Whether it has the consumer group, if it says so.
    pub(super) has_group: Option<bool>,
    /// How far the group has taken what it delivered, if it was asked and says so.
    pub(super) taken: Option<Taken>,
}

impl Question {
    /// Asks for its figures; how it holds messages, if that may have changed; and after the consumer group.
    pub(super) async fn ask(self, admin: &Admin) -> Seen {
        let Self { address, wanted, .. } = self;
        let figures = within(ANSWER_WITHIN, admin.figures(&address)).await;
        let again = match &figures {
            Ok(figures) => !self.holds || self.boot.as_deref() != figures.get(BOOT),
            Err(Unanswered::Refused(_)) => !self.holds,
            Err(Unanswered::Absent(_)) => false,
        };
        let holding = match again {
            true => Some(within(ANSWER_WITHIN, wanted.ask(admin, &address)).await),
            false => None,
        };
        let mut seen = Seen {
            name: self.name,
            holding,
            groups: self.groups,
            has_group: None,
            taken: None,
            figures,
        };
        if matches!(seen.figures, Err(Unanswered::Absent(_))) {
            return seen;
        }
        if seen.groups == Groups::Unknown {
            seen.groups = match admin.makes_groups(&address).await {
                Some(false) => Groups::Others,
                _ => Groups::Itself,
            };
        }
        if seen.groups == Groups::Others {
            seen.has_group = admin.has_group(&address, &self.group).await;
            // One that cannot say it is not asked again and again.
            seen.groups = seen.has_group.map_or(Groups::Itself, |_| Groups::Others);
        }
        if self.flow {
            let taken = admin.taken(&address, &self.topic, &self.group).await;
            seen.taken = taken.map(|(up_to, left)| Taken { up_to, left });
        }
        seen
    }
}

/// Gives somebody who is asked only so much time.
pub(super) async fn within<T>(
    patience: Duration,
    asking: impl Future<Output = Result<T, Unanswered>>,
) -> Result<T, Unanswered> {
    timeout(patience, asking)
        .await
        .unwrap_or_else(|_| Err(Unanswered::Absent(transient("no answer in time"))))
}
