//! Sends probes through levels and waits for them.

use std::sync::Arc;
use std::time::Duration;

use delayline::Error;
use delayline::backend::Backend;
use delayline::delay::Level;

use super::flights::{Flight, Flights};
use super::lateness::Probed;
use super::progress::Progress;

/// How long sending takes at the least, so that the probes meet a broker at all moments of its rounds.
const SPREAD: Duration = Duration::from_secs(2);
/// How many probes are sent in a second at the most, through all levels together: far below what a broker can take, as
/// otherwise they would measure each other.
const MOST_PER_SECOND: usize = 1_000;

/// What to send.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    pub(crate) levels: &'a [Level],
    /// Through each of them.
    pub(crate) count: usize,
    /// A level to send this many messages through before, and wait for them: the consumer is then known to be there.
    pub(crate) warm_up: Option<(Level, usize)>,
}

impl Order<'_> {
    fn total(&self) -> usize {
        self.levels.len() * self.count
    }

    /// Returns how many are sent in a second through each level.
    pub(crate) fn pace(&self) -> f64 {
        self.count as f64 / self.spread().as_secs_f64()
    }

    /// Returns how long probes are sent.
    fn spread(&self) -> Duration {
        SPREAD.max(Duration::from_secs_f64(
            self.total() as f64 / MOST_PER_SECOND as f64,
        ))
    }
}

/// Sends probes through all levels at the same time, and returns their outcomes, level by level.
///
/// An error only if nothing can be received. Probes that cannot be sent, and those that do not arrive, are in the
/// result.
pub(crate) async fn probe(
    backend: Arc<dyn Backend>,
    order: &Order<'_>,
    mut report: impl FnMut(Progress),
) -> Result<Vec<Probed>, Error> {
    if let Some((level, count)) = order.warm_up {
        report(Progress::Warming);
        let at_once = (0..count).map(|_| Flight::new(level, Duration::ZERO));
        Flights::new(at_once.collect()).fly(&backend, |_| {}).await?;
    }
    let mut flights = Flights::new(schedule(order));
    let flown = flights.fly(&backend, &mut report).await;
    report(Progress::Ended);
    flown?;
    Ok(flights.by_level(order.levels))
}

