//! Sends messages of few keys, each key's to one queue, and sees what the broker has of them, what comes out and what is
//! answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::rocketmq::{Inbox, Message, Publisher, Received, RocketMqOptions};
use delayline::{State, Timestamp};
use fastrand::Rng;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::rows::Row;
use crate::brokers::fresh;

/// How many keys there are.
pub(super) const KEYS: usize = 6;
/// Longer than a run has: what is due then is still there when it is moved, cancelled or run.
const HOUR: i64 = 3_600_000;
/// After this an answer that has not come is asked for again.
const ASKS_AGAIN: Duration = Duration::from_secs(10);
/// For how long what is done is waited for to arrive.
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

/// What a message asks for, with its time in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Schedule(i64),
    Replace(i64),
    Reschedule(i64),
    Shift(i64),
    Run,
    Cancel,
}

impl Verb {
    fn by(chance: &mut Rng) -> Self {
        let after = [0, 300, 1_000, 2_500, 6_000, HOUR, HOUR][chance.usize(..7)];
        match chance.u8(..14) {
            0..5 => Self::Schedule(after),
            5..7 => Self::Replace(after),
            7 => Self::Reschedule(after),
            8..10 => Self::Shift([-2_000, 1_500, 4_000, HOUR][chance.usize(..4)]),
            10 => Self::Run,
            _ => Self::Cancel,
        }
    }

    pub(super) fn makes_a_task(self) -> bool {
        matches!(self, Self::Schedule(_) | Self::Replace(_))
    }

    fn word(self) -> &'static str {
        match self {
            Self::Schedule(_) => "schedule",
            Self::Replace(_) => "replace",
            Self::Reschedule(_) => "reschedule",
            Self::Shift(_) => "shift",
            Self::Run => "run",
            Self::Cancel => "cancel",
        }
    }

    fn time(self) -> Option<String> {
        match self {
            Self::Schedule(after) | Self::Replace(after) | Self::Reschedule(after) => {
                Some(format!("{after}ms"))
            }
            Self::Shift(by) if by < 0 => Some(format!("-{}ms", -by)),
            Self::Shift(by) => Some(format!("+{by}ms")),
            Self::Run | Self::Cancel => None,
        }
    }
}

/// A message as it was sent, or may have been.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) key: usize,
    pub(super) verb: Verb,
    /// The message that it names by its id; else it names its key.
    pub(super) of: Option<usize>,
}

/// All messages by their numbers, and what came of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) sent: Vec<Sent>,
    /// As the broker has them.
    pub(super) stored: BTreeMap<usize, Received>,
    /// The answers to a message, by their places.
    answers: BTreeMap<String, BTreeMap<u64, Received>>,
    /// What came out for each, by the places.
    outs: BTreeMap<usize, BTreeMap<u64, Received>>,
}

impl Seen {
    /// The answers to a message, and when each was sent.
    pub(super) fn answers(&self, number: usize) -> Vec<(Timestamp, Value)> {
        let id = self.stored.get(&number).map_or("", |stored| &stored.id);
        let answers = self.answers.get(id).into_iter().flat_map(BTreeMap::values);
        let read = |answer: &Received| serde_json::from_slice(answer.body.as_ref().unwrap()).unwrap();
        answers.map(|answer| (answer.born_at, read(answer))).collect()
    }

    pub(super) fn outs(&self, number: usize) -> impl Iterator<Item = &Received> {
        self.outs.get(&number).into_iter().flat_map(BTreeMap::values)
    }

    pub(super) fn summary(&self, rows: &[Row]) -> String {
        let mut words = BTreeMap::<String, usize>::new();
        for (_, said) in (0..self.sent.len()).flat_map(|number| self.answers(number)) {
            *words
                .entry(said["answer"].as_str().unwrap().to_owned())
                .or_default() += 1;
        }
        let outs: usize = self.outs.values().map(BTreeMap::len).sum();
        format!(
            "{} messages sent, {} stored; {} tasks, {} of them done; {outs} messages of {} came out; answers {words:?}",
            self.sent.len(),
            self.stored.len(),
            rows.len(),
            rows.iter().filter(|row| row.task.state == State::Done).count(),
            self.outs.len(),
        )
    }
}

/// What a message is known by, in the body as in a property.
const NUMBER: &str = "number";

fn number_of(message: &Received) -> Option<usize> {
    message.properties.get(NUMBER)?.parse().ok()
}

/// The number of the message that made a task.
pub(super) fn made_by(row: &Row) -> usize {
    row.task.headers[NUMBER].parse().unwrap()
}

pub(super) fn name_of(key: usize) -> String {
    format!("order-{key}")
}

pub(super) fn body(number: usize) -> Vec<u8> {
    format!("{{\"{NUMBER}\":{number}}}").into_bytes()
}

/// Takes note of a message that was received.
type Note = fn(&mut Seen, Received);

/// A service that sends messages, and takes note of what it receives.
pub(super) struct Producer {
    name: String,
    publisher: Publisher,
    seen: Mutex<Seen>,
    is_over: AtomicBool,
}

