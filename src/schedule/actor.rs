//! On whose behalf a scheduler acts.

use std::sync::Arc;

use crate::store::line::Line;

/// The user of a scheduler, and the reason, as they are noted of each verb.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    name: Arc<str>,
    reason: Option<Arc<str>>,
}

impl Actor {
    /// Another user, without a reason.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            reason: None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn because(&self, reason: &str) -> Self {
        Self {
            name: Arc::clone(&self.name),
            reason: Some(reason.into()),
        }
    }

    /// What is noted of what he has done.
    pub(crate) fn line(&self, event: &'static str) -> Line<'_> {
        Line {
            why: self.reason.as_deref().map(Into::into),
            ..Line::of(event, &*self.name)
        }
    }
}

impl Default for Actor {
    /// A service, through this crate.
    fn default() -> Self {
        Self::named("rust")
    }
}
