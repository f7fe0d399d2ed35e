//! What the store's clock says, without asking it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::clock::{Clock, Moment, instant_after};
use crate::store::{Stamped, Store, When};
use crate::task::timestamp::duration;
use crate::{Error, Timestamp};

/// How long after it was called a store is believed to have read its clock, at the most, if nothing else tells.
///
/// When between call and answer it did is not known. By the call, what is reckoned from it is early, and a wake-up that
/// is early costs its task a hop; by the answer it is late by the way back. So: by the answer, as long as that costs no
/// more than these few ms. And what a quick answer has said of the clock tells of slower ones when theirs was read.
pub(crate) const CLOCK_READ_WITHIN: Duration = Duration::from_millis(5);

/// Follows the store's clock from one answer of the store to the next, by the monotonic clock between them.
///
/// What it says decides nothing: it chooses the first route of a task, and the store decides by its own clock.
#[derive(Debug)]
pub(crate) struct StoreTime {
    clock: Clock,
    known: Mutex<Samples>,
}

#[derive(Debug, Default)]
struct Samples {
    last: Option<Last>,
    shown: Option<QuickSample>,
}

/// A moment at which the store's clock had surely reached a time: when a quick answer had come. Of several, that by which
/// it is furthest ahead, as its way back was the shortest.
#[derive(Clone, Copy, Debug)]
struct QuickSample {
    now: Timestamp,
    at: Instant,
}

/// The last answer.
#[derive(Clone, Copy, Debug)]
struct Last {
    reading: ClockSample,
    asked: Moment,
    answered: Moment,
}

/// The smallest difference between two times.
const TICK: Duration = Duration::from_millis(1);

/// For how long an answer is believed where a caller's time is reckoned from it; of two clocks one may be faster.
const BELIEVED_FOR: Duration = Duration::from_secs(10);

/// By how much the store's clock and this process's may part between two answers before the log warns.
const STEP: Duration = Duration::from_secs(5);

/// A time by the store's clock, and what is known of the moment at which it was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockSample {
    /// What the clock showed at some moment of the call.
    shown: Timestamp,
    /// That moment, as far as is believed.
    at: Instant,
    /// It was no later than this.
    answered: Instant,
    /// What the machine slept between call and answer, which the monotonic clock does not count. Whether that was before or
    /// after the store's clock was read is not known.
    slept: Duration,
}

impl StoreTime {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            known: Mutex::default(),
        }
    }

    /// Waits for the answer of the store, which is called now, and hears what that says of the time.
    pub(crate) async fn of<T>(
        &self,
        call: impl Future<Output = Result<Stamped<T>, Error>>,
    ) -> Result<Timed<T>, Error> {
        let asked = self.clock.moment();
        Ok(self.heard(&asked, call.await?))
    }

    /// The store, called at `asked`, has just answered.
    pub(crate) fn heard<T>(&self, asked: &Moment, stamped: Stamped<T>) -> Timed<T> {
        let Stamped { now, found } = stamped;
        let ClockSample { at, .. } = self.read(asked, now);
        Timed { now, at, found }
    }

    fn read(&self, asked: &Moment, now: Timestamp) -> ClockSample {
        let answered = self.clock.moment();
        let slept = asked.slept_until(&answered);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let reading = ClockSample {
            shown: now,
            at: QuickSample::place(&mut known.shown, asked.instant(), answered.instant(), now),
            answered: answered.instant(),
            slept,
        };
        let this = Last {
            reading,
            asked: *asked,
            answered,
        };
        if known
            .last
            .is_some_and(|last| last.asked.instant() > asked.instant())
        {
            // A late answer: what is known is newer, and may tell of a step of the clock that this one does not.
            return reading;
        }
        let last = known.last.replace(this);
        drop(known);
        if let Some(last) = last {
            let took = |call: &Last| call.asked.steadily_until(&call.answered);
            let allowed = STEP + took(&this) + took(&last);
            let passed = last.answered.steadily_until(&this.answered);
            let by = reading.latest().millis_since(last.reading.latest().after(passed));
            if by.unsigned_abs() > u64::try_from(allowed.as_millis()).unwrap_or(u64::MAX) {
                warn!(
                    by_ms = by,
                    "the clock of the store was stepped: by it tasks are due and leases end; what is due runs that much \
                     earlier (later, if it was stepped back), and claims may be lost"
                );
            }
        }
        reading
    }

    /// The last reading, as if the store had read its clock later by what this machine has slept since: the monotonic
    /// clock does not count that.
    fn last(&self) -> Option<ClockSample> {
        let last = self.known.lock().unwrap_or_else(PoisonError::into_inner).last?;
        let slept = last.answered.slept_until(&self.clock.moment());
        Some(ClockSample {
            shown: last.reading.shown.after(slept),
            ..last.reading
        })
    }

    /// The last reading; asks the store if it never answered yet, or not for long: its clock may have been stepped since.
    async fn last_or_ask(&self, store: &dyn Store) -> Result<ClockSample, Error> {
        let now = self.clock.instant();
        if let Some(last) = self.last()
            && now.saturating_duration_since(last.answered) < BELIEVED_FOR
        {
            return Ok(last);
        }
        self.ask(store).await
    }

    /// Has the store asked, if it has to be, before many things are done by its time.
    pub(crate) async fn know(&self, store: &dyn Store) -> Result<(), Error> {
        self.last_or_ask(store).await.map(drop)
    }

    /// Asks the store.
    pub(crate) async fn ask(&self, store: &dyn Store) -> Result<ClockSample, Error> {
        let asked = self.clock.moment();
        Ok(self.read(&asked, store.now().await?))
    }

    /// The time by the store's clock, as far as it is known; none if the store never answered yet.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        Some(self.last()?.now(self.clock.instant()))
    }

    /// The time that the store's clock has reached at least, at whatever moment of its last call it was read; none if the store
    /// never answered yet. What a pause or a table forbids until a time is allowed by this: by [`now`](Self::now) it would be
    /// too soon by what the machine has slept within that call.
    pub(crate) fn earliest(&self) -> Option<Timestamp> {
        Some(self.last()?.earliest(self.clock.instant()))
    }

    /// As if the store had answered just now; none if it never did yet.
    pub(crate) fn carried_on(&self) -> Option<Timed<()>> {
        let at = self.clock.instant();
        let now = self.last()?.now(at);
        Some(Timed { now, at, found: () })
    }

    /// How long until `due`, by the store's clock as far as it is known; asks the store if it never answered yet.
    pub(crate) async fn until(&self, due: When, store: &dyn Store) -> Result<Duration, Error> {
        match due {
            When::After(delay) => Ok(delay),
            When::At(time) => {
                let now = self.last_or_ask(store).await?.now(self.clock.instant());
                Ok(duration(time.millis_since(now)))
            }
        }
    }

    /// Whether `due` has passed by the store's clock, at whatever moment of its call the store read it; asks the store
    /// if it never answered yet.
    pub(crate) async fn has_passed(&self, due: Timestamp, store: &dyn Store) -> Result<bool, Error> {
        let earliest = self.last_or_ask(store).await?.earliest(self.clock.instant());
        Ok(due <= earliest)
    }
}

