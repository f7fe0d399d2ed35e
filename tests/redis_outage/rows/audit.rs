//! Reads the servers directly, to check that rows and indexes agree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use delayline::TaskId;
use redis::FromRedisValue;
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

use crate::servers::RedisCluster;
use crate::{SAFETY, now};

/// Over how many shards rows are spread in a Cluster.
pub(super) const SHARDS: u16 = 64;
/// How often to check for live rows.
const EVERY: Duration = Duration::from_millis(100);
/// The state's number in rows.
const SCHEDULED: u8 = 0;
const RUNNING: u8 = 1;
const DEAD: u8 = 3;

/// Returns the shard of a row, if the task has no key. Ids of this crate end with it.
pub(super) fn shard_of(id: TaskId) -> u16 {
    let bytes = id.as_bytes();
    u16::from_be_bytes([bytes[14], bytes[15]]) % SHARDS
}

/// The beginning of the keys of a shard.
pub(super) fn tag(shard: u16) -> String {
    format!("{{delayline:tasks:{shard}}}")
}

/// The rows of a store in a Cluster.
pub(super) struct Audit<'a> {
    cluster: &'a RedisCluster,
    /// The beginnings of each shard's keys, and their slots.
    tags: Vec<String>,
    slots: Vec<u16>,
}

/// The parts of a row that indexes have.
#[derive(Debug)]
struct Row {
    state: u8,
    kind: Vec<u8>,
    due: i64,
    wake: i64,
    #[allow(dead_code, reason = "shown of a row that is stuck")]
    version: i64,
    #[allow(dead_code, reason = "shown of a row that is stuck")]
    stalls: i64,
}

type Index = BTreeMap<String, BTreeMap<Vec<u8>, i64>>;

impl<'a> Audit<'a> {
    pub(super) fn of(cluster: &'a RedisCluster) -> Self {
        let tags: Vec<_> = (0..SHARDS).map(tag).collect();
        let slots = block_in_place(|| tags.iter().map(|tag| cluster.slot_of(tag)).collect());
        Self { cluster, tags, slots }
    }

    /// Waits until no row waits or runs.
    pub(super) async fn wait_until_none_lives(&self) {
        let waiting = async {
            while block_in_place(|| !self.live(&mut self.shards()).is_empty()) {
                sleep(EVERY).await;
            }
        };
        if timeout(SAFETY, waiting).await.is_err() {
            panic!("rows are stuck: {:#?}", block_in_place(|| self.all_of_live()));
        }
    }

    /// Returns the rows that wait or run, each with its shard and its id.
    fn live(&self, shards: &mut Shards) -> Vec<(usize, TaskId, Row)> {
        let mut live = Vec::new();
        for (shard, tag) in self.tags.iter().enumerate() {
            for (id, row) in rows(tag, shards.of(shard)) {
                if matches!(row.state, SCHEDULED | RUNNING) {
                    live.push((shard, TaskId::from_bytes(id.try_into().unwrap()), row));
                }
            }
        }
        live
    }

    /// Describes live rows, for a failed assertion.
    fn all_of_live(&self) -> Vec<String> {
        let mut shards = self.shards();
        let mut told = Vec::new();
        for (shard, id, row) in self.live(&mut shards) {
            let own = shard_of(id);
            told.push(format!(
                "{id} in shard {shard}, now {}: {row:?}; its id says {own}",
                now().as_millis()
            ));
        }
        told
    }

    /// Asserts that the indexes match the rows; returns how many rows there are.
    pub(super) fn assert_consistent(&self) -> usize {
        let mut count = 0;
        let mut shards = self.shards();
        for (number, tag) in self.tags.iter().enumerate() {
            let admin = shards.of(number);
            let mut expected = Index::new();
            for (id, row) in rows(tag, admin) {
                count += 1;
                let (state, kind) = (row.state, String::from_utf8_lossy(&row.kind).into_owned());
                let mut index = |name: String, member: &[u8], time: i64| {
                    let index = expected.entry(format!("{tag}:{name}")).or_default();
                    let first = index.entry(member.to_vec()).or_insert(time);
                    *first = time.min(*first);
                };
                index(format!("due:{state}:{kind}"), &id, row.due);
                index(format!("kinds:{state}"), &row.kind, 0);
                index(format!("first:due:{state}"), &row.kind, row.due);
                if state != DEAD {
                    index(format!("wake:{state}:{kind}"), &id, row.wake);
                    index(format!("first:wake:{state}"), &row.kind, row.wake);
                }
            }
            let mut found = Index::new();
            let names: Vec<String> = ask(admin, &["KEYS", &format!("{tag}:*")]);
            for name in names {
                let is_index = ["due:", "wake:", "first:", "kinds:"]
                    .iter()
                    .any(|index| name[tag.len() + 1..].starts_with(index));
                if is_index {
                    let members: Vec<(Vec<u8>, f64)> =
                        ask(admin, &["ZRANGE", &name, "0", "-1", "WITHSCORES"]);
                    let members = members.into_iter().map(|(id, at)| (id, at as i64));
                    found.insert(name, members.collect());
                }
            }
            assert!(
                found == expected,
                "the indexes of {tag} are not those of its rows"
            );
        }
        count
    }

    /// Connections to the masters that have the shards now.
    fn shards(&self) -> Shards {
        let masters = self.cluster.masters_of(&self.slots);
        let admin = |&node: &usize| (node, self.cluster.admin(node));
        Shards {
            admins: BTreeSet::from_iter(&masters).into_iter().map(admin).collect(),
            masters,
        }
    }
}

/// The master of each shard, by its number.
struct Shards {
    masters: Vec<usize>,
    admins: BTreeMap<usize, redis::Connection>,
}

impl Shards {
    fn of(&mut self, shard: usize) -> &mut redis::Connection {
        self.admins.get_mut(&self.masters[shard]).unwrap()
    }
}

fn rows(tag: &str, admin: &mut redis::Connection) -> Vec<(Vec<u8>, Row)> {
    let rows: Vec<(Vec<u8>, Vec<u8>)> = ask(admin, &["HGETALL", &format!("{tag}:rows")]);
    rows.into_iter()
        .map(|(id, value)| (id, Row::read(&value)))
        .collect()
}

impl Row {
    /// Reads the head of a row at fixed places.
    fn read(value: &[u8]) -> Self {
        let number = |from: usize, to: usize| {
            let mut bytes = [0; 8];
            bytes[..to - from].copy_from_slice(&value[from..to]);
            i64::from_le_bytes(bytes)
        };
        let long = usize::try_from(number(83, 87)).unwrap();
        Self {
            state: value[17],
            kind: value[99..99 + long].to_vec(),
            due: number(18, 26),
            wake: number(9, 17),
            version: number(1, 9),
            stalls: number(75, 79),
        }
    }
}

fn ask<T: FromRedisValue>(admin: &mut redis::Connection, words: &[&str]) -> T {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.query(admin).unwrap()
}
