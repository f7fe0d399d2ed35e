//! The topics that tasks are delivered to, which are the services' own: they must be there.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which of them have not been seen yet, as their nameservers were away when the server started.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    unseen: Mutex<BTreeSet<String>>,
}

impl Topics {
    /// Whether all are there, as far as is known.
    pub(crate) fn are_seen(&self) -> bool {
        self.unseen().is_empty()
    }

    fn unseen(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "rocketmq")]
mod watch {
    use std::sync::{Arc, Weak};
    use std::time::Duration;

    use delayline::Forward;
    use tokio::time::{Instant, sleep};

    use super::Topics;

    /// How often nameservers are asked for a topic that has not been seen.
    const EVERY: Duration = Duration::from_secs(2);
    /// How often it is logged at the most that it is missing.
    const WARN_EVERY: Duration = Duration::from_secs(60);

    impl Topics {
        /// Asks for a topic until it is there, if it was not seen when it was connected to.
        pub(crate) fn watch(self: &Arc<Self>, topic: &str, forward: &Forward) {
            if forward.saw_topic() {
                return;
            }
            self.unseen().insert(topic.to_owned());
            let (topics, topic, forward) = (Arc::downgrade(self), topic.to_owned(), forward.clone());
            tracing::warn!(
                topic,
                "the nameservers do not answer, so it is not known whether the topic is there, and its tasks wait: see that \
                 they are up"
            );
            tokio::spawn(async move {
                until_seen(&topics, &topic, &forward).await;
                if let Some(topics) = topics.upgrade() {
                    topics.unseen().remove(&topic);
                    tracing::info!(topic, "the topic is there");
                }
            });
        }
    }

    /// Ends as well when another configuration has taken the place of the one that it is asked for.
    async fn until_seen(topics: &Weak<Topics>, topic: &str, forward: &Forward) {
        let mut warned: Option<Instant> = None;
        loop {
            sleep(EVERY).await;
            if topics.strong_count() == 0 {
                return;
            }
            match forward.topic_exists().await {
                Ok(true) => return,
                Ok(false) if warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) => {
                    warned = Some(Instant::now());
                    tracing::error!(
                        topic,
                        "no broker has the topic, and its tasks wait: make it, or deliver them to another"
                    );
                }
                Ok(false) => {}
                Err(error) => tracing::debug!(topic, %error, "the nameservers do not answer yet"),
            }
        }
    }
}