impl QuickSample {
    /// When between call and answer the store's clock showed `now`, as far as is believed.
    fn place(shown: &mut Option<Self>, asked: Instant, answered: Instant, now: Timestamp) -> Instant {
        let at = answered.min(asked + CLOCK_READ_WITHIN);
        let believed = shown.filter(|shown| answered.saturating_duration_since(shown.at) < BELIEVED_FOR);
        match believed.and_then(|shown| shown.moment_of(now)) {
            // What is said of a clock is less than a ms behind it.
            Some(moment) if moment + TICK > asked && moment <= answered => moment.max(asked),
            // The clock is further ahead than was known, and this says less of it than the next quick answer will.
            Some(moment) if moment > answered && at < answered => at,
            // Further ahead, or stepped back, or nothing is known any more.
            _ => {
                *shown = (at == answered).then_some(Self { now, at });
                at
            }
        }
    }

    fn moment_of(&self, now: Timestamp) -> Option<Instant> {
        let since = now.millis_since(self.now);
        let span = Duration::from_millis(since.unsigned_abs());
        match since {
            0.. => self.at.checked_add(span),
            _ => self.at.checked_sub(span),
        }
    }
}

impl ClockSample {
    /// What the store said in an answer that has just come.
    pub(crate) fn just_taken<T>(heard: &Timed<T>, answered: Instant) -> Self {
        Self {
            shown: heard.now,
            at: heard.at,
            answered,
            slept: Duration::ZERO,
        }
    }

    /// The time by the store's clock at `instant`, as far as is believed.
    pub(crate) fn now(&self, instant: Instant) -> Timestamp {
        self.latest().after(instant.saturating_duration_since(self.at))
    }

    /// It is this or later.
    pub(crate) fn earliest(&self, instant: Instant) -> Timestamp {
        self.shown.after(instant.saturating_duration_since(self.answered))
    }

    /// What the clock showed at some moment of the call.
    pub(crate) fn shown(&self) -> Timestamp {
        self.shown
    }

    /// What the clock showed when the call ended, if the machine slept only after it was read.
    fn latest(&self) -> Timestamp {
        self.shown.after(self.slept)
    }
}

/// What the store found, and when it read its clock, by both clocks.
#[derive(Debug)]
pub(crate) struct Timed<T> {
    /// By the store's clock.
    pub(crate) now: Timestamp,
    /// By the monotonic clock.
    pub(crate) at: Instant,
    pub(crate) found: T,
}

impl<T> Timed<T> {
    /// How long until `due`, when the store read its clock.
    pub(crate) fn until(&self, due: Timestamp) -> Duration {
        duration(due.millis_since(self.now))
    }

