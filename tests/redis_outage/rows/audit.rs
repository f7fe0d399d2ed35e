//! Looks into the servers: whether rows and indexes agree.

use std::collections::{BTreeMap, BTreeSet};

use delayline::TaskId;
use redis::FromRedisValue;

use crate::servers::RedisCluster;

/// Over so many slots rows are spread in a Cluster.
pub(super) const SLOTS: u16 = 16;
/// As rows have them.
const SCHEDULED: u8 = 0;
const RUNNING: u8 = 1;
const DEAD: u8 = 3;
const INTENT: u8 = 5;

/// The slot that has the row of an id.
pub(super) fn slot_of(id: TaskId) -> u16 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let hash = id.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
    u16::try_from(hash % u64::from(SLOTS)).unwrap()
}

/// What the keys of a slot begin with.
pub(super) fn tag(slot: u16) -> String {
    format!("{{delayline:tasks:1:{slot}}}")
}

/// The rows of a store in a Cluster.
pub(super) struct Audit<'a> {
    cluster: &'a RedisCluster,
}

/// One row, as far as indexes know it.
struct Row {
    state: u8,
    lane: String,
    due: i64,
    wake: i64,
}

type Index = BTreeMap<String, BTreeMap<Vec<u8>, i64>>;

impl<'a> Audit<'a> {
    pub(super) fn of(cluster: &'a RedisCluster) -> Self {
        Self { cluster }
    }

    /// How many rows wait or run.
    pub(super) fn live(&self) -> usize {
        let rows = self.slots().flat_map(|(tag, mut admin)| rows(&tag, &mut admin));
        rows.filter(|(_, row)| matches!(row.state, SCHEDULED | RUNNING))
            .count()
    }

    /// Asserts that indexes are those of the rows; says how many rows there are.
    pub(super) fn assert_consistent(&self) -> usize {
        let mut count = 0;
        for (tag, mut admin) in self.slots() {
            let mut expected = Index::new();
            let mut lanes = BTreeSet::new();
            for (id, row) in rows(&tag, &mut admin) {
                count += 1;
                let mut index = |name: String, time: i64| {
                    let index = expected.entry(format!("{tag}:{name}")).or_default();
                    index.insert(id.clone(), time);
                };
                if row.state == INTENT {
                    index("intents".to_owned(), 0);
                    continue;
                }
                index(format!("due:{}", row.lane), row.due);
                if row.wake > 0 && row.state != DEAD {
                    index(format!("wake:{}", row.lane), row.wake);
                }
                lanes.insert(row.lane);
            }
            let mut found = Index::new();
            let names: Vec<String> = ask(&mut admin, &["KEYS", &format!("{tag}:*")]);
            for name in names {
                let is_intents = name == format!("{tag}:intents");
                let is_index =
                    name.starts_with(&format!("{tag}:due:")) || name.starts_with(&format!("{tag}:wake:"));
                if is_intents || is_index {
                    let members: Vec<(Vec<u8>, f64)> =
                        ask(&mut admin, &["ZRANGE", &name, "0", "-1", "WITHSCORES"]);
                    // Since when an intent waits its row does not say.
                    let score = |score: f64| if is_intents { 0 } else { score as i64 };
                    let members = members.into_iter().map(|(id, at)| (id, score(at)));
                    found.insert(name, members.collect());
                }
            }
            assert!(
                found == expected,
                "the indexes of {tag} are not those of its rows"
            );
            let kept: BTreeSet<String> = ask(&mut admin, &["SMEMBERS", &format!("{tag}:lanes")]);
            assert_eq!(kept, lanes, "{tag}");
        }
        count
    }

    /// The tag of each slot, and the master that has it.
    fn slots(&self) -> impl Iterator<Item = (String, redis::Connection)> {
        (0..SLOTS).map(|number| {
            let tag = tag(number);
            let master = self.cluster.master_of(self.cluster.slot_of(&tag));
            (tag, self.cluster.admin(master))
        })
    }
}

fn rows(tag: &str, admin: &mut redis::Connection) -> Vec<(Vec<u8>, Row)> {
    let rows: Vec<(Vec<u8>, Vec<u8>)> = ask(admin, &["HGETALL", &format!("{tag}:rows")]);
    rows.into_iter()
        .map(|(id, value)| (id, Row::read(&value)))
        .collect()
}

impl Row {
    /// By the places that the head of a row has for it.
    fn read(value: &[u8]) -> Self {
        let number = |from: usize, to: usize| {
            let mut bytes = [0; 8];
            bytes[..to - from].copy_from_slice(&value[from..to]);
            i64::from_le_bytes(bytes)
        };
        let kind = &value[68..68 + usize::from(value[60])];
        Self {
            state: value[0],
            lane: format!("{}:{}", value[0], String::from_utf8_lossy(kind)),
            due: number(8, 16),
            wake: number(24, 30),
        }
    }
}

fn ask<T: FromRedisValue>(admin: &mut redis::Connection, words: &[&str]) -> T {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.query(admin).unwrap()
}
