//! Kinds of tasks: which there are, and which of them are paused.

use std::collections::BTreeMap;

use delayline::store::Paused;
use delayline::{Error, Kind, State, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Operations, Refusal, StateName};
use crate::reserved;
use crate::time::Time;

/// How many kinds the store is asked for at least where a caller sees some of them: these may be few among many.
const AT_ONCE: usize = 500;

/// What there is of a kind.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct KindView {
    pub(crate) kind: String,
    /// In which there are tasks of it.
    #[schema(value_type = Vec<StateName>)]
    pub(crate) states: Vec<State>,
    /// If it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paused: Option<PausedView>,
}

/// Since when its tasks wait, until when, and why.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[schema(as = Paused)]
pub(crate) struct PausedView {
    pub(crate) since: Time,
    /// None: until it is resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<Time>,
    pub(crate) reason: String,
    /// Who has paused it, as histories name it; not known of a pause by an earlier release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<String>,
}

impl From<Paused> for PausedView {
    fn from(paused: Paused) -> Self {
        Self {
            since: Time(paused.since),
            until: paused.until.map(Time),
            reason: paused.reason,
            actor: paused.actor,
        }
    }
}

impl Operations {
    /// Lists kinds of which there are tasks in a state, by name, after one of them; without the rows that are pauses.
    pub(crate) async fn kinds_in(
        &self,
        state: State,
        after: Option<&Kind>,
        limit: usize,
    ) -> Result<Vec<Kind>, Error> {
        after.map_or(Ok(()), Kind::check)?;
        let mut kinds = Vec::new();
        let mut after = after.cloned();
        let asked = match self.scope {
            Some(_) => limit.saturating_add(1).max(AT_ONCE),
            None => limit.saturating_add(1),
        };
        loop {
            let found = self.store.kinds(state, after.as_ref(), asked).await?;
            let is_last = found.len() < asked;
            after = found.last().cloned();
            let found = found.into_iter();
            kinds.extend(found.filter(|kind| kind.as_str() != Paused::KIND && self.reaches(kind)));
            if is_last || kinds.len() >= limit {
                kinds.truncate(limit);
                return Ok(kinds);
            }
        }
    }

    /// Lists kinds of which there are tasks, and those that are paused, by name, after one of them.
    pub(crate) async fn kinds(&self, after: Option<&Kind>, limit: usize) -> Result<Vec<KindView>, Error> {
        let mut kinds: BTreeMap<Kind, (Vec<State>, Option<PausedView>)> = BTreeMap::new();
        for state in State::ALL {
            for kind in self.kinds_in(state, after, limit).await? {
                kinds.entry(kind).or_default().0.push(state);
            }
        }
        for paused in self.scheduler.paused().await? {
            if self.reaches(&paused.kind) && after.is_none_or(|after| *after < paused.kind) {
                let (_, known) = kinds.entry(paused.kind.clone()).or_default();
                *known = Some(paused.into());
            }
        }
        let view = |(kind, (states, paused)): (Kind, _)| KindView {
            kind: kind.to_string(),
            states,
            paused,
        };
        // What is among the first of all is among the first of each state.
        Ok(kinds.into_iter().take(limit).map(view).collect())
    }

    /// Lets the tasks of a kind wait; paused again, it has the new time and reason.
    pub(crate) async fn pause(
        &self,
        kind: &Kind,
        until: Option<Timestamp>,
        reason: &str,
    ) -> Result<PausedView, Refusal> {
        reserved::check(kind.as_str())?;
        self.reach(kind)?;
        Ok(self.scheduler.pause(kind.clone(), until, reason).await?.into())
    }

    /// Lets the tasks of a paused kind run again; says whether it was paused.
    pub(crate) async fn resume(&self, kind: &Kind) -> Result<bool, Refusal> {
        reserved::check(kind.as_str())?;
        self.reach(kind)?;
        Ok(self.scheduler.resume(kind.clone()).await?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use delayline::store::MemoryStore;
    use delayline::{NewTask, Scheduler};

    use super::super::Scope;
    use super::*;

    /// Of kinds that end so.
    struct Ending(&'static str);

    impl Scope for Ending {
        fn has(&self, kind: &Kind) -> bool {
            kind.as_str().ends_with(self.0)
        }

        fn refusal(&self, _: &Kind) -> String {
            String::new()
        }
    }

    #[tokio::test]
    async fn the_kinds_of_a_caller_are_listed_in_order_however_many_others_are_between() {
        let store = MemoryStore::new();
        let scheduler = Scheduler::new(store.clone());
        let count = 3 * AT_ONCE;
        let tasks = (0..count).map(|at| NewTask::new(format!("k{at:05}").as_str(), &at));
        for scheduled in scheduler.schedule_each(tasks).await {
            scheduled.unwrap();
        }
        let operations =
            Operations::new(&scheduler, Arc::new(store), String::new()).within(Arc::new(Ending("99")));
        let listed = async |after: Option<&Kind>, limit: usize| -> Vec<String> {
            let found = operations.kinds_in(State::Scheduled, after, limit).await.unwrap();
            found.iter().map(|kind| kind.to_string()).collect()
        };
        let all: Vec<_> = (99..count).step_by(100).map(|at| format!("k{at:05}")).collect();
        assert_eq!(listed(None, 1_000).await, all);
        for limit in [1, 2, 5, 6, all.len()] {
            assert_eq!(listed(None, limit).await, all[..limit], "{limit}");
        }
        let (mut one_by_one, mut after) = (Vec::new(), None);
        while let Some(kind) = listed(after.as_ref(), 1).await.pop() {
            after = Some(Kind::from(kind.as_str()));
            one_by_one.push(kind);
        }
        assert_eq!(one_by_one, all);
    }
}