impl Producer {
    pub(super) async fn open(nameserver: &str, name: &str) -> Arc<Self> {
        let producer = Arc::new(Self {
            name: name.to_owned(),
            publisher: Publisher::connect(nameserver).await.unwrap(),
            seen: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let listened: [(&str, Note); 3] = [
            ("in", |seen, message| {
                let number = number_of(&message).unwrap();
                // One that was sent again by its client is the same message.
                let first = seen.stored.entry(number).or_insert_with(|| message.clone());
                if message.place < first.place {
                    *first = message;
                }
            }),
            ("out", |seen, message| {
                let outs = seen.outs.entry(number_of(&message).unwrap()).or_default();
                outs.insert(message.place.unwrap(), message);
            }),
            ("answers", |seen, message| {
                let of = message.properties["DELAYLINE_MESSAGE_ID"].clone();
                let answers = seen.answers.entry(of).or_default();
                answers.insert(message.place.unwrap(), message);
            }),
        ];
        for (topic, note) in listened {
            let options = RocketMqOptions::new(nameserver).group(fresh("group"));
            let inbox = Inbox::connect(options, [producer.topic(topic)]).await.unwrap();
            let producer = Arc::clone(&producer);
            tokio::spawn(async move {
                while let Ok(messages) = inbox.receive(100).await {
                    inbox.acknowledge(&messages);
                    let mut seen = producer.seen.lock().unwrap();
                    messages.into_iter().for_each(|message| note(&mut seen, message));
                }
            });
        }
        producer
    }

    fn topic(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    /// Sends messages of each key, until told to stop.
    pub(super) fn start(self: &Arc<Self>, seed: u64) -> Vec<JoinHandle<()>> {
        let of_key = |key| {
            let (producer, mut chance) = (Arc::clone(self), Rng::with_seed(seed ^ (key as u64 + 1)));
            tokio::spawn(async move {
                while !producer.is_over.load(Ordering::Relaxed) {
                    let verb = Verb::by(&mut chance);
                    let by_id = !verb.makes_a_task() && chance.u8(..3) == 0;
                    let back = chance.usize(..3);
                    let of = if by_id { producer.earlier(key, back) } else { None };
                    producer.send(Sent { key, verb, of }).await;
                    // Several at once, now and then.
                    let pause = chance.u64(..600).saturating_sub(150);
                    sleep(Duration::from_millis(pause)).await;
                }
            })
        };
        (0..KEYS).map(of_key).collect()
    }

    /// A message of the key that was to be scheduled, and of which the broker has told the id.
    fn earlier(&self, key: usize, back: usize) -> Option<usize> {
        let seen = self.seen.lock().unwrap();
        let stored = seen.stored.keys().rev().copied();
        let is_of_key =
            |&number: &usize| seen.sent[number].key == key && seen.sent[number].verb.makes_a_task();
        stored.filter(is_of_key).nth(back)
    }

    /// Sends a message, once: if that fails, the broker may have it all the same.
    async fn send(&self, sent: Sent) -> usize {
        let (number, id) = {
            let mut seen = self.seen.lock().unwrap();
            seen.sent.push(sent);
            let id = sent.of.map(|of| seen.stored[&of].id.clone());
            (seen.sent.len() - 1, id)
        };
        let key = name_of(sent.key);
        let mut message = Message::new(self.topic("in"), body(number))
            .tag("nemesis")
            .key(&key)
            .sharding_key(&key)
            .property(NUMBER, number.to_string())
            .property("DELAYLINE_ACTION", sent.verb.word())
            .property("DELAYLINE_REPLY_TOPIC", self.topic("answers"));
        message = match id {
            Some(id) => message.property("DELAYLINE_MESSAGE_ID", id),
            None => message.property("DELAYLINE_KEY", &key),
        };
        if sent.verb.makes_a_task() {
            message = message.property("DELAYLINE_TOPIC", self.topic("out"));
        }
        if let Some(time) = sent.verb.time() {
            message = message.property("DELAYLINE_AFTER", time);
        }
        let _ = self.publisher.publish(message).await;
        number
    }

    /// Ends sending, and runs what is left of each key; comes back when that is answered, and so is all before it.
    pub(super) async fn stop(&self, producing: Vec<JoinHandle<()>>) {
        self.is_over.store(true, Ordering::Relaxed);
        for sending in producing {
            sending.await.unwrap();
        }
        for key in 0..KEYS {
            let mut last = Vec::new();
            let is_answered = |last: &[usize]| {
                let seen = self.seen.lock().unwrap();
                last.iter().any(|&number| !seen.answers(number).is_empty())
            };
            while !is_answered(&last) {
                last.push(
                    self.send(Sent {
                        key,
                        verb: Verb::Run,
                        of: None,
                    })
                    .await,
                );
                let asked = Instant::now();
                while !is_answered(&last) && asked.elapsed() < ASKS_AGAIN {
                    sleep(Duration::from_millis(20)).await;
                }
            }
        }
    }

    /// What was seen, when all that is done has come out; or some time has passed.
    pub(super) async fn all_published(&self, rows: &[Row]) -> Seen {
        let done = rows.iter().filter(|row| row.task.state == State::Done);
        let done: BTreeSet<_> = done.map(made_by).collect();
        let since = Instant::now();
        while since.elapsed() < ARRIVES_WITHIN {
            let seen = self.seen.lock().unwrap().clone();
            if done.iter().all(|number| seen.outs.contains_key(number)) {
                return seen;
            }
            sleep(Duration::from_millis(200)).await;
        }
        self.seen.lock().unwrap().clone()
    }
}
