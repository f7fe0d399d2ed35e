//! What it costs that a store has many other tasks in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use delayline::Kind;
use delayline::store::Store;

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

/// The other tasks of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// That are not due for long.
    pub(crate) pending: usize,
    /// That are kept as history.
    pub(crate) finished: usize,
}

impl Others {
    pub(crate) fn are_none(self) -> bool {
        self == Self::default()
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
pub(crate) struct Crowd {
    store: Arc<dyn Store>,
    others: Others,
    next: AtomicUsize,
}

impl Crowd {
    /// In tables or under keys that `place` makes, and that stay until it is cleaned.
    pub(crate) async fn gather(place: &Named, others: Others, order: &Order) -> Result<Self, Error> {
        order.bar.set_message(format!("{}: filling", place.name()));
        let store = place.rows().await?;
        others.fill(Arc::clone(&store)).await?;
        let next = AtomicUsize::new(0);
        Ok(Self { store, others, next })
    }

    /// The library among them, with tasks of a kind that nobody else has.
    fn fresh(&self) -> Result<Ours, Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Ok(Ours::over(Arc::clone(&self.store))?.of_kind(Kind::from(format!("bench.{number}"))))
    }

    /// The library in turns without others, in tables or under keys that `place` makes, and among them.
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
        let ours = async || measure(workload, tasks, &async || self.fresh()).await;
        let runs = Runs::in_turns(order, place.name(), workload, limit, ours).await?;
        Ok(runs.lines(workload, self.figures(workload), place.name()))
    }

    /// Those of the workload, each as good as without the others or nearly so.
    fn figures(&self, workload: Workload) -> Vec<Figure> {
        let Others { pending, finished } = self.others;
        let among = |figure: Figure| Figure {
            what: format!("{}, among {pending} pending, {finished} finished", figure.what).into(),
            aim: match figure.unit {
                Unit::Rate => Aim::AtLeast(0.8),
                Unit::Time | Unit::Lateness | Unit::Bytes | Unit::Asked => Aim::AtMost(1.25),
            },
            ..figure
        };
        workload.figures(false).into_iter().map(among).collect()
    }
}
