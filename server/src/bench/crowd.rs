//! What it costs that a store has many other tasks in it, or that it is noted what happens to each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use delayline::Kind;
use delayline::store::{History, Store};

use super::compare::Runs;
use super::figure::Line;
use super::named::Named;
use super::ours::Ours;
use super::work::{filled_for_long, gone, measure};
use super::workload::{Aim, Figure, Unit, Workload};
use super::{Error, Order};

/// What is measured among others.
pub(crate) const WORKLOADS: [Workload; 4] = [Workload::W1, Workload::W2, Workload::W3, Workload::W6];
/// How many there are at the most that are cancelled next: of finished tasks no more are pending meanwhile.
const CANCELLED_AT_ONCE: usize = 100_000;

/// The other tasks of a store, and what is noted of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// That are not due for long.
    pub(crate) pending: usize,
    /// That are kept after their end.
    pub(crate) finished: usize,
    /// What is noted of those that are measured.
    pub(crate) history: History,
}

impl Others {
    pub(crate) fn are_none(self) -> bool {
        self == Self::default()
    }

    /// Whether there are other tasks.
    const fn are_tasks(self) -> bool {
        self.pending + self.finished > 0
    }

    /// Writes them into a store, under a kind of their own.
    async fn fill(self, store: Arc<dyn Store>) -> Result<(), Error> {
        let mut left = self.finished;
        while left > 0 {
            let next = left.min(CANCELLED_AT_ONCE);
            left -= next;
            // Of another kind each time, as of one kind a key is known once.
            let ours = Ours::over(Arc::clone(&store))?.of_kind(format!("finished.{left}").into());
            let (written, cancelled) = (filled_for_long(&ours, next).await?, gone(&ours, next).await?);
            if (written, cancelled) != (next, next) {
                return Err(
                    format!("of {next} tasks {written} were written and {cancelled} cancelled").into(),
                );
            }
            ours.scheduler.close().await?;
        }
        let ours = Ours::over(store)?.of_kind("pending".into());
        let written = filled_for_long(&ours, self.pending).await?;
        if written != self.pending {
            return Err(format!("of {} tasks {written} were written", self.pending).into());
        }
        Ok(ours.scheduler.close().await?)
    }
}

/// A store with others in it, filled once for all workloads.
pub(crate) struct Crowd<'a> {
    place: &'a Named,
    store: Arc<dyn Store>,
    others: Others,
    next: AtomicUsize,
}

impl<'a> Crowd<'a> {
    /// In tables or under keys that `place` makes, and that stay until it is cleaned.
    pub(crate) async fn gather(place: &'a Named, others: Others, order: &Order) -> Result<Self, Error> {
        order.bar.set_message(format!("{}: filling", place.name()));
        let store = place.rows().await?;
        others.fill(Arc::clone(&store)).await?;
        place.settle().await?;
        Ok(Self {
            place,
            store,
            others,
            next: AtomicUsize::new(0),
        })
    }

    /// The library among them, with tasks of a kind that nobody else has; where there are none, in tables or under keys of
    /// its own, as those that were measured before would be others.
    async fn fresh(&self) -> Result<Ours, Error> {
        let store = match self.others.are_tasks() {
            true => Arc::clone(&self.store),
            false => self.place.rows().await?,
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Ok(Ours::noting(store, self.others.history)?.of_kind(Kind::from(format!("bench.{number}"))))
    }

    /// The library in turns without any of it, in tables or under keys that `place` makes, and with it.
    pub(crate) async fn compare(
        &self,
        place: &Named,
        workload: Workload,
        order: &Order,
    ) -> Result<Vec<Line>, Error> {
        let tasks = workload.tasks(order.tasks);
        let limit = async || {
            let alone = async || Ours::over(place.rows().await?);
            let limit = measure(workload, tasks, &alone).await?;
            place.clean().await?;
            Ok(Some(limit))
        };
        let ours = async || measure(workload, tasks, &async || self.fresh().await).await;
        let runs = Runs::in_turns(order, place.name(), workload, limit, ours).await?;
        Ok(runs.lines(workload, self.figures(workload), place.name()))
    }

    /// Those of the workload, each as good as without the others or nearly so.
    fn figures(&self, workload: Workload) -> Vec<Figure> {
        let Others {
            pending,
            finished,
            history,
        } = self.others;
        let mut besides = String::new();
        if self.others.are_tasks() {
            besides = format!(", among {pending} pending, {finished} finished");
        }
        besides += match history {
            History::Off => "",
            History::Changes => ", with a history of changes",
            History::All => ", with a history of all",
        };
        // What size may cost, and what a history may.
        let (least, most) = match self.others.are_tasks() {
            true => (0.8, 1.25),
            false => (0.9, 1.1),
        };
        let among = |figure: Figure| Figure {
            what: format!("{}{besides}", figure.what).into(),
            aim: match figure.unit {
                Unit::Rate => Aim::AtLeast(least),
                Unit::Time | Unit::Lateness | Unit::Bytes | Unit::Asked => Aim::AtMost(most),
            },
            ..figure
        };
        workload.figures(false).into_iter().map(among).collect()
    }
}
