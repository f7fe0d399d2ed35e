//! What was to start when, and what did.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::Error;

/// What must not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Faults {
    /// Not written, not changed, or not done.
    pub(crate) lost: usize,
    /// Started more than once, or there once more.
    pub(crate) twice: usize,
    /// Started before its time.
    pub(crate) early: usize,
}

impl Faults {
    pub(crate) fn lost(lost: usize) -> Self {
        Self {
            lost,
            ..Self::default()
        }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            lost: self.lost + other.lost,
            twice: self.twice + other.twice,
            early: self.early + other.early,
        }
    }

    pub(crate) fn sum(self) -> usize {
        self.lost + self.twice + self.early
    }
}

/// The time of a server, as far as it can be known from here, in µs since 1970.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerClock {
    /// What it is ahead of the clock here.
    ahead: i64,
    /// By how much that may be wrong.
    doubt: i64,
}

impl ServerClock {
    /// By the best of a few answers of `ask`, each in µs and exact to a ms.
    pub(crate) async fn asked<F>(ask: impl Fn() -> F) -> Result<Self, Error>
    where
        F: Future<Output = Result<i64, Error>>,
    {
        let mut best: Option<Self> = None;
        for _ in 0..5 {
            let asked = now_micros();
            let said = ask().await?;
            let found = Self::by_answer(asked, now_micros(), said, 1_000);
            best = Some(best.map_or(found, |best| best.or(found)));
        }
        best.ok_or_else(|| "no clock was asked".into())
    }

    /// By what a server answered, in µs and exact to `grain`, between two moments here. A difference that may be none is
    /// none.
    fn by_answer(asked: i64, answered: i64, said: i64, grain: i64) -> Self {
        let ahead = said + grain / 2 - asked.midpoint(answered);
        let doubt = (answered - asked) / 2 + grain;
        let ahead = if ahead.abs() <= doubt { 0 } else { ahead };
        Self { ahead, doubt }
    }

    /// The one that knows more.
    fn or(self, other: Self) -> Self {
        if self.doubt <= other.doubt { self } else { other }
    }

    pub(crate) fn now(self) -> i64 {
        now_micros() + self.ahead
    }

    /// Whether so many µs after its time, negative before it, is surely before it.
    pub(crate) fn is_early(self, late: i64) -> bool {
        late < -self.doubt
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
    clock: ServerClock,
    /// By the number of the task, in ms since 1970.
    due: Vec<AtomicI64>,
    starts: Vec<AtomicU32>,
    /// Of the first start, in µs.
    late: Vec<AtomicI64>,
    started: AtomicU32,
    /// When the last one had ended, in µs; 0 before.
    ended: AtomicI64,
}

impl Ledger {
    pub(crate) fn new(clock: ServerClock, due: Vec<i64>) -> Self {
        Self {
            clock,
            starts: due.iter().map(|_| AtomicU32::new(0)).collect(),
            late: due.iter().map(|_| AtomicI64::new(0)).collect(),
            due: due.into_iter().map(AtomicI64::new).collect(),
            started: AtomicU32::new(0),
            ended: AtomicI64::new(0),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }

    /// When a task is due, in ms.
    pub(crate) fn due(&self, number: usize) -> i64 {
        self.due[number].load(Ordering::Relaxed)
    }

    /// A task that has not started is due at another time, in ms.
    #[cfg(feature = "rocketmq")]
    pub(crate) fn put_off(&self, number: usize, due: i64) {
        self.due[number].store(due, Ordering::Relaxed);
    }

    /// The time by which tasks are due, in µs.
    pub(crate) fn now(&self) -> i64 {
        self.clock.now()
    }

    /// A task has started.
    pub(crate) fn start(&self, number: usize) {
        let now = self.now();
        let (Some(due), Some(starts), Some(late)) = (
            self.due.get(number),
            self.starts.get(number),
            self.late.get(number),
        ) else {
            // One of somebody else's: all that were written are here.
            return;
        };
        if starts.fetch_add(1, Ordering::Relaxed) == 0 {
            late.store(now - due.load(Ordering::Relaxed) * 1_000, Ordering::Relaxed);
            self.started.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many have started.
    pub(crate) fn started(&self) -> usize {
        self.started.load(Ordering::Relaxed) as usize
    }

    /// All have ended, or nobody waits for the others.
    pub(crate) fn end(&self) {
        self.ended.store(self.now(), Ordering::Relaxed);
    }

    /// How many seconds it took from a moment in ms on until all had ended.
    pub(crate) fn seconds_from(&self, begun: i64) -> f64 {
        (self.ended.load(Ordering::Relaxed) - begun * 1_000) as f64 / 1e6
    }

    /// How late each was that has started, in ms, ascending.
    pub(crate) fn late(&self) -> Vec<f64> {
        let started = self.starts.iter().zip(&self.late);
        let mut late: Vec<f64> = started
            .filter(|(starts, _)| starts.load(Ordering::Relaxed) > 0)
            .map(|(_, late)| late.load(Ordering::Relaxed).max(0) as f64 / 1e3)
            .collect();
        late.sort_by(f64::total_cmp);
        late
    }

    /// What went wrong, where so many ended.
    pub(crate) fn faults(&self, ended: usize) -> Faults {
        let mut faults = Faults::lost(self.len().saturating_sub(ended.min(self.started())));
        for (starts, late) in self.starts.iter().zip(&self.late) {
            let starts = starts.load(Ordering::Relaxed) as usize;
            faults.twice += starts.saturating_sub(1);
            faults.early += usize::from(self.clock.is_early(late.load(Ordering::Relaxed)));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_twice_or_early_is_counted() {
        let now = now_micros() / 1_000;
        let ledger = Ledger::new(ServerClock::default(), vec![now - 5, now - 5, now + 60_000, now]);
        for number in [0, 1, 1, 2, 9] {
            ledger.start(number);
        }
        let expected = Faults {
            lost: 1,
            twice: 1,
            early: 1,
        };
        assert_eq!(ledger.faults(4), expected);
        assert_eq!(ledger.faults(2).lost, 2);
        let late = ledger.late();
        assert_eq!(late.len(), 3);
        assert!(late[0] == 0.0 && late[1] >= 5.0, "{late:?}");
    }

    #[test]
    fn a_clock_that_may_be_right_is_right() {
        let same = ServerClock::by_answer(1_000, 3_000, 2_900, 1_000);
        assert_eq!(same.ahead, 0);
        let other = ServerClock::by_answer(1_000, 3_000, 99_500, 1_000);
        assert_eq!((other.ahead, other.doubt), (98_000, 2_000));
        assert_eq!(same.or(other).ahead, 0);
    }
}
