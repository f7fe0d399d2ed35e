//! Follows probes from when they are sent until they arrive.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use delayline::backend::{Arrival, Backend, Departure, SendError, Wake};
use delayline::delay::Level;
use delayline::{Error, TaskId};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until};

use super::lateness::Probed;
use super::progress::Progress;

/// How long after the last one was due probes count as lost.
const DEADLINE: Duration = Duration::from_secs(10);
/// How often an unconfirmed probe is sent, and how long after each failure.
const TRIES: usize = 5;
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How many arrivals are taken at once.
const BATCH: usize = 1_000;
/// How often progress is reported.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// A probe in flight, or about to be.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) level: Level,
    /// When it is to be sent, from the beginning.
    pub(super) at: Duration,
    /// When each try to send it was begun.
    asked: Vec<Instant>,
    /// Whether the last try has failed, as far as is known: it may arrive all the same.
    failed: bool,
    /// Whether it will not arrive.
    refused: bool,
    /// How late it arrived, in ms, and by which try.
    late: Option<(i64, u64)>,
    doubled: bool,
}

impl Flight {
    pub(super) fn new(level: Level, at: Duration) -> Self {
        Self {
            level,
            at,
            asked: Vec::new(),
            failed: false,
            refused: false,
            late: None,
            doubled: false,
        }
    }
}

/// Probes in flight. Each is known by its place, and by a mark that those of other rounds do not have.
pub(super) struct Flights {
    mark: [u8; 8],
    flights: Vec<Flight>,
    /// The cause of the first failed try of a level.
    causes: BTreeMap<usize, Error>,
    /// Which to send once more, and when.
    again: VecDeque<(Instant, usize)>,
    /// How many are not in flight any more.
    landed: usize,
    last_due: Instant,
}

impl Flights {
    /// Takes flights in the order of their times.
    pub(super) fn new(flights: Vec<Flight>) -> Self {
        Self {
            mark: fastrand::u64(..).to_be_bytes(),
            flights,
            causes: BTreeMap::new(),
            again: VecDeque::new(),
            landed: 0,
            last_due: Instant::now(),
        }
    }

    /// Sends all of them, each at its time, and waits until none is in flight or those that are have no more time.
    pub(super) async fn fly(
        &mut self,
        backend: &Arc<dyn Backend>,
        mut report: impl FnMut(Progress),
    ) -> Result<(), Error> {
        let begun = Instant::now();
        let total = self.flights.len();
        let ends = self
            .flights
            .iter()
            .map(|flight| begun + flight.at + flight.level.delay);
        let end = ends.max().unwrap_or(begun);
        let mut sent = 0;
        let mut sending = JoinSet::new();
        let mut telling = interval(REPORT_EVERY);
        while self.landed < total {
            let first = self.flights.get(sent).map(|flight| (begun + flight.at, sent));
            let next = first.into_iter().chain(self.again.front().copied()).min();
            tokio::select! {
                biased;
                arrivals = backend.receive(BATCH) => {
                    let (now, arrivals) = (Instant::now(), arrivals?);
                    arrivals.iter().for_each(|arrival| self.land(arrival, now));
                    backend.acknowledge(arrivals).await;
                }
                Some(outcome) = sending.join_next(), if !sending.is_empty() => {
                    // One that panicked does not arrive: it counts as lost.
                    if let Ok((place, Err(SendError { cause, .. }))) = outcome {
                        self.fail(place, cause);
                    }
                }
                () = sleep_until(next.map_or(self.last_due + DEADLINE, |(at, _)| at)) => {
                    let Some((_, place)) = next else { break };
                    if place == sent {
                        sent += 1;
                    } else {
                        self.again.pop_front();
                    }
                    if let Some(departure) = self.depart(place) {
                        let backend = backend.clone();
                        sending.spawn(async move { (place, backend.send(&[departure]).await) });
                    }
                }
                _ = telling.tick() => {
                    report(Progress::Probing {
                        sent,
                        arrived: self.landed,
                        total,
                        left: end.saturating_duration_since(Instant::now()),
                    });
                }
            }
        }
        Ok(())
    }

    /// Returns what to send; nothing if it has arrived by an earlier try.
    fn depart(&mut self, place: usize) -> Option<Departure> {
        let now = Instant::now();
        let flight = &mut self.flights[place];
        if flight.late.is_some() {
            return None;
        }
        flight.asked.push(now);
        self.last_due = self.last_due.max(now + flight.level.delay);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.mark);
        id[8..].copy_from_slice(&(place as u64).to_be_bytes());
        Some(Departure {
            wake: Wake {
                id: TaskId::from_bytes(id),
                kind: "delayline.probe".into(),
                // Distinguishes the tries.
                version: flight.asked.len() as u64,
            },
            delay: flight.level.delay,
        })
    }

    fn fail(&mut self, place: usize, cause: Error) {
        let flight = &mut self.flights[place];
        if flight.asked.len() < TRIES {
            self.again.push_back((Instant::now() + AGAIN_AFTER, place));
        } else {
            flight.failed = true;
            flight.refused = !cause.is_transient();
            if flight.refused && flight.late.is_none() {
                self.landed += 1;
            }
        }
        self.causes.entry(flight.level.number).or_insert(cause);
    }

    fn land(&mut self, arrival: &Arrival, now: Instant) {
        let Wake { id, version, .. } = &arrival.wake;
        let (mark, place) = id.as_bytes().split_at(8);
        let place = place
            .iter()
            .fold(0, |place, &byte| (place << 8) | usize::from(byte));
        // Anything else is of a round before.
        let Some(flight) = self.flights.get_mut(place).filter(|_| mark == self.mark) else {
            return;
        };
        let asked = usize::try_from(*version)
            .ok()
            .and_then(|version| version.checked_sub(1));
        let Some(&asked) = asked.and_then(|at| flight.asked.get(at)) else {
            return;
        };
        if let Some((_, by)) = flight.late {
            flight.doubled |= by == *version;
            return;
        }
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let took = micros(now.saturating_duration_since(asked));
        let late = took.saturating_sub(micros(flight.level.delay)).div_euclid(1_000);
        flight.late = Some((late, *version));
        if !flight.refused {
            self.landed += 1;
        }
    }

    pub(super) fn by_level(mut self, levels: &[Level]) -> Vec<Probed> {
        let probed = levels.iter().map(|&level| {
            let flights = self.flights.iter().filter(|flight| flight.level == level);
            let unsent = |flight: &Flight| flight.failed && flight.late.is_none();
            let mut late: Vec<_> = flights
                .clone()
                .filter_map(|flight| flight.late)
                .map(|(late, _)| late)
                .collect();
            late.sort_unstable();
            Probed {
                level,
                sent: flights.clone().filter(|flight| !unsent(flight)).count(),
                unsent: flights.clone().filter(|flight| unsent(flight)).count(),
                again: flights.clone().filter(|flight| flight.asked.len() > 1).count(),
                cause: self.causes.remove(&level.number),
                late,
                doubled: flights.filter(|flight| flight.doubled).count(),
            }
        });
        probed.collect()
    }
}
