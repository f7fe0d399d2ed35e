//! Kinds whose tasks wait.

use super::Scheduler;
use crate::store::Paused;
use crate::store::paused;
use crate::{Error, Kind, Timestamp};

impl Scheduler {
    /// Lets the tasks of a kind wait, whatever their time, until `until` or until it is [resumed](Self::resume); `reason`
    /// is for people. Paused again, it is paused until the new time and for the new reason.
    ///
    /// Every worker over the store, and all [`Claims`](crate::claims::Claims), know of it within
    /// [`defaults::PAUSE_SEEN`](crate::defaults::PAUSE_SEEN), and start none of its tasks from then on; what they have
    /// claimed in advance they give back. Handlers that run go on, and callers may schedule, move and cancel as ever. Where
    /// the store has not said for so long which kinds are paused, nothing starts until it does.
    ///
    /// A pause is a row of the kind [`Paused::KIND`], under the name of the paused kind as its key.
    ///
    /// ```
    /// use delayline::store::MemoryStore;
    /// use delayline::{Kind, NewTask, Scheduler};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// let scheduler = Scheduler::new(MemoryStore::new());
    /// scheduler.pause("mail.send", None, "the mail server is being moved").await?;
    /// assert_eq!(scheduler.paused().await?[0].kind, Kind::from("mail.send"));
    ///
    /// assert!(scheduler.resume("mail.send").await?);
    /// assert!(scheduler.paused().await?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn pause(
        &self,
        kind: impl Into<Kind>,
        until: Option<Timestamp>,
        reason: &str,
    ) -> Result<Paused, Error> {
        let kernel = &self.kernel;
        let store = (&*kernel.store, &*kernel.time);
        let actor = (self.actor.name(), self.note(None, "paused", None));
        let paused = paused::pause(store, &kernel.clock, &kind.into(), until, reason, actor).await;
        kernel.pauses.outdate();
        if let Ok(Paused { kind, .. }) = &paused {
            tracing::info!(%kind, actor = self.actor.name(), reason, "a kind is paused");
        }
        paused
    }

    /// Lets the tasks of a paused kind run again, those that are due at once; says whether it was paused.
    pub async fn resume(&self, kind: impl Into<Kind>) -> Result<bool, Error> {
        let (kernel, kind) = (&self.kernel, kind.into());
        let store = (&*kernel.store, &*kernel.time);
        let resumed = paused::resume(store, &kind, self.note(None, "resumed", None)).await;
        kernel.pauses.outdate();
        if matches!(resumed, Ok(true)) {
            tracing::info!(%kind, actor = self.actor.name(), "a kind is resumed");
        }
        resumed
    }

    /// The kinds that are paused, by name.
    pub async fn paused(&self) -> Result<Vec<Paused>, Error> {
        self.kernel.pauses.all(&self.kernel).await
    }
}
