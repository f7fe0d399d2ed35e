//! Records when tasks were to start, and when they did.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Error;
use super::figure::Measured;
use super::side::{Item, Side};

/// Counts of what must not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Not written, not changed, or not done.
    pub(crate) lost: usize,
    /// Started more than once.
    pub(crate) twice: usize,
    /// Started before its time.
    pub(crate) early: usize,
}

impl Faults {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            lost: self.lost + other.lost,
            twice: self.twice + other.twice,
            early: self.early + other.early,
        }
    }
}

/// The time here, in µs since 1970.
pub(crate) fn now_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// When each task is due, how often it has started and how late.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// By how much the clock of the server is ahead of the one here, and by how much that may be wrong; in µs.
    ahead: i64,
    doubt: i64,
    /// When the first is due, and the time between one and the next; in ms.
    first: i64,
    apart: i64,
    starts: Vec<AtomicU32>,
    /// Of the first start, in µs.
    late: Vec<AtomicI64>,
    /// When the last one had ended, in µs; 0 before.
    ended: AtomicI64,
}

impl Ledger {
    /// Makes a ledger whose first task is due in `lead` by the clock of the side's server.
    pub(crate) async fn new(
        side: &dyn Side,
        tasks: usize,
        lead: Duration,
        apart: i64,
    ) -> Result<Self, Error> {
        // Not by its first answer, which may have to wait for a connection.
        side.now().await?;
        let (asked, said) = (now_micros(), side.now().await?);
        let answered = now_micros();
        Ok(Self::by_answer(asked, answered, said, tasks, lead, apart))
    }

    /// Estimates the clock by a server's answer between two moments here. A difference that may be zero counts as zero.
    fn by_answer(asked: i64, answered: i64, said: i64, tasks: usize, lead: Duration, apart: i64) -> Self {
        let ahead = said * 1_000 + 500 - asked.midpoint(answered);
        let doubt = (answered - asked) / 2 + 1_000;
        Self {
            ahead: if ahead.abs() <= doubt { 0 } else { ahead },
            doubt,
            first: said + lead.as_millis() as i64,
            apart,
            starts: (0..tasks).map(|_| AtomicU32::new(0)).collect(),
            late: (0..tasks).map(|_| AtomicI64::new(0)).collect(),
            ended: AtomicI64::new(0),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns a task to write.
    pub(crate) fn item(&self, number: usize) -> Item {
        Item {
            number,
            due: self.first + number as i64 * self.apart,
        }
    }

    /// Returns the time by which tasks are due, in µs.
    pub(crate) fn now(&self) -> i64 {
        now_micros() + self.ahead
    }

    /// Records that a task that was due at this time, in ms, has started.
    pub(crate) fn start(&self, number: usize, due: i64) {
        // Another number is of no task of this run.
        if let (Some(starts), Some(late)) = (self.starts.get(number), self.late.get(number))
            && starts.fetch_add(1, Ordering::Relaxed) == 0
        {
            late.store(self.now() - due * 1_000, Ordering::Relaxed);
        }
    }

    /// Records that all have ended, or the others are not waited for.
    pub(crate) fn end(&self) {
        self.ended.store(self.now(), Ordering::Relaxed);
    }

    /// Returns the measurement, where so many ended.
    pub(crate) fn measured(&self, ended: usize) -> Measured {
        let mut faults = Faults::default();
        let mut late = Vec::with_capacity(self.len());
        for (starts, micros) in self.starts.iter().zip(&self.late) {
            let (starts, micros) = (starts.load(Ordering::Relaxed), micros.load(Ordering::Relaxed));
            if starts > 0 {
                late.push(micros.max(0) as f64 / 1e3);
                faults.twice += starts as usize - 1;
                faults.early += usize::from(micros < -self.doubt);
            }
        }
        faults.lost = self.len() - ended.min(late.len());
        late.sort_by(f64::total_cmp);
        Measured {
            tasks: self.len(),
            seconds: (self.ended.load(Ordering::Relaxed) - self.first * 1_000) as f64 / 1e6,
            late,
            faults,
            ..Measured::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_twice_or_early_is_counted() {
        let now = now_micros() / 1_000;
        let ledger = Ledger::by_answer(now * 1_000, now * 1_000, now, 4, Duration::ZERO, 0);
        for (number, due) in [
            (0, now - 5),
            (1, now - 5),
            (1, now - 5),
            (2, now + 60_000),
            (9, now),
        ] {
            ledger.start(number, due);
        }
        let measured = ledger.measured(4);
        let expected = Faults {
            lost: 1,
            twice: 1,
            early: 1,
        };
        assert_eq!(measured.faults, expected);
        assert_eq!(ledger.measured(2).faults.lost, 2);
        let late = measured.late;
        assert!(late.len() == 3 && late[0] == 0.0 && late[1] >= 5.0, "{late:?}");
    }

    #[test]
    fn a_clock_that_may_be_right_is_right() {
        let ledger = |said| Ledger::by_answer(1_000, 3_000, said, 1, Duration::from_secs(1), 2);
        assert_eq!(ledger(2).ahead, 0);
        let other = ledger(99);
        assert_eq!((other.ahead, other.doubt), (97_500, 2_000));
        assert_eq!((other.item(0).due, other.item(3).due), (1_099, 1_105));
    }
}
