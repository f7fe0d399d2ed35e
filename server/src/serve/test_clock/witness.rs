//! The store of a server whose clock is turned, which sees what happens to its tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use delayline::backend::Wake;
use delayline::store::{
    self, Change, Claim, Ending, Guarded, Keep, MemoryStore, NewRow, Noted, Page, PollResult, Renewal,
    Stamped, Step, Store, Sweep, Target,
};
use delayline::{Answer, Error, Kind, Scheduled, State, Task, TaskId, Timestamp};

use super::happened::{Happened, What};
use crate::serve::config::{Config, Delivery, Topic};

/// The header in which a task of the gateway has its topic.
const TOPIC: &str = "DELAYLINE_TOPIC";

/// Passes calls on to the rows, and notes what workers do.
#[derive(Debug)]
pub(super) struct Witness {
    rows: MemoryStore,
    happened: Arc<Happened>,
    delivery: RwLock<Arc<Delivered>>,
}

/// What becomes of tasks.
#[derive(Debug)]
struct Delivered {
    /// What the server delivers itself.
    here: BTreeSet<Kind>,
    /// Where the tasks of a kind are published.
    topics: BTreeMap<Kind, String>,
}

impl Delivered {
    fn by(config: &Config) -> Arc<Self> {
        let topics = config.kinds().into_iter().filter_map(|kind| match kind.deliver {
            Delivery::Topic(Topic { topic, .. }) => Some((kind.kind, topic)),
            Delivery::Pull | Delivery::Webhook(_) => None,
        });
        Arc::new(Self {
            here: config.delivered_here(),
            topics: topics.collect(),
        })
    }
}

impl Witness {
    pub(super) fn new(rows: MemoryStore, happened: Arc<Happened>, config: &Config) -> Self {
        Self {
            rows,
            happened,
            delivery: RwLock::new(Delivered::by(config)),
        }
    }

    /// Tasks are delivered so from now on.
    pub(super) fn deliver_by(&self, config: &Config) {
        *self.delivery.write().unwrap_or_else(PoisonError::into_inner) = Delivered::by(config);
    }

    fn delivery(&self) -> Arc<Delivered> {
        Arc::clone(&self.delivery.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn claimed(&self, tasks: &[Task]) {
        let delivery = self.delivery();
        for task in tasks {
            let what = match delivery.here.contains(&task.kind) {
                true => What::Started,
                false => What::Claimed {
                    owner: task.owner.clone(),
                },
            };
            self.happened.note(task, what);
        }
    }

    /// The tasks whose leases have ended.
    async fn expired(&self) -> Result<Vec<Task>, Error> {
        let now = self.happened.now();
        let mut expired = Vec::new();
        for kind in self.rows.kinds(State::Running, None, usize::MAX).await? {
            let page = Page::new(kind, State::Running).limit(usize::MAX);
            let running = self.rows.list(&page).await?.into_iter();
            expired.extend(running.filter(|task| task.wake_at.is_some_and(|ends| ends <= now)));
        }
        Ok(expired)
    }

    /// Whether anything is due that the server delivers: its wake-up has not come yet, or found no room.
    async fn is_any_missed(&self) -> Result<bool, Error> {
        for kind in &self.delivery().here {
            let due = self.rows.due_within(kind, State::Scheduled, &[Duration::ZERO], 1);
            if due.await?.found != [0] {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn ended(&self, step: &Step, ending: &Ending) -> Result<(), Error> {
        let task = match &step.claimed {
            Some(task) => Arc::clone(task),
            None => match self.rows.find(&Target::Id(step.id)).await? {
                Some(task) => Arc::new(task),
                None => return Ok(()),
            },
        };
        let delivery = self.delivery();
        let is_ours = delivery.here.contains(&task.kind);
        if is_ours && *ending == Ending::Release {
            // It was only claimed in advance.
            self.happened.take_back(&task);
            return Ok(());
        }
        if is_ours && *ending == Ending::Done {
            let of_message = || task.headers.get(TOPIC);
            if let Some(topic) = delivery.topics.get(&task.kind).or_else(of_message) {
                let topic = topic.clone();
                self.happened.note(&task, What::Published { topic });
            }
        }
        self.happened.note(&task, What::of(ending, self.happened.now()));
        Ok(())
    }
}

#[async_trait]
impl Store for Witness {
    fn name(&self) -> &'static str {
        self.rows.name()
    }

    fn keep(&self, kinds: &Arc<BTreeMap<Kind, Keep>>) {
        self.rows.keep(kinds);
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.rows.now().await
    }

    async fn insert(&self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Result<Scheduled, Error>>>, Error> {
        self.rows.insert(rows).await
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Stamped<Vec<Result<Answer, Error>>>, Error> {
        self.rows.change(changes).await
    }

    async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Result<Stamped<PollResult>, Error> {
        let polled = self.rows.arrive(wakes, claim).await?;
        self.claimed(&polled.found.claimed);
        Ok(polled)
    }

    async fn ready(&self, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
        let ready = self.rows.ready(claim).await?;
        self.claimed(&ready.found);
        Ok(ready)
    }

    async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Result<Stamped<PollResult>, Error> {
        let expired = self.expired().await?;
        if expired.is_empty() && !self.is_any_missed().await? {
            // What has to wait would be read at each step.
            return Ok(Stamped {
                now: self.happened.now(),
                found: PollResult::default(),
            });
        }
        let polled = self.rows.sweep(claim, sweep).await?;
        for task in expired {
            let now = self.rows.find(&Target::Id(task.id)).await?;
            if now.is_some_and(|now| now.version != task.version) {
                self.happened.note(&task, What::LeaseEnded);
            }
        }
        self.claimed(&polled.found.claimed);
        Ok(polled)
    }

    async fn advance(&self, steps: &[Step]) -> Result<Vec<Guarded>, Error> {
        let came = self.rows.advance(steps).await?;
        for (step, came) in steps.iter().zip(&came) {
            if let (store::Event::End { ending, .. }, Guarded::Done) = (&step.event, came) {
                self.ended(step, ending).await?;
            }
        }
        Ok(came)
    }

    async fn renew(&self, claims: &[Renewal], lease: Duration) -> Result<Vec<Guarded>, Error> {
        self.rows.renew(claims, lease).await
    }

    async fn find(&self, target: &Target) -> Result<Option<Task>, Error> {
        self.rows.find(target).await
    }

    async fn list(&self, page: &Page) -> Result<Vec<Task>, Error> {
        self.rows.list(page).await
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        self.rows.kinds(state, after, limit).await
    }

    async fn due_within(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        self.rows.due_within(kind, state, spans, most).await
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        self.rows.history(id).await
    }

    async fn purge(&self, limit: usize) -> Result<u64, Error> {
        self.rows.purge(limit).await
    }
}
