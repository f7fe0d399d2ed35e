//! Keeps the figures of the last hour, for the pages.

mod instrument;
mod minutes;
mod spread;
mod window;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use delayline::Timestamp;
use metrics::Key;

use self::minutes::Minutes;
pub(crate) use self::minutes::{MINUTES, Minute};
pub(crate) use self::spread::Spread;
use self::window::Window;

/// How long a gauge that is not set again is shown: twice as long as the store is left alone at the most. So the last
/// value of a store that is away, or of a broker that is gone, is not shown as current.
pub(super) const GAUGES_LAST: Duration = Duration::from_secs(120);
/// The name of all kinds that have no figures of their own.
const OTHER: &str = "other";

/// Records the same figures as Prometheus' recorder, and keeps those of the last hour that pages show.
#[derive(Clone, Debug)]
pub(crate) struct Recent(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    began: Instant,
    figures: Mutex<Figures>,
}

impl Recent {
    pub(super) fn start() -> Self {
        Self(Arc::new(Kept {
            began: Instant::now(),
            figures: Mutex::default(),
        }))
    }

    /// Returns the beginning of the shown time: an hour ago, or when the server was started.
    pub(crate) fn since(&self, now: Timestamp) -> Timestamp {
        let millis = self.covers().as_millis();
        now.shifted(-i64::try_from(millis).unwrap_or(i64::MAX))
    }

    /// Returns how often in a minute something happened that was counted meanwhile. The server's first minute counts as
    /// a whole one.
    pub(crate) fn a_minute(&self, count: u64) -> f64 {
        count as f64 * 60.0 / self.covers().as_secs_f64().max(60.0)
    }

    fn covers(&self) -> Duration {
        window::covers(self.0.now())
    }

    /// Returns how late tasks of all kinds were started.
    pub(crate) fn late(&self) -> Spread {
        self.0.figures().late(self.0.now())
    }

    /// Returns how tasks of all kinds were started, minute by minute.
    pub(crate) fn course(&self) -> [Minute; MINUTES] {
        let figures = self.0.figures();
        Minutes::course(figures.minutes.values(), self.0.now())
    }

    /// Returns how many tasks of all kinds were started by what, in the words of the figures.
    pub(crate) fn woken(&self) -> BTreeMap<String, u64> {
        self.0.figures().woken(self.0.now())
    }

    /// Returns the outcomes of a kind; none, if it has no figures of its own.
    pub(crate) fn of_kind(&self, kind: &str) -> Option<OfKind> {
        self.0.figures().of_kind(kind, self.0.now())
    }

    /// Returns how late the delay levels of brokers were, by the name of the master and the delay.
    pub(crate) fn levels(&self) -> Vec<LevelFigures> {
        self.0.figures().levels(self.0.now())
    }
}

impl Kept {
    /// Returns the time since the beginning.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcomes of the tasks of a kind.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// How late each was started.
    pub(crate) late: Spread,
    /// How long each attempt took.
    pub(crate) took: Spread,
    /// How many attempts failed.
    pub(crate) failed: u64,
}

/// The outcomes of the tasks of a kind, and when they were started.
#[derive(Debug)]
pub(crate) struct OfKind {
    pub(crate) tally: Tally,
    pub(crate) course: [Minute; MINUTES],
}

/// The figures of a delay level of a master.
#[derive(Debug)]
pub(crate) struct LevelFigures {
    pub(crate) master: String,
    /// In the broker's form, such as `10m`.
    pub(crate) delay: String,
    /// How much longer than its delay it kept a wake-up.
    pub(crate) late: Spread,
    pub(crate) is_stuck: bool,
}

/// The library bounds the kinds with figures of their own, and the number of brokers bounds the levels.
#[derive(Debug, Default)]
struct Figures {
    kinds: BTreeMap<String, Window<Tally>>,
    minutes: BTreeMap<String, Minutes>,
    /// How many tasks were started by what.
    woken: Window<BTreeMap<String, u64>>,
    levels: BTreeMap<(String, String), Level>,
}

#[derive(Debug, Default)]
struct Level {
    late: Window<Spread>,
    /// When it was last reported to be stuck, if that was not taken back.
    stuck: Option<Duration>,
}