/// Plans the probes of all levels, by the time at which to send them.
///
/// Each level has one in each of as many equal spans of time, at a random moment in it: equal steps might be those of
/// the broker, and then all would meet it at the same moment of its rounds.
fn schedule(order: &Order<'_>) -> Vec<Flight> {
    let span = order.spread().div_f64(order.count as f64);
    let mut flights = Vec::with_capacity(order.total());
    for slot in 0..order.count {
        for &level in order.levels {
            flights.push(Flight::new(level, span.mul_f64(slot as f64 + fastrand::f64())));
        }
    }
    flights.sort_by_key(|flight| flight.at);
    flights
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use delayline::backend::{Arrival, Delays, Departure, LevelsBackend, SendError, Wake};
    use delayline::delay::LevelTable;
    use tokio::time::Instant;

    use super::*;

    fn levels(table: &str) -> (LevelTable, Vec<Level>) {
        let table: LevelTable = table.parse().unwrap();
        let levels = table.levels().collect();
        (table, levels)
    }

    #[tokio::test(start_paused = true)]
    async fn probes_through_levels_that_are_looked_at_every_100_ms_are_that_late() {
        let (table, levels) = levels("1s 5s");
        let order = Order {
            levels: &levels,
            count: 200,
            warm_up: Some((levels[0], 16)),
        };
        let begun = Instant::now();
        let backend = Arc::new(LevelsBackend::new(table));
        let probed = probe(backend, &order, |_| {}).await.unwrap();
        assert_eq!(probed.len(), 2);
        for (probed, level) in probed.iter().zip(&levels) {
            assert_eq!((probed.level, probed.sent, probed.late.len()), (*level, 200, 200));
            assert_eq!((probed.unsent, probed.doubled, probed.lost()), (0, 0, 0));
            let [half, most] = [50, 100].map(|percent| probed.percentile(percent).unwrap());
            assert!(
                (30..=70).contains(&half) && (90..=110).contains(&most),
                "{half} {most}"
            );
        }
        // The first messages, the sending, the longest level: and it waits for nothing more. The last probe is sent in
        // the last 10 ms of the sending, and each level may be checked up to 100 ms later.
        let took = begun.elapsed().as_millis();
        let least = 1_000 + 2_000 - 10 + 5_000;
        assert!((least..=least + 250).contains(&took), "{took} ms");
    }

    /// A backend that loses, doubles, hastens, refuses, and refuses at first.
    #[derive(Debug)]
    struct Odd(LevelsBackend);

    #[async_trait::async_trait]
    impl Backend for Odd {
        fn name(&self) -> &'static str {
            "odd"
        }

        fn delays(&self) -> Delays {
            self.0.delays()
        }

        async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
            let mut batch = batch.to_vec();
            let place = batch[0].wake.id.as_bytes()[15];
            match place {
                0 => return Ok(()),
                1 => return Err(refused()),
                5 if batch[0].wake.version < 3 => return Err(refused()),
                2 => {
                    // It is sent, and the sender does not learn it.
                    self.0.send(&batch).await?;
                    let cause = Error::Backend {
                        backend: "odd",
                        transient: true,
                        source: "not confirmed".into(),
                    };
                    return Err(SendError::all(1, cause));
                }
                3 => batch.push(batch[0].clone()),
                4 => batch[0].delay = Duration::from_secs(1),
                _ => {}
            }
            self.0.send(&batch).await
        }

        async fn remove(&self, _: &[Wake]) -> Result<(), Error> {
            Ok(())
        }

        async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
            self.0.receive(max).await
        }

        async fn acknowledge(&self, arrivals: Vec<Arrival>) {
            self.0.acknowledge(arrivals).await;
        }

        async fn health(&self) -> Result<(), Error> {
            Ok(())
        }

        async fn close(&self) -> Result<(), Error> {
            self.0.close().await
        }
    }

    fn refused() -> SendError {
        SendError::all(1, "".parse::<LevelTable>().unwrap_err())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_lost_refused_doubled_or_early_is_told() {
        let (table, levels) = levels("1s 2s");
        let order = Order {
            levels: &levels[1..],
            count: 7,
            warm_up: None,
        };
        let mut last = None;
        let backend = Arc::new(Odd(LevelsBackend::new(table)));
        let probed = probe(backend, &order, |progress| last = Some(progress))
            .await
            .unwrap();
        let [probed] = &probed[..] else {
            panic!("{probed:?}")
        };
        assert_eq!((probed.sent, probed.unsent, probed.again), (6, 1, 3));
        assert_eq!((probed.late.len(), probed.lost(), probed.doubled), (5, 1, 1));
        assert!(probed.cause.is_some());
        // The one that was sent again is late by its last try only.
        let [early, late @ ..] = &probed.late[..] else {
            panic!("{probed:?}")
        };
        assert!((-1_000..-890).contains(early), "{:?}", probed.late);
        assert!(
            late.iter().all(|late| (0..=110).contains(late)),
            "{:?}",
            probed.late
        );
        assert!(matches!(last, Some(Progress::Ended)));
    }

    #[test]
    fn the_pace_is_even_and_bounded() {
        let (_, levels) = levels("1s 5s 10s");
        for (count, seconds) in [(1, 2.0), (200, 2.0), (100_000, 300.0)] {
            let order = Order {
                levels: &levels,
                count,
                warm_up: None,
            };
            let flights = schedule(&order);
            assert_eq!(flights.len(), 3 * count);
            assert!(flights.is_sorted_by_key(|flight| flight.at));
            let span = seconds / count as f64;
            for &level in &levels {
                let flights = flights.iter().filter(|flight| flight.level == level);
                for (slot, flight) in flights.enumerate() {
                    let slots = flight.at.as_secs_f64() / span;
                    assert!(
                        (slots - slot as f64 - 0.5).abs() < 0.501,
                        "{slot}: {:?}",
                        flight.at
                    );
                }
            }
        }
    }
}
