//! Pauses and resumes kinds, as an operator who reaches the store over a healthy line.

use std::sync::Arc;
use std::time::Duration;

use delayline::Timestamp;
use delayline::store::Paused;
use fastrand::Rng;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::home::{Home, KINDS};
use crate::now;
use crate::pauses::{Act, Pauses};

pub(crate) struct Operator {
    stop: watch::Sender<bool>,
    operating: JoinSet<()>,
}

impl Operator {
    /// Begins to pause and to resume each kind, at random moments.
    pub(crate) fn start(home: &Home, pauses: &Arc<Pauses>, seed: u64) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut chance = Rng::with_seed(seed);
        let mut operating = JoinSet::new();
        for kind in KINDS {
            let attending = Attending {
                home: home.clone(),
                pauses: pauses.clone(),
                kind,
                chance: chance.fork(),
            };
            let mut stopped = stopped.clone();
            operating.spawn(async move { attending.go_on(&mut stopped).await });
        }
        Self { stop, operating }
    }

    /// Asks for every kind to be resumed, and for nothing after that.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        self.operating.join_all().await;
    }
}

/// Resumes kinds that are still paused, as where an unanswered call was done late.
pub(crate) async fn resume_all(home: &Home) {
    // It is tried again until every task has ended.
    for Paused { kind, .. } in home.scheduler.paused().await.unwrap_or_default() {
        let _ = home.scheduler.resume(kind).await;
    }
}

/// An operator's work on one kind.
struct Attending {
    home: Home,
    pauses: Arc<Pauses>,
    kind: &'static str,
    chance: Rng,
}

impl Attending {
    async fn go_on(mut self, stopped: &mut watch::Receiver<bool>) {
        let mut is_paused = false;
        loop {
            let span = self.millis(1_500..6_000);
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => break,
                () = sleep(span) => {}
            }
            // Sometimes a paused kind is paused again.
            is_paused = !is_paused || self.chance.u8(..4) == 0;
            if is_paused {
                let ends_by_itself = self.chance.u8(..3) == 0;
                let until = ends_by_itself.then(|| self.millis(1_500..6_000));
                self.pause(until).await;
            } else {
                self.resume().await;
            }
        }
        self.resume().await;
    }

    async fn pause(&self, length: Option<Duration>) {
        let until = length.map(|length| Timestamp::from_millis(now()).after(length));
        let asking = self.pauses.ask(
            self.kind,
            Act::Pause {
                until: until.map(Timestamp::as_millis),
            },
        );
        if self
            .home
            .scheduler
            .pause(self.kind, until, "by chance")
            .await
            .is_ok()
        {
            self.pauses.answer(asking);
        }
    }

    async fn resume(&self) {
        let asking = self.pauses.ask(self.kind, Act::Resume);
        if self.home.scheduler.resume(self.kind).await.is_ok() {
            self.pauses.answer(asking);
        }
    }

    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.chance.u64(range))
    }
}