    /// The moment of `due` by the monotonic clock.
    pub(crate) fn instant_of(&self, due: Timestamp) -> Instant {
        instant_after(self.at, self.until(due))
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::logged::Logged;
    use crate::store::MemoryStore;

    #[tokio::test(start_paused = true)]
    async fn what_the_machine_has_slept_before_it_saw_an_answer_has_passed_in_the_store() {
        let clock = Clock::simulated(1);
        let time = StoreTime::new(clock.clone());
        let (asked, read) = (clock.moment(), Timestamp::from_millis(0));
        let slept = Duration::from_secs(50);
        clock.suspend(slept);
        tokio::time::sleep(slept).await;
        let heard = time.heard(&asked, Stamped { now: read, found: () });
        assert_eq!((heard.now, time.now()), (read, Some(read.after(slept))));
        // Or it was asked only after that.
        let store = MemoryStore::with_clock(clock);
        assert!(time.has_passed(read, &store).await.unwrap());
        assert!(!time.has_passed(read.after(slept), &store).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_machine_has_slept_since_the_last_answer_has_passed_in_the_store() {
        let clock = Clock::simulated(1);
        let store = MemoryStore::with_clock(Clock::simulated(2));
        let time = StoreTime::new(clock.clone());
        let due = time
            .ask(&store)
            .await
            .unwrap()
            .shown()
            .after(Duration::from_secs(60));
        let slept = Duration::from_secs(50);
        clock.suspend(slept);
        tokio::time::sleep(slept + Duration::from_secs(1)).await;
        let left = time.until(When::At(due), &store).await.unwrap();
        assert_eq!(left, Duration::from_secs(60) - slept - Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_of_the_stores_clock_is_told_and_what_merely_takes_long_is_none() {
        const SECOND: Duration = Duration::from_secs(1);
        let clock = Clock::simulated(1);
        let (logged, _listening) = Logged::by_thread(Level::WARN);
        // Two answers, ten seconds apart; by the store's clock, so many ms more.
        let warnings = async |more: i64, slept: Duration, took: Duration| {
            let time = StoreTime::new(clock.clone());
            let before = logged.count("the clock of the store was stepped");
            let start = Timestamp::from_millis(0);
            time.heard(
                &clock.moment(),
                Stamped {
                    now: start,
                    found: (),
                },
            );
            clock.suspend(slept);
            tokio::time::sleep(SECOND * 10 - took).await;
            let asked = clock.moment();
            tokio::time::sleep(took).await;
            let now = start.shifted(10_000 + more);
            time.heard(&asked, Stamped { now, found: () });
            logged.count("the clock of the store was stepped") - before
        };
        for (more, shown) in [
            (0, 0),
            (4_900, 0),
            (-4_900, 0),
            (5_100, 1),
            (-5_100, 1),
            (3_600_000, 1),
            (-3_600_000, 1),
        ] {
            assert_eq!(
                warnings(more, Duration::ZERO, Duration::ZERO).await,
                shown,
                "{more}"
            );
        }
        // The machine slept, and the store did not.
        assert_eq!(warnings(0, SECOND * 7, Duration::ZERO).await, 0);
        assert_eq!(warnings(-7_000, SECOND * 7, Duration::ZERO).await, 1);
        // When in its call the store has read its clock is not known.
        assert_eq!(warnings(-7_000, Duration::ZERO, SECOND * 8).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quick_answer_tells_when_a_slow_one_had_read_the_clock() {
        let clock = Clock::simulated(1);
        let time = StoreTime::new(clock.clone());
        // The store's clock, so many ms ahead, is read after the way there; how much later than that it is believed to be.
        let believed = async |ahead: i64, there: u64, back: u64| {
            let asked = clock.moment();
            tokio::time::sleep(Duration::from_millis(there)).await;
            let (read_at, now) = (clock.instant(), clock.now().shifted(ahead));
            tokio::time::sleep(Duration::from_millis(back)).await;
            let heard = time.heard(&asked, Stamped { now, found: () });
            let late = heard.at.saturating_duration_since(read_at).as_millis() as i64;
            late - read_at.saturating_duration_since(heard.at).as_millis() as i64
        };
        assert_eq!(
            believed(0, 1, 300).await,
            4,
            "5 ms after the call, as nothing is known yet"
        );
        assert_eq!(believed(0, 20, 300).await, -15);
        assert_eq!(believed(0, 1, 3).await, 3);
        assert_eq!(believed(0, 20, 300).await, 3);
        assert_eq!(believed(0, 3, 1).await, 1, "a shorter way back");
        assert_eq!(believed(0, 0, 300).await, 1);
        assert_eq!(believed(0, 20, 300).await, 1);
        // Stepped back, and ahead.
        assert_eq!(believed(-1_000, 20, 300).await, -15);
        assert_eq!(believed(-1_000, 0, 2).await, 2);
        assert_eq!(believed(-1_000, 20, 300).await, 2);
        assert_eq!(believed(0, 20, 300).await, -15);
        assert_eq!(believed(0, 0, 2).await, 2);
        // What was said long ago is forgotten.
        tokio::time::sleep(BELIEVED_FOR).await;
        assert_eq!(believed(0, 20, 300).await, -15);
    }
}
