//! Explains why a topic has no broker.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::Mutex;
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
pub(super) struct Absence(Mutex<BTreeMap<String, Told>>);

#[derive(Debug)]
struct Told {
    asked: Instant,
    warned: Instant,
    /// Why the topic is missing, beyond the failure itself.
    missing: Option<String>,
}

impl Absence {
    /// Explains why a message to this topic finds no broker, by the nameservers if they answer; otherwise in the
    /// client's words.
    pub(super) async fn explain(&self, topic: &str, factory: &ClientFactory, error: Error) -> Error {
        let mut topics = self.0.lock().await;
        let now = Instant::now();
        topics.retain(|_, told| now.duration_since(told.asked) < WARN_EVERY);
        let told = topics.get(topic);
        let warned = told.map(|told| told.warned);
        let missing = match told {
            Some(told) if now.duration_since(told.asked) < ASK_EVERY => told.missing.clone(),
            None if topics.len() >= MOST_TOPICS => return error,
            _ => missing(topic, factory).await,
        };
        let explained = match &missing {
            Some(missing) => transient(missing.as_str()),
            None => error,
        };
        let is_new = told.is_none_or(|told| told.missing != missing);
        let warned = warned.filter(|warned| !is_new && now.duration_since(*warned) < WARN_EVERY);
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
        explained
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
