//! Hostile messages on the topic of wake-ups.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;

/// The request to store a message.
const SEND_MESSAGE: i32 = 10;
/// The flag of a compressed body.
const COMPRESSED: &str = "1";

/// A client that obeys the protocol and no other rules.
struct Sender {
    broker: TcpStream,
    topic: String,
    queue: u32,
}

/// The unusual parts of a message.
#[derive(Default)]
struct Odd<'a> {
    flags: &'a str,
    properties: Option<&'a str>,
    reconsumed: &'a str,
}

impl Sender {
    async fn new(place: &Place) -> Self {
        let raw = Raw::new(&nameserver());
        let broker = TcpStream::connect(raw.broker().await).unwrap();
        raw.close().await;
        broker.set_read_timeout(Some(SAFETY)).unwrap();
        Self {
            broker,
            topic: place.topic.clone(),
            queue: 0,
        }
    }

    /// Sends a message to the next queue; the broker takes it.
    fn send(&mut self, body: &[u8], odd: &Odd<'_>) {
        let or = |text: &str, default: &str| if text.is_empty() { default } else { text }.to_owned();
        let mut fields = serde_json::json!({
            "producerGroup": "hostile", "topic": self.topic, "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4", "queueId": (self.queue % 8).to_string(),
            "sysFlag": or(odd.flags, "0"), "bornTimestamp": "-1", "flag": "2147483647",
            "reconsumeTimes": or(odd.reconsumed, "0"), "unitMode": "false", "batch": "false",
        });
        if let Some(properties) = odd.properties {
            fields["properties"] = properties.into();
        }
        self.queue += 1;
        let header = serde_json::json!({
            "code": SEND_MESSAGE, "language": "JAVA", "version": 401, "opaque": self.queue, "flag": 0,
            "serializeTypeCurrentRPC": "JSON", "extFields": fields,
        })
        .to_string();
        let mut frame = Vec::new();
        let length = |bytes: usize| u32::try_from(bytes).unwrap().to_be_bytes();
        frame.extend(length(4 + header.len() + body.len()));
        frame.extend(length(header.len()));
        frame.extend(header.as_bytes());
        frame.extend(body);
        self.broker.write_all(&frame).unwrap();

        let mut read = |count| {
            let mut bytes = vec![0; count];
            self.broker.read_exact(&mut bytes).unwrap();
            bytes
        };
        let length = |bytes: Vec<u8>| u32::from_be_bytes(bytes.try_into().unwrap()) as usize;
        let total = length(read(4));
        let answer = read(total);
        let header = length(answer[..4].to_vec()) & 0x00ff_ffff;
        let answer: serde_json::Value = serde_json::from_slice(&answer[4..4 + header]).unwrap();
        assert_eq!(answer["code"], 0, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_any_shape_are_dropped_counted_and_not_sent_back() {
    let place = Place::new();
    let backend = place.connect().await;
    let mut sender = Sender::new(&place).await;
    let mut future_format = wake(1).encode();
    future_format[0] += 1;
    let mut future_version = wake(1).encode();
    future_version[17] = 0xff;
    let random: Vec<u8> = (0..1_000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let plain = Odd::default();
    let bodies = [
        b"hello".to_vec(),
        wake(1).encode()[..20].to_vec(),
        future_format,
        future_version,
        random.clone(),
        vec![0xD1; 4 * 1024 * 1024 - 1_000],
    ];
    for body in &bodies {
        sender.send(body, &plain);
    }
    let oddities = [
        ("", Some("")),
        ("", Some("\u{1}\u{2}\u{1}\u{1}\u{2}no end")),
        (
            "",
            Some("TAGS\u{1}\u{2}KEYS\u{1}\u{1}\u{2}WAIT\u{1}maybe\u{2}UNIQ_KEY\u{1}\u{2}"),
        ),
        (
            "",
            Some("RETRY_TOPIC\u{1}elsewhere\u{2}RECONSUME_TIME\u{1}-7\u{2}MAX_RECONSUME_TIMES\u{1}x\u{2}"),
        ),
        ("", Some("CONSUME_START_TIME\u{1}1\u{2}TRAN_MSG\u{1}maybe\u{2}")),
        (COMPRESSED, None),
        (COMPRESSED, Some("")),
    ];
    for (flags, properties) in oddities {
        let odd = Odd {
            flags,
            properties,
            reconsumed: "99",
        };
        sender.send(&random, &odd);
    }
    // This one comes later.
    let delayed = Odd {
        properties: Some("DELAY\u{1}1\u{2}"),
        ..Odd::default()
    };
    sender.send(b"hello", &delayed);
    let count = (bodies.len() + oddities.len() + 1) as u64;

    // Behind all of these, in each queue.
    send(&backend, departures(0..200, ONE)).await;
    assert_eq!(receive_all(&backend, 200).await, (0..200).map(wake).collect());
    timeout(SAFETY, async {
        while backend.foreign() < count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{} of {count} were counted", backend.foreign()));
    backend.close().await.unwrap();
    place.assert_nothing_sent_back().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_says_how_many_foreign_messages_came() {
    let place = Place::new();
    let store = Arc::new(delayline::store::MemoryStore::new());
    let scheduler = delayline::Scheduler::builder(store)
        .carrier(place.connect().await)
        .build()
        .unwrap();
    assert_eq!(scheduler.stats().foreign, 0);
    let worker = tokio::spawn(
        delayline::Worker::new(&scheduler)
            .handle("k", async |(): (), _| Ok(delayline::Outcome::Done))
            .run(),
    );
    let mut sender = Sender::new(&place).await;
    for _ in 0..3 {
        sender.send(b"hello", &Odd::default());
    }
    timeout(SAFETY, async {
        while scheduler.stats().foreign < 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("they are counted");
    worker.abort();
}
