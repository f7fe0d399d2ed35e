//! Both sides in turns.

use super::figure::{Line, Measured};
use super::side::Place;
use super::workload::{Figure, Workload};
use super::{Error, Order, wheel, work};

/// Measures both sides of a workload in turns, each on tables or keys of its own.
pub(crate) async fn compare<P: Place>(
    place: &P,
    workload: Workload,
    order: &Order,
) -> Result<Vec<Line>, Error> {
    let tasks = workload.tasks(order.tasks);
    let limit = async || {
        let limit = limit(place, workload, tasks).await?;
        place.clean().await?;
        Ok(limit)
    };
    let ours = async || {
        let ours = ours(place, workload, tasks).await?;
        place.clean().await?;
        Ok(ours)
    };
    let runs = Runs::in_turns(order, place.name(), workload, limit, ours).await?;
    Ok(runs.lines(workload, workload.figures(place.is_redis()), place.name()))
}

/// The limit of a workload; none where the limit is that nothing is done.
async fn limit<P: Place>(
    place: &P,
    workload: Workload,
    tasks: usize,
) -> Result<Option<Vec<Measured>>, Error> {
    let bare = async || place.limit().await;
    let few = async || place.ours().await;
    let measured = match workload {
        Workload::W5 => return Ok(None),
        Workload::W4 => place.memory_of_limit(tasks).await?,
        // Beside the library itself with fewer.
        Workload::W2L => work::measure(workload, tasks.div_ceil(10), &few).await?,
        _ => work::measure(workload, tasks, &bare).await?,
    };
    Ok(Some(measured))
}

async fn ours<P: Place>(place: &P, workload: Workload, tasks: usize) -> Result<Vec<Measured>, Error> {
    match workload {
        Workload::W4 => place.memory(tasks).await,
        Workload::W5 => place.idle(tasks).await,
        _ => work::measure(workload, tasks, &async || place.ours().await).await,
    }
}

/// Timers in the process.
pub(crate) async fn timers(order: &Order) -> Result<Vec<Line>, Error> {
    const NAME: &str = "in process";
    let timers = Workload::W7.tasks(order.tasks);
    let limit = async || wheel::limit(timers).map(Some);
    let ours = async || wheel::ours(timers).await;
    let runs = Runs::in_turns(order, NAME, Workload::W7, limit, ours).await?;
    Ok(runs.lines(Workload::W7, Workload::W7.figures(false), NAME))
}

/// What was measured in all runs of each side, in the order of the figures.
#[derive(Default)]
pub(crate) struct Runs {
    ours: Vec<Vec<Measured>>,
    limits: Vec<Vec<Measured>>,
}

impl Runs {
    /// Measures both sides in turns, as often as is wanted; no limit where it is that nothing is done.
    pub(crate) async fn in_turns(
        order: &Order,
        server: &str,
        workload: Workload,
        limit: impl AsyncFn() -> Result<Option<Vec<Measured>>, Error>,
        ours: impl AsyncFn() -> Result<Vec<Measured>, Error>,
    ) -> Result<Self, Error> {
        let mut runs = Self::default();
        for run in 0..order.runs {
            order.tell(server, workload, "the limit", run);
            runs.limits.extend(limit().await?);
            order.tell(server, workload, "delayline", run);
            runs.ours.push(ours().await?);
            order.bar.inc(1);
        }
        Ok(runs)
    }

    pub(crate) fn lines(&self, workload: Workload, figures: Vec<Figure>, place: &'static str) -> Vec<Line> {
        let of = |runs: &[Vec<Measured>], at: usize| -> Vec<Measured> {
            runs.iter().filter_map(|run| run.get(at).cloned()).collect()
        };
        let line = |(at, figure)| Line::of(workload, figure, place, of(&self.ours, at), of(&self.limits, at));
        figures.into_iter().enumerate().filter_map(line).collect()
    }
}
