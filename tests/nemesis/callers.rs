//! Callers that know of no fault, and give up unanswered calls.

use std::sync::Arc;
use std::time::Duration;

use delayline::store::Target;
use delayline::{NewTask, Shift, TaskId};
use fastrand::Rng;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::home::{Home, KINDS, Within};
use crate::ledger::{Ledger, What};
use crate::verbs::{self, Ask, Said};

/// How long a caller waits for an answer.
const TIME_LIMIT: Duration = Duration::from_secs(5);

pub(crate) struct Callers {
    stop: oneshot::Sender<()>,
    calling: JoinHandle<()>,
}

impl Callers {
    /// Begins to call, so many callers a second, each at random.
    pub(crate) fn start(home: Home, ledger: Arc<Ledger>, seed: u64, rate: u32) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let calling = tokio::spawn(async move {
            let mut chance = Rng::with_seed(seed);
            let mut calls = JoinSet::new();
            let mut tick = interval(Duration::from_secs(1) / rate);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while stopped.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
                tick.tick().await;
                let caller = Caller {
                    home: home.clone(),
                    ledger: ledger.clone(),
                    chance: chance.fork(),
                };
                calls.spawn(caller.call());
                while let Some(ended) = calls.try_join_next() {
                    ended.unwrap();
                }
            }
            calls.join_all().await;
        });
        Self { stop, calling }
    }

    /// Ends the calls: no caller begins with another task.
    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.calling.await.unwrap();
    }
}

struct Caller {
    home: Home,
    ledger: Arc<Ledger>,
    chance: Rng,
}

impl Caller {
    /// Schedules a task, and changes its mind up to three times.
    async fn call(mut self) {
        let id = self.home.scheduler.new_id();
        let kind = *self.chance.choice(&KINDS).unwrap();
        let key = self.chance.bool().then(|| format!("order {id}"));
        let within = self.within(&format!("order {id}"), 5);
        let effect = within.as_ref().and_then(|within| within.effect.clone());
        self.ledger.begin(id, kind, effect);
        let delay = self.millis(5_000);
        let schedule = Ask::Schedule(task(id, kind, key.as_deref(), delay));
        self.ask(id, id.into(), What::Schedule, schedule, within).await;
        for _ in 0..self.chance.u8(..4) {
            sleep(self.millis(2_500)).await;
            if let Some(key) = &key
                && self.chance.u8(..10) == 0
            {
                let delay = self.millis(3_000);
                self.replace(id, kind, key, delay).await;
                continue;
            }
            let target: Target = match &key {
                Some(key) if self.chance.bool() => (kind, key.as_str()).into(),
                _ => id.into(),
            };
            let (what, ask) = match self.chance.u8(..10) {
                0..3 => (What::Move, Ask::Move(self.millis(3_000).into())),
                3 => (What::Move, Ask::Shift(Shift::Later(self.millis(2_000)))),
                4 => (What::Move, Ask::Shift(Shift::Earlier(self.millis(2_000)))),
                5 => (What::Move, Ask::RunNow),
                _ => (What::Cancel, Ask::Cancel),
            };
            let within = self.within("", 8);
            self.ask(id, target, what, ask, within).await;
        }
    }

    /// Sometimes, where there are transactions, one of the service's own, which is sometimes rolled back.
    fn within(&mut self, effect: &str, one_in: u8) -> Option<Within> {
        let is_within = self.chance.u8(..one_in) == 0 && self.home.has_transactions();
        is_within.then(|| Within {
            effect: (!effect.is_empty()).then(|| effect.to_owned()),
            open_for: self.millis(200),
            rolls_back: self.chance.u8(..4) == 0,
        })
    }

    async fn ask(&self, first: TaskId, target: Target, what: What, ask: Ask, within: Option<Within>) {
        let asking = self.ledger.ask(first, what);
        let answer = async {
            match within {
                None => verbs::ask(&self.home.scheduler, target, ask)
                    .await
                    .map_err(|error| error.to_string()),
                Some(within) => {
                    let said = self.home.ask_within(target, ask, within).await;
                    said.map_err(|failure| format!("{failure:?}"))
                }
            }
        };
        self.ledger.answer(asking, in_time(answer).await);
    }

    /// Schedules another task of the same key, which takes the place of the one that waits, if one does.
    async fn replace(&mut self, first: TaskId, kind: &'static str, key: &str, delay: Duration) {
        let id = self.home.scheduler.new_id();
        self.ledger.add(first, id);
        let ask = Ask::Schedule(task(id, kind, Some(key), delay).replace());
        self.ask(first, id.into(), What::Schedule, ask, None).await;
    }

    fn millis(&mut self, below: u64) -> Duration {
        Duration::from_millis(self.chance.u64(..below))
    }
}

async fn in_time(answer: impl Future<Output = Result<Said, String>>) -> Said {
    match timeout(TIME_LIMIT, answer).await {
        Ok(said) => said.unwrap_or_else(Said::Unknown),
        Err(_) => Said::Unknown("no answer in time".to_owned()),
    }
}

fn task(id: TaskId, kind: &str, key: Option<&str>, delay: Duration) -> NewTask {
    let task = NewTask::new(kind, &()).id(id).after(delay);
    match key {
        Some(key) => task.key(key),
        None => task,
    }
}
