//! What only the store knows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use metrics::{SharedString, gauge};

use crate::observe::metrics::{OTHER, instruments};
use crate::schedule::kernel::Kernel;
use crate::store::{Page, Paused};
use crate::task::timestamp::duration;
use crate::{Error, Kind, Scheduler, State, Timestamp, defaults};

/// The states of tasks that are not over, by name.
const STATES: [(State, &str); 3] = [
    (State::Scheduled, "scheduled"),
    (State::Running, "running"),
    (State::Dead, "dead"),
];
/// Within how many seconds due tasks are counted.
const BOUNDS: [u64; 8] = [5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400];
/// How many kinds are looked at of each state, the first by name, beside those that are told apart.
const KINDS: usize = 2 * defaults::METRIC_KINDS;
/// How many tasks are looked at of each kind to find those that fail, the first by due time: what is tried again is due soon.
const LOOKED_AT: usize = 16;
/// How many times as long as the last query took the store is left alone, up to the longest pause.
const REST: u32 = 20;
const LONGEST_REST: Duration = Duration::from_secs(60);

impl Scheduler {
    /// Records what only the store knows: how many tasks there are of each kind and state (`delayline.tasks`), how many are
    /// due soon (`delayline.tasks.due`), for how long the oldest has been due that waits (`delayline.overdue.oldest`), and for
    /// how long the oldest whose attempts fail (`delayline.failing.oldest`), of kinds that are not paused.
    ///
    /// To be called before metrics are exported: nothing is asked unless they are to be seen. Kinds are counted one by
    /// one, by an index and up to [`defaults::FORECAST_LIMIT`] tasks, never by going through a table. The store is asked
    /// every [`defaults::SAMPLE_EVERY`] at the most, and less often, down to once a minute, where it takes longer than half
    /// a second to answer; what was recorded stands until then.
    ///
    /// The recorder of the crate `metrics` should be installed before the scheduler is built: it is told then what the
    /// instruments are. One scheduler of a process is enough, as they have one recorder.
    pub async fn sample_metrics(&self) -> Result<(), Error> {
        let kernel = &*self.kernel;
        let mut rests_until = kernel.metrics.rests_until.lock().await;
        let began = kernel.clock.instant();
        if rests_until.is_some_and(|until| began < until) {
            return Ok(());
        }
        record(&look(kernel).await?);
        let took = kernel.clock.instant().saturating_duration_since(began);
        let rest = (took * REST).min(LONGEST_REST).max(defaults::SAMPLE_EVERY);
        *rests_until = Some(began + rest);
        Ok(())
    }
}

/// What there is of the kinds of one name.
#[derive(Debug, Default)]
struct Figures {
    of_state: [usize; STATES.len()],
    due: [usize; BOUNDS.len()],
    oldest: Duration,
    failing: Duration,
}

async fn look(kernel: &Kernel) -> Result<BTreeMap<SharedString, Figures>, Error> {
    let own = kernel.metrics.own_kinds();
    let is_full = own.len() >= defaults::METRIC_KINDS;
    let names = own.iter().map(|kind| kernel.metrics.name(kind));
    // Also of those of which there is nothing: else what was told of them last would stand.
    let names = names.chain(is_full.then_some(OTHER));
    let mut figures: BTreeMap<_, Figures> = names.map(|name| (name, Figures::default())).collect();
    for (at, (state, _)) in STATES.into_iter().enumerate() {
        let found = kernel.store.kinds(state, None, KINDS).await?;
        let are_more = found.len() >= KINDS;
        let mut kinds: BTreeSet<Kind> = found.into_iter().collect();
        if are_more {
            kinds.extend(own.iter().cloned());
        }
        // Its tasks say which kinds are paused, and are no work.
        kinds.remove(&Kind::from(Paused::KIND));
        for kind in kinds {
            let of_name = figures.entry(kernel.metrics.name(&kind)).or_default();
            let count = match state {
                State::Scheduled => of_name.add_scheduled(kernel, &kind).await?,
                _ => {
                    let counted = kernel.due_within(&kind, state, &[Duration::MAX]).await?;
                    of_name.add_late(kernel, &kind, state, counted.now).await?;
                    counted.found.iter().sum()
                }
            };
            of_name.of_state[at] += count;
        }
    }
    Ok(figures)
}

impl Figures {
    /// Takes in when the scheduled tasks of a kind are due; says how many there are.
    async fn add_scheduled(&mut self, kernel: &Kernel, kind: &Kind) -> Result<usize, Error> {
        let mut spans = BOUNDS.map(Duration::from_secs).to_vec();
        spans.push(Duration::MAX);
        let heard = kernel.due_within(kind, State::Scheduled, &spans).await?;
        let [due @ .., all] = &heard.found[..] else {
            let name = kernel.store.name();
            return Err(Error::miscounted(name, heard.found.len(), spans.len()));
        };
        for (sum, count) in self.due.iter_mut().zip(due) {
            *sum += count;
        }
        self.add_late(kernel, kind, State::Scheduled, heard.now).await?;
        Ok(*all)
    }

    /// Takes in how late the tasks of a kind are that have not ended.
    async fn add_late(
        &mut self,
        kernel: &Kernel,
        kind: &Kind,
        state: State,
        now: Timestamp,
    ) -> Result<(), Error> {
        if !state.is_live() || is_paused(kernel, kind).await {
            return Ok(());
        }
        let first = Page::new(kind.clone(), state).lean().limit(LOOKED_AT);
        for task in kernel.store.list(&first).await? {
            let late = duration(now.millis_since(task.late_since()));
            if task.is_failing() {
                self.failing = self.failing.max(late);
            } else if state == State::Scheduled {
                self.oldest = self.oldest.max(late);
            }
        }
        Ok(())
    }
}

/// What waits for a resume is not late.
async fn is_paused(kernel: &Kernel, kind: &Kind) -> bool {
    // If the store does not answer, it is as it was heard last.
    let _ = kernel.pauses.refresh(kernel).await;
    kernel.pauses.has(kind, &kernel.time)
}

fn record(figures: &BTreeMap<SharedString, Figures>) {
    for (
        name,
        Figures {
            of_state,
            due,
            oldest,
            failing,
        },
    ) in figures
    {
        for ((_, state), count) in STATES.into_iter().zip(of_state) {
            gauge!(instruments::TASKS, "kind" => name.clone(), "state" => state).set(*count as f64);
        }
        for (bound, count) in BOUNDS.into_iter().zip(due) {
            gauge!(
                instruments::TASKS_DUE,
                "kind" => name.clone(),
                "bound_s" => bound.to_string(),
            )
            .set(*count as f64);
        }
        gauge!(instruments::OVERDUE_OLDEST, "kind" => name.clone()).set(*oldest);
        gauge!(instruments::FAILING_OLDEST, "kind" => name.clone()).set(*failing);
    }
}
