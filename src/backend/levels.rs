//! Carries wake-ups in this process as a broker with a level table does.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::in_process::{InProcess, Queue, next_millis};
use super::{Arrival, Backend, Delays, Departure, Reach, SendError};
use crate::backend::Wake;
use crate::clock::Clock;
use crate::delay::LevelTable;
use crate::{Error, defaults};

/// How often a RocketMQ broker checks each level, in ms (`ScheduleMessageService.DELAY_FOR_A_WHILE`).
const LOOK_EVERY: u64 = 100;

/// Carries wake-ups in this process as a RocketMQ broker with a level table does: for tests and simulations, and to see
/// what a table costs without a broker.
///
/// Each level is first in, first out, and is checked every 100 ms, at moments of its own: so each wake-up is up to 100
/// ms late. Nothing can be removed. Unlike a broker's, its contents are lost when the process ends.
pub struct LevelsBackend {
    table: LevelTable,
    held: InProcess<Levels>,
}

impl LevelsBackend {
    /// Makes an empty backend with the levels of `table`.
    pub fn new(table: LevelTable) -> Self {
        Self::with_clock(table, Clock::system())
    }

    /// Makes an empty backend with the levels of `table` that uses `clock`.
    pub fn with_clock(table: LevelTable, clock: Clock) -> Self {
        let levels = Levels::new(&table, &clock);
        Self {
            table,
            held: InProcess::new("levels", clock, levels),
        }
    }

    fn refused(&self, delay: Duration) -> Error {
        let allowed = format!("allowed are the levels {}", self.table);
        Error::invalid("delay", format_args!("{delay:?}"), allowed)
    }
}

impl fmt::Debug for LevelsBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LevelsBackend")
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for LevelsBackend {
    fn name(&self) -> &'static str {
        "levels"
    }

    fn delays(&self) -> Delays {
        Delays {
            reach: Reach::Levels(self.table.clone()),
            usual_lateness: defaults::LEVELS_LATENESS,
        }
    }

    /// Refuses, one by one, those whose delay is no level.
    async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        let mut failed = Vec::new();
        self.held.send(batch.len(), |levels, now| {
            for (at, Departure { wake, delay }) in batch.iter().enumerate() {
                match self.table.level_of(*delay) {
                    Some(level) => levels.put(level.number, wake, next_millis(now.saturating_add(*delay))),
                    None => failed.push(at),
                }
            }
        })?;
        match failed.first() {
            None => Ok(()),
            Some(&first) => Err(SendError {
                cause: self.refused(batch[first].delay),
                failed,
            }),
        }
    }

    /// Does nothing, like a broker.
    async fn remove(&self, _wakes: &[Wake]) -> Result<(), Error> {
        self.held.health()
    }

    async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        self.held.receive(max).await
    }

    async fn acknowledge(&self, _arrivals: Vec<Arrival>) {}

    async fn health(&self) -> Result<(), Error> {
        self.held.health()
    }

    async fn close(&self) -> Result<(), Error> {
        self.held.close(Levels(Vec::new()));
        Ok(())
    }
}

/// The levels, in the broker's order.
struct Levels(Vec<Queued>);

/// One level.
struct Queued {
    /// It is checked this long after each multiple of [`LOOK_EVERY`].
    phase: u64,
    /// The wake-ups and their times. All have waited equally long, so the times ascend.
    wakes: VecDeque<(u64, Wake)>,
}

impl Levels {
    fn new(table: &LevelTable, clock: &Clock) -> Self {
        let level = |_| Queued {
            phase: clock.random_below(LOOK_EVERY),
            wakes: VecDeque::new(),
        };
        Self(table.levels().map(level).collect())
    }

    fn put(&mut self, number: usize, wake: &Wake, at: u64) {
        if let Some(level) = self.0.get_mut(number - 1) {
            level.wakes.push_back((at, wake.clone()));
        }
    }

    /// Finds the level whose next wake-up arrives first, and when.
    fn first(&mut self) -> Option<(u64, &mut Queued)> {
        self.0
            .iter_mut()
            .filter_map(|level| Some((level.next_look()?, level)))
            .min_by_key(|(look, _)| *look)
    }
}

impl Queued {
    /// Returns the first check that finds a wake-up due. Between two checks nothing happens, so the others can be
    /// skipped.
    fn next_look(&self) -> Option<u64> {
        let (at, _) = self.wakes.front()?;
        let after_phase = at.saturating_sub(self.phase);
        let looks = after_phase.div_ceil(LOOK_EVERY);
        Some(looks.saturating_mul(LOOK_EVERY).saturating_add(self.phase))
    }
}

impl Queue for Levels {
    fn take(&mut self, now: u64, max: usize, taken: &mut Vec<Wake>) {
        while taken.len() < max
            && let Some((look, level)) = self.first()
            && look <= now
        {
            taken.extend(level.wakes.pop_front().map(|(_, wake)| wake));
        }
    }

    fn next(&self) -> Option<u64> {
        self.0.iter().filter_map(Queued::next_look).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TaskId;

    fn departure(number: u8, seconds: u64) -> Departure {
        Departure {
            wake: Wake {
                id: TaskId::from_bytes([number; 16]),
                kind: "k".into(),
                version: 1,
            },
            delay: Duration::from_secs(seconds),
        }
    }

    fn backend() -> LevelsBackend {
        LevelsBackend::new("5s 1s 1s".parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn each_is_up_to_100_ms_late_and_those_of_a_level_keep_their_order() {
        let clock = Clock::system();
        for _ in 0..20 {
            let backend = backend();
            let start = clock.instant();
            let mut sent = Vec::new();
            for (at, seconds) in [5, 1, 1, 5, 1].into_iter().enumerate() {
                let departure = departure(at as u8, seconds);
                backend.send(std::slice::from_ref(&departure)).await.unwrap();
                sent.push((start.elapsed(), departure));
                clock.sleep(Duration::from_millis(70)).await;
            }
            sent.sort_by_key(|(_, departure)| departure.delay);
            for (at, departure) in sent {
                let arrivals = backend.receive(1).await.unwrap();
                assert_eq!(arrivals[0].wake, departure.wake);
                let late = start.elapsed().checked_sub(at + departure.delay).unwrap();
                assert!(late < Duration::from_millis(100), "{late:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_moments_of_a_look_are_the_levels_own_and_come_from_the_clock() {
        let mut lateness = std::collections::BTreeSet::new();
        for _ in 0..20 {
            let backend = backend();
            let start = tokio::time::Instant::now();
            backend.send(&[departure(1, 1)]).await.unwrap();
            backend.receive(1).await.unwrap();
            lateness.insert(start.elapsed());
        }
        assert!(lateness.len() > 5, "{lateness:?}");
    }

    #[tokio::test]
    async fn a_delay_that_is_no_level_is_refused_and_the_others_are_sent() {
        let backend = backend();
        let batch = [departure(1, 2), departure(2, 1), departure(3, 0), departure(4, 5)];
        let unsent = backend.send(&batch).await.unwrap_err();
        assert_eq!(unsent.failed, [0, 2]);
        assert_eq!(
            unsent.cause.to_string(),
            r#"delay is "2s": allowed are the levels 5s 1s 1s"#
        );
        assert!(!unsent.cause.is_transient());
        let held = backend
            .held
            .change(|levels, _| levels.0.iter().map(|level| level.wakes.len()).collect::<Vec<_>>())
            .unwrap();
        assert_eq!(held, [1, 1, 0]);
    }
}
