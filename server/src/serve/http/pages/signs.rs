//! What is wrong, which the menu of every page tells.

use std::time::Duration;

use delayline::State;
use tokio::time::timeout;

use super::super::Shared;
use super::super::access::Caller;
use super::super::problem::Problem;
use super::words::Count;

/// For how long a page waits for them: it comes without them where the store is slow.
const COUNT_LIMIT: Duration = Duration::from_secs(1);
/// Up to how many dead tasks are counted, and of how many kinds.
const COUNTED: usize = 100;
const KINDS: usize = 20;

/// How much there is of what has to be looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Signs {
    /// Dead tasks.
    pub(super) dead: Count,
    /// Changes in bulk that go on.
    pub(super) jobs: usize,
    /// Servers that do not answer.
    pub(super) silent: usize,
}

impl Signs {
    /// Counts those that a visitor may know of.
    pub(super) async fn of(app: &Shared, caller: &Caller) -> Self {
        let dead = timeout(COUNT_LIMIT, dead(app, caller));
        let (dead, parts) = tokio::join!(dead, timeout(COUNT_LIMIT, app.parts()));
        let jobs = app.jobs.list(&caller.operations(app));
        Self {
            // What is wrong with the store is told by the page itself.
            dead: dead.map(Result::unwrap_or_default).unwrap_or_default(),
            jobs: jobs.iter().filter(|job| job.ended_at.is_none()).count(),
            silent: parts
                .map(|parts| parts.iter().filter(|part| !part.ready).count())
                .unwrap_or_default(),
        }
    }
}

/// Counts dead tasks by the index of kinds and states: one look for the kinds, and one for each that has some.
async fn dead(app: &Shared, caller: &Caller) -> Result<Count, Problem> {
    let operations = caller.operations(app);
    let kinds = operations.kinds_in(State::Dead, None, KINDS + 1).await?;
    let mut count = Count {
        tasks: 0,
        are_more: kinds.len() > KINDS,
    };
    for kind in kinds.iter().take(KINDS) {
        let most = COUNTED - count.tasks;
        let counted = app
            .store
            .due_within(kind, State::Dead, &[Duration::MAX], most)
            .await?;
        count.add(Count::bounded(counted.found.iter().sum(), most));
        if count.tasks >= COUNTED {
            break;
        }
    }
    Ok(count)
}