/// The subject of a figure.
#[derive(Debug)]
enum About {
    Late { kind: String, woken_by: String },
    Took { kind: String },
    Failed { kind: String },
    LevelLate { level: (String, String) },
    LevelStuck { level: (String, String) },
}

impl About {
    /// None: no page shows it.
    fn of(key: &Key) -> Option<Self> {
        let label = |name: &str| {
            let mut labels = key.labels();
            labels
                .find(|label| label.key() == name)
                .map(|label| label.value().to_owned())
        };
        let kind = || label("kind");
        let level = || label("master").zip(label("delay"));
        match key.name() {
            "delayline.task.lateness" => Some(Self::Late {
                kind: kind()?,
                woken_by: label("woken_by")?,
            }),
            "messaging.process.duration" => Some(Self::Took { kind: kind()? }),
            "delayline.attempts" if matches!(&*label("outcome")?, "retry" | "dead") => {
                Some(Self::Failed { kind: kind()? })
            }
            "delayline.level.lateness" => Some(Self::LevelLate { level: level()? }),
            "delayline.level.stuck" => Some(Self::LevelStuck { level: level()? }),
            _ => None,
        }
    }
}

impl Figures {
    fn hear(&mut self, about: &About, value: f64, now: Duration) {
        let took = || Duration::try_from_secs_f64(value).unwrap_or_default();
        match about {
            About::Late { kind, woken_by } => {
                self.kind(kind, now).late.add(took());
                self.minutes.entry(kind.clone()).or_default().started(took(), now);
                *self.woken.at(now).entry(woken_by.clone()).or_default() += 1;
            }
            About::Took { kind } => self.kind(kind, now).took.add(took()),
            About::Failed { kind } => self.kind(kind, now).failed += value as u64,
            About::LevelLate { level } => self.level(level).late.at(now).add(took()),
            About::LevelStuck { level } => self.level(level).stuck = (value > 0.0).then_some(now),
        }
    }

    fn kind(&mut self, kind: &str, now: Duration) -> &mut Tally {
        self.kinds.entry(kind.to_owned()).or_default().at(now)
    }

    fn level(&mut self, level: &(String, String)) -> &mut Level {
        self.levels.entry(level.clone()).or_default()
    }

    fn late(&self, now: Duration) -> Spread {
        let tallies = self.kinds.values().flat_map(|kind| kind.within(now));
        Spread::sum(tallies.map(|tally| &tally.late))
    }

    fn woken(&self, now: Duration) -> BTreeMap<String, u64> {
        let mut woken = BTreeMap::new();
        for (by, count) in self.woken.within(now).flatten() {
            *woken.entry(by.clone()).or_default() += count;
        }
        woken
    }

    fn of_kind(&self, kind: &str, now: Duration) -> Option<OfKind> {
        let window = match self.kinds.get(kind) {
            // A kind with figures of its own is recorded before its tasks have an outcome.
            None if self.kinds.contains_key(OTHER) => return None,
            window => window,
        };
        let tallies = || window.into_iter().flat_map(|window| window.within(now));
        Some(OfKind {
            tally: Tally {
                late: Spread::sum(tallies().map(|tally| &tally.late)),
                took: Spread::sum(tallies().map(|tally| &tally.took)),
                failed: tallies().map(|tally| tally.failed).sum(),
            },
            course: Minutes::course(self.minutes.get(kind).into_iter(), now),
        })
    }

