//! What is still to be done of a change of all tasks that match, once its first part was found.

use delayline::store::Action;

use super::matching::{BATCH, ends_the_state};
use super::{Answers, Bounds, Filter, Match, Operations, Position, Refusal};

/// How many tasks are looked at in one step.
const STEP: usize = 1_000;
/// How many are found before they are changed, 24 bytes each.
const CHUNK: usize = 10_000;
/// The same of tasks that would match again once they are moved: then these are all.
const MOST: usize = 1_000_000;

/// Follows a change from outside: lets it go on, and hears how far it has come.
pub(crate) trait Follower: Sync {
    /// Is held during a step.
    type Permit: Send;

    /// Waits until the next step may begin; `None` stops the change.
    fn next_step(&self) -> impl Future<Output = Option<Self::Permit>> + Send;

    /// Records that more tasks were found to match, and what came of more changes.
    fn record(&self, found: usize, answers: &Answers);
}

/// A change of which a part is found.
#[derive(Debug)]
pub(crate) struct Work {
    operations: Operations,
    filter: Filter,
    action: Action,
    /// What is to be changed next.
    found: Vec<Match>,
    /// Where the search goes on.
    after: Position,
}

impl Work {
    pub(super) fn new(
        operations: Operations,
        filter: Filter,
        action: Action,
        found: Vec<Match>,
        after: Position,
    ) -> Self {
        Self {
            operations,
            filter,
            action,
            found,
            after,
        }
    }

    pub(super) fn action(&self) -> Action {
        self.action
    }

    pub(super) fn actor(&self) -> &str {
        self.operations.actor()
    }

    /// The kind of its filter, which names one.
    pub(super) fn kind(&self) -> &str {
        self.filter.kinds.first().map_or("", |kind| kind.as_str())
    }

    /// Goes on to the end, a hundred tasks in each statement, so that no lock is held for long; `false` if it was stopped.
    pub(crate) async fn run(mut self, follower: &impl Follower) -> Result<bool, Refusal> {
        let may_match_again = !ends_the_state(self.action);
        let most = if may_match_again { MOST } else { CHUNK };
        let none = Answers::default();
        follower.record(self.found.len(), &none);
        let mut after = Some(self.after);
        loop {
            while after.is_some() && self.found.len() < most {
                let Some(_permit) = follower.next_step().await else {
                    return Ok(false);
                };
                let step = Bounds::of_many(STEP, STEP);
                let (more, next): (Vec<Match>, _) = self.operations.list(&self.filter, after, step).await?;
                follower.record(more.len(), &none);
                self.found.extend(more);
                after = next;
            }
            if may_match_again && after.is_some() {
                return Err(Refusal::TooManyMatch(MOST));
            }
            for batch in self.found.chunks(BATCH) {
                let Some(_permit) = follower.next_step().await else {
                    return Ok(false);
                };
                let (answers, called) = self.operations.change_batch(batch, self.action).await;
                follower.record(0, &answers);
                called?;
            }
            if after.is_none() {
                return Ok(true);
            }
            self.found.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use delayline::clock::TestClock;
    use delayline::store::{Claim, Ending, MemoryStore, Step, Store as _};
    use delayline::{NewTask, Scheduler, State, Timestamp};

    use super::super::Changed;
    use super::*;

    /// More than are found at once.
    const TASKS: usize = CHUNK + 500;

    /// Lets what is due die before each step.
    struct DyingAgain {
        clock: TestClock,
        store: MemoryStore,
        came: Mutex<(usize, Answers)>,
    }

    impl DyingAgain {
        async fn die(&self) {
            self.clock.turn_to(self.clock.now().after(Duration::from_secs(1)));
            let claim = Claim {
                owner: "worker".into(),
                lease: Duration::from_secs(60),
                room: [("k".into(), TASKS)].into(),
                bytes: usize::MAX,
                history: Default::default(),
            };
            let claimed = self.store.ready(&claim).await.unwrap().found;
            let end = |task: &delayline::Task| {
                let error = "no".to_owned();
                Step::end(
                    task.id,
                    task.version,
                    Ending::Dead {
                        error,
                        give_back: false,
                    },
                )
            };
            let ends: Vec<_> = claimed.iter().map(end).collect();
            self.store.advance(&ends).await.unwrap();
        }
    }

    impl Follower for DyingAgain {
        type Permit = ();

        async fn next_step(&self) -> Option<()> {
            self.die().await;
            Some(())
        }

        fn record(&self, found: usize, answers: &Answers) {
            let mut came = self.came.lock().unwrap();
            came.0 += found;
            came.1.add(answers);
            assert!(came.0 <= TASKS, "more are found than there were");
        }
    }

    #[tokio::test]
    async fn what_dies_again_is_not_redriven_once_more() {
        let clock = TestClock::starting_at(Timestamp::from_millis(1_000));
        let store = MemoryStore::with_clock(clock.clock());
        let builder = Scheduler::builder(Arc::new(store.clone()));
        let scheduler = builder.clock(clock.clock()).build().unwrap();
        let tasks = (0..TASKS).map(|n| NewTask::new("k", &n));
        scheduler.schedule_all(tasks).await.unwrap();
        let dying = DyingAgain {
            clock,
            store: store.clone(),
            came: Mutex::default(),
        };
        dying.die().await;
        let filter = Filter {
            kinds: vec!["k".into()],
            state: State::Dead,
            due_after: None,
            due_before: None,
            key_prefix: None,
            error: None,
        };
        let operations = Operations::new(&scheduler, Arc::new(store), String::new());
        let begun = operations.change_all(filter, Action::Redrive).await.unwrap();
        let Changed::Begun(work) = begun else {
            panic!("{begun:?}");
        };
        assert!(work.run(&dying).await.unwrap());
        let (found, answers) = *dying.came.lock().unwrap();
        assert_eq!((found, answers.done), (TASKS, TASKS));
    }
}
