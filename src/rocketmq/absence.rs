//! Explains why a topic has no broker.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard};
use tokio::time::{Instant, timeout};

use super::{Admin, ClientFactory, transient};
use crate::Error;

/// For how long an answer of the nameservers about a topic is cached: each task that waits for it asks here again.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// How long they may take to answer.
const ASK_WITHIN: Duration = Duration::from_secs(5);
/// How often the log warns of a topic at the most.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// How many topics are remembered: senders of messages may name as many as they like.
const MOST_TOPICS: usize = 100;

/// Tells a topic that is missing from one whose brokers are away, and warns of both now and then.
#[derive(Debug, Default)]
pub(super) struct Absence {
    topics: Mutex<BTreeMap<String, Told>>,
    /// Held by the one that asks: nameservers may be silent for long, and all others fail at once meanwhile.
    asking: AsyncMutex<()>,
}

#[derive(Debug)]
struct Told {
    /// When the answer came.
    asked: Instant,
    warned: Instant,
    /// Why the topic is missing, beyond the failure itself.
    missing: Option<String>,
}

impl Absence {
    /// Explains why a message to this topic finds no broker, by the nameservers if they answer; otherwise in the
    /// client's words.
    pub(super) async fn explain(&self, topic: &str, factory: &ClientFactory, error: Error) -> Error {
        self.explain_by(topic, error, missing(topic, factory)).await
    }

    /// Explains it by what `asked` finds out, if it is time to ask; otherwise by what was last found out.
    async fn explain_by(
        &self,
        topic: &str,
        error: Error,
        asked: impl Future<Output = Option<String>>,
    ) -> Error {
        let or_plain = |missing: Option<String>, error| missing.map_or(error, transient);
        let Some(_asking) = self.turn(topic) else {
            let last = self.topics().get(topic).and_then(|told| told.missing.clone());
            return or_plain(last, error);
        };
        let missing = asked.await;
        let explained = or_plain(missing.clone(), error);
        self.record(topic, missing, &explained);
        explained
    }

    /// Returns the right to ask for a topic; none, if the last answer is fresh, or another asks.
    fn turn(&self, topic: &str) -> Option<AsyncMutexGuard<'_, ()>> {
        let asking = self.asking.try_lock().ok()?;
        let now = Instant::now();
        let mut topics = self.topics();
        topics.retain(|_, told| now.duration_since(told.asked) < WARN_EVERY);
        let is_due = match topics.get(topic) {
            Some(told) => now.duration_since(told.asked) >= ASK_EVERY,
            None => topics.len() < MOST_TOPICS,
        };
        is_due.then_some(asking)
    }

    /// Records an answer, and warns of it if it is another than before, or the last warning was long ago.
    fn record(&self, topic: &str, missing: Option<String>, explained: &Error) {
        let now = Instant::now();
        let mut topics = self.topics();
        let is_told = |told: &&Told| told.missing == missing && now.duration_since(told.warned) < WARN_EVERY;
        let warned = topics.get(topic).filter(is_told).map(|told| told.warned);
        if warned.is_none() {
            tracing::warn!(
                topic,
                error = %explained,
                "messages cannot be published, so due tasks wait until they can: see that the topic exists, and that its \
                 brokers are up"
            );
        }
        let told = Told {
            asked: now,
            warned: warned.unwrap_or(now),
            missing,
        };
        topics.insert(topic.to_owned(), told);
    }

    fn topics(&self) -> MutexGuard<'_, BTreeMap<String, Told>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that the topic is missing, if there are brokers and none of them has it.
async fn missing(topic: &str, factory: &ClientFactory) -> Option<String> {
    let admin = Admin::open(factory).await.ok()?;
    let asked = async {
        let masters = admin.masters().await?;
        Ok::<_, Error>((masters, admin.topic_exists(topic).await?))
    };
    let asked = timeout(ASK_WITHIN, asked).await;
    admin.close().await;
    let (masters, exists) = asked.ok()?.ok()?;
    let masters: Vec<_> = masters.keys().map(|name| name.as_str()).collect();
    (!exists).then(|| {
        format!(
            "publishing failed: the topic {topic} is missing, as none of the brokers that are known ({}) has it: make it, or \
             start the broker that has it",
            masters.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::JoinSet;
    use tokio::time::{advance, sleep};

    use super::*;

    /// How a message's failure is explained by nameservers that take all their time, and how often they were asked.
    #[derive(Clone, Default)]
    struct Asked {
        absence: Arc<Absence>,
        times: Arc<AtomicUsize>,
    }

    impl Asked {
        async fn explain(self, topic: &str) -> String {
            let asking = async {
                self.times.fetch_add(1, Ordering::Relaxed);
                sleep(ASK_WITHIN).await;
                Some("missing".to_owned())
            };
            let explained = self.absence.explain_by(topic, transient("plain"), asking);
            explained.await.to_string()
        }

        fn times(&self) -> usize {
            self.times.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_asks_slow_nameservers_and_the_others_do_not_wait_for_the_answer() {
        let asked = Asked::default();
        let began = Instant::now();
        let mut explaining = JoinSet::new();
        for _ in 0..10 {
            let asked = asked.clone();
            explaining.spawn(async move { asked.explain("t").await });
        }
        let explained = explaining.join_all().await;
        assert_eq!((began.elapsed(), asked.times()), (ASK_WITHIN, 1));
        let plain = explained.iter().filter(|explained| explained.contains("plain"));
        assert_eq!(plain.count(), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_used_for_some_seconds_from_when_it_came() {
        let asked = Asked::default();
        for _ in 0..2 {
            assert!(asked.clone().explain("t").await.contains("missing"));
            advance(ASK_EVERY - Duration::from_secs(1)).await;
        }
        assert_eq!(asked.times(), 1);
        // Those that use it do not make it younger.
        advance(Duration::from_secs(1)).await;
        assert!(asked.clone().explain("t").await.contains("missing"));
        assert_eq!(asked.times(), 2);
    }
}
