//! How late the levels of brokers are.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Stopwatch;
use super::brokers::level_was_late;
use crate::TaskId;
use crate::task::wake::Wake;

/// The least time between two samples of a level; and of a longer level there are so many in its delay.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
const IN_A_DELAY: u32 = 100;
/// So much before its delay is over no level brings a wake-up: then its delay is another one by now.
const EARLY: Duration = Duration::from_secs(1);
/// How often a level that does so is warned of at the most.
const WARN_EVERY: Duration = Duration::from_secs(600);
/// How late a wake-up may be and is still waited for. It may also have come to another process.
const LATENESS_LIMIT: Duration = Duration::from_secs(600);

/// Measures how much longer than its delay a level keeps a wake-up, of a bounded sample of those that this process has sent
/// and receives itself: by one clock, from before it was sent until it has come.
#[derive(Debug, Default)]
pub(crate) struct LevelSamples(Mutex<Samples>);

/// A wake-up is known by its task and version.
type Name = (TaskId, u64);

#[derive(Debug, Default)]
struct Samples {
    away: HashMap<Name, Sample>,
    /// What was sent to each level of each master, and when, the earliest first; some of it has come back.
    sent: BTreeMap<(String, Duration), VecDeque<(Instant, Name)>>,
    /// When it was last warned that a level is early.
    warned: BTreeMap<(String, Duration), Instant>,
}

#[derive(Debug)]
struct Sample {
    master: String,
    delay: Duration,
    sent: Instant,
}

impl LevelSamples {
    /// Perhaps waits for this wake-up, which a master has taken into its level of this delay.
    pub(crate) fn sent(&self, wake: &Wake, master: &str, delay: Duration, since: Stopwatch) {
        let (name, at) = ((wake.id, wake.version), since.began());
        let mut samples = self.samples();
        let Samples { away, sent, .. } = &mut *samples;
        let of_level = sent.entry((master.to_owned(), delay)).or_default();
        let pause = LEAST_PAUSE.max(delay / IN_A_DELAY);
        let is_soon = |&(last, _): &(Instant, Name)| at.saturating_duration_since(last) < pause;
        if of_level.back().is_some_and(is_soon) {
            return;
        }
        while let Some(&(first, lost)) = of_level.front()
            && at.saturating_duration_since(first) > delay + LATENESS_LIMIT
        {
            of_level.pop_front();
            away.remove(&lost);
        }
        of_level.push_back((at, name));
        let master = master.to_owned();
        let sample = Sample {
            master,
            delay,
            sent: at,
        };
        away.insert(name, sample);
    }

    /// A wake-up has come.
    pub(crate) fn arrived(&self, wake: &Wake) {
        let Some(Sample { master, delay, sent }) = self.samples().away.remove(&(wake.id, wake.version))
        else {
            return;
        };
        let took = sent.elapsed();
        if took + EARLY < delay {
            self.warn_of_early(&master, delay, took);
        }
        level_was_late(&master, delay, took.saturating_sub(delay));
    }

    fn warn_of_early(&self, master: &str, delay: Duration, took: Duration) {
        let (now, mut samples) = (Instant::now(), self.samples());
        let warned = samples.warned.get(&(master.to_owned(), delay));
        if warned.is_some_and(|warned| now.duration_since(*warned) < WARN_EVERY) {
            return;
        }
        samples.warned.insert((master.to_owned(), delay), now);
        tracing::warn!(
            broker = master, level = ?delay, ?took,
            "a delay level brings wake-ups before its delay is over, which costs hops and makes nothing early: see whether the \
             broker's messageDelayLevel was changed, and restart the broker, or this process, so that both know the same"
        );
    }

    fn samples(&self) -> MutexGuard<'_, Samples> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use super::*;
    use crate::logged::Logged;
    use crate::observe::metrics::recorded;

    fn wake(number: u64) -> Wake {
        Wake {
            id: TaskId::from_bytes([1; 16]),
            kind: "k".into(),
            version: number,
        }
    }

    /// How late which levels were, in ms.
    fn late(recorder: &DebuggingRecorder) -> Vec<(String, Vec<u64>)> {
        let late = recorded(recorder).into_iter().map(|(level, value)| {
            let DebugValue::Histogram(values) = value else {
                panic!("{value:?}")
            };
            let millis = values.iter().map(|seconds| (seconds.0 * 1_000.0).round() as u64);
            (level, millis.collect())
        });
        late.collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_sample_of_each_level_is_measured_from_before_it_was_sent_until_it_has_come() {
        let recorder = DebuggingRecorder::new();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let (logged, _guard) = Logged::by_thread(tracing::Level::WARN);
        let samples = LevelSamples::default();
        let [short, long] = [5, 3_600].map(Duration::from_secs);
        let send = |number, master, delay| samples.sent(&wake(number), master, delay, Stopwatch::now());
        let pass = async |millis| tokio::time::sleep(Duration::from_millis(millis)).await;
        send(1, "a", short);
        send(2, "b", short);
        send(3, "a", long);
        pass(999).await;
        send(4, "a", short);
        pass(1).await;
        send(5, "a", short);
        send(6, "a", long);
        pass(35_000).await;
        send(7, "a", long);
        for number in [1, 2, 4, 5] {
            samples.arrived(&wake(number));
            samples.arrived(&wake(number));
        }
        pass(3_600_000 - 36_000).await;
        assert_eq!(logged.text(), "");
        for number in [3, 6, 7, 7] {
            samples.arrived(&wake(number));
        }
        let text = logged.text();
        assert!(text.contains("broker=\"a\" level=3600s took=3564s"), "{text}");
        assert_eq!(logged.count("before its delay is over"), 1, "{text}");
        assert_eq!(
            late(&recorder),
            [
                ("a 1h".to_owned(), vec![0, 0]),
                ("a 5s".to_owned(), vec![31_000, 30_000]),
                ("b 5s".to_owned(), vec![31_000]),
            ],
            "the fourth and the sixth were too soon after others, and the seventh was early"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_comes_is_not_waited_for_for_ever() {
        let samples = LevelSamples::default();
        let delay = Duration::from_secs(1);
        for number in 0..10_000 {
            samples.sent(&wake(number), "a", delay, Stopwatch::now());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let held = samples.samples();
        let bound = 2 + (LATENESS_LIMIT.as_secs() + delay.as_secs()) as usize;
        assert!(held.away.len() <= bound, "{}", held.away.len());
        assert!(held.sent.values().all(|sent| sent.len() <= bound));
    }
}
