//! What came of histories, in numbers.

use delayline::stats::Stats;

use crate::ledger::Broken;

/// What came of one history, or of many.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) lines: Vec<String>,
    pub(crate) broken: Vec<Broken>,
    pub(crate) deaths: u64,
    pub(crate) tasks: u64,
    pub(crate) starts: u64,
    pub(crate) pauses: u64,
    stats: Stats,
}

/// What every thousand histories must have seen, beside tasks, starts and deaths.
macro_rules! counts {
    ($($count:ident $name:literal),* $(,)?) => {
        impl Report {
            pub(crate) fn add(&mut self, other: &Self) {
                self.deaths += other.deaths;
                self.tasks += other.tasks;
                self.starts += other.starts;
                self.pauses += other.pauses;
                self.add_stats(&other.stats);
            }

            pub(crate) fn add_stats(&mut self, stats: &Stats) {
                $(self.stats.$count += stats.$count;)*
            }

            fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![
                    ("tasks", self.tasks),
                    ("handler starts", self.starts),
                    ("pauses", self.pauses),
                    ("processes gone", self.deaths),
                    $(($name, self.stats.$count),)*
                ]
            }
        }
    };
}

counts! {
    hops "hops",
    stale "stale wake-ups",
    claimed_by_sweep "claimed by the sweep",
    claimed_when_ready "claimed when there was room",
    expired "leases ended",
    rerouted "wake-ups rerouted",
    lost_claims "claims lost",
    no_room "times no room",
    no_handler "times no handler",
    dead "dead",
    retried "retried",
    snoozed "snoozed",
    released "released",
    followed "moved by the table",
    check_failed "checks failed",
    purged "purged",
}

impl Report {
    pub(crate) fn summary(&self) -> String {
        let counts = self
            .counts()
            .into_iter()
            .map(|(name, count)| format!("{count} {name}"));
        Vec::from_iter(counts).join(", ")
    }

    /// A simulation in which nothing goes wrong shows nothing.
    pub(crate) fn assert_eventful(&self) {
        for (name, count) in self.counts() {
            assert!(count > 0, "there were no {name}: {}", self.summary());
        }
    }
}