    /// Returns the levels that have figures.
    fn levels(&self, now: Duration) -> Vec<LevelFigures> {
        let figures = |((master, delay), level): (&(String, String), &Level)| LevelFigures {
            master: master.clone(),
            delay: delay.clone(),
            late: Spread::sum(level.late.within(now)),
            is_stuck: level.stuck.is_some_and(|said| now < said + GAUGES_LAST),
        };
        let levels = self.levels.iter().map(figures);
        levels
            .filter(|level| level.is_stuck || level.late.count() > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use metrics::{counter, gauge, histogram};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Returns what was recorded now, and an hour later.
    fn recorded(tell: impl FnOnce()) -> (Recent, Duration) {
        let recent = Recent::start();
        metrics::with_local_recorder(&recent, tell);
        let now = recent.0.now();
        (recent, now)
    }

    #[test]
    fn what_comes_of_each_kind_is_kept_for_an_hour() {
        let (recent, now) = recorded(|| {
            for (kind, woken_by, late) in [("a", "claim", 10), ("a", "sweep", 20), ("b", "claim", 30)] {
                histogram!("delayline.task.lateness", "kind" => kind, "woken_by" => woken_by)
                    .record(ms(late));
            }
            histogram!("messaging.process.duration", "kind" => "a", "outcome" => "done").record(ms(5));
            for (outcome, count) in [("retry", 2), ("dead", 1), ("dead", 0), ("done", 7), ("lost", 9)] {
                counter!("delayline.attempts", "kind" => "a", "outcome" => outcome).increment(count);
            }
            counter!("delayline.verbs", "kind" => "a", "outcome" => "dead").increment(1);
        });
        let figures = recent.0.figures();
        assert_eq!(figures.late(now).count(), 3);
        let woken = [("claim".to_owned(), 2), ("sweep".to_owned(), 1)];
        assert_eq!(figures.woken(now), woken.into());
        assert_eq!(figures.woken(now + HOUR), [].into());
        let of_kind = |kind, now| figures.of_kind(kind, now).unwrap();
        let OfKind { tally: a, course } = of_kind("a", now);
        assert_eq!((a.late.count(), a.took.count(), a.failed), (2, 1, 3));
        assert_eq!((a.late.within(1.0), a.took.within(1.0)), (ms(20), ms(5)));
        assert_eq!((course[MINUTES - 1].started, course[MINUTES - 1].latest), (2, 20));
        assert_eq!(of_kind("b", now).tally.failed, 0);
        assert_eq!(of_kind("c", now).tally.late.count(), 0);
        let OfKind { tally: a, course } = of_kind("a", now + HOUR);
        assert_eq!((a.late.count(), a.took.count(), a.failed), (0, 0, 0));
        assert_eq!(course, [Minute::default(); MINUTES]);
        assert_eq!(figures.late(now + HOUR).count(), 0);
    }

    #[test]
    fn nothing_is_said_of_a_kind_that_is_told_together_with_others() {
        let (recent, now) = recorded(|| {
            counter!("delayline.attempts", "kind" => "idle", "outcome" => "dead").increment(0);
            histogram!("delayline.task.lateness", "kind" => "other", "woken_by" => "claim").record(1.0);
        });
        let figures = recent.0.figures();
        assert!(figures.of_kind("idle", now + HOUR).is_some());
        assert!(figures.of_kind("another", now + HOUR).is_none());
    }

    #[test]
    fn levels_are_told_apart_by_master_and_delay_and_a_stuck_one_is_shown_while_that_is_said() {
        let stuck = |level, is| {
            gauge!("delayline.level.stuck", "master" => "a", "delay" => level).set(f64::from(u8::from(is)));
        };
        let (recent, now) = recorded(|| {
            for (master, delay, late) in [("a", "1m", 50), ("a", "1m", 70), ("b", "1m", 90)] {
                histogram!("delayline.level.lateness", "master" => master, "delay" => delay).record(ms(late));
            }
            stuck("5s", true);
            stuck("10s", true);
            stuck("10s", false);
        });
        let levels = |now| {
            let levels = recent.0.figures().levels(now);
            let level = |level: LevelFigures| {
                let name = format!("{} {}", level.master, level.delay);
                (name, level.late.count(), level.is_stuck)
            };
            levels.into_iter().map(level).collect::<Vec<_>>()
        };
        let of = |name: &str, count, is_stuck| (name.to_owned(), count, is_stuck);
        let late = [of("a 1m", 2, false), of("b 1m", 1, false)];
        let all = [late[0].clone(), of("a 5s", 0, true), late[1].clone()];
        assert_eq!(levels(now), all);
        assert_eq!(levels(now + GAUGES_LAST), late);
        assert_eq!(levels(now + HOUR), []);
    }
}
