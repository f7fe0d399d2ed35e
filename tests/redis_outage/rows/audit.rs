//! Looks into the servers: whether rows and indexes agree.

use std::collections::BTreeMap;

use delayline::TaskId;
use redis::FromRedisValue;

use crate::servers::RedisCluster;

/// Over so many shards rows are spread in a Cluster.
pub(super) const SHARDS: u16 = 64;
/// As rows have them.
const SCHEDULED: u8 = 0;
const RUNNING: u8 = 1;
const DEAD: u8 = 3;

/// The shard that has the row of an id, if the task has no key. Ids of this crate end with what says so.
pub(super) fn shard_of(id: TaskId) -> u16 {
    let bytes = id.as_bytes();
    u16::from_be_bytes([bytes[14], bytes[15]]) % SHARDS
}

/// What the keys of a shard begin with.
pub(super) fn tag(shard: u16) -> String {
    format!("{{delayline:tasks:{shard}}}")
}

/// The rows of a store in a Cluster.
pub(super) struct Audit<'a> {
    cluster: &'a RedisCluster,
}

/// One row, as far as indexes know it.
struct Row {
    state: u8,
    kind: Vec<u8>,
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
        let rows = self.shards().flat_map(|(tag, mut admin)| rows(&tag, &mut admin));
        rows.filter(|(_, row)| matches!(row.state, SCHEDULED | RUNNING))
            .count()
    }

    /// Asserts that indexes are those of the rows; says how many rows there are.
    pub(super) fn assert_consistent(&self) -> usize {
        let mut count = 0;
        for (tag, mut admin) in self.shards() {
            let mut expected = Index::new();
            for (id, row) in rows(&tag, &mut admin) {
                count += 1;
                let (state, kind) = (row.state, String::from_utf8_lossy(&row.kind).into_owned());
                let mut index = |name: String, member: &[u8], time: i64| {
                    let index = expected.entry(format!("{tag}:{name}")).or_default();
                    let first = index.entry(member.to_vec()).or_insert(time);
                    *first = time.min(*first);
                };
                index(format!("due:{state}:{kind}"), &id, row.due);
                index(format!("kinds:{state}"), &row.kind, 0);
                if state == SCHEDULED {
                    index("first:due:0".to_owned(), &row.kind, row.due);
                }
                if state != DEAD {
                    index(format!("wake:{state}:{kind}"), &id, row.wake);
                    index(format!("first:wake:{state}"), &row.kind, row.wake);
                }
            }
            let mut found = Index::new();
            let names: Vec<String> = ask(&mut admin, &["KEYS", &format!("{tag}:*")]);
            for name in names {
                if !["rows", "payloads", "keys", "elsewhere"].contains(&&name[tag.len() + 1..]) {
                    let members: Vec<(Vec<u8>, f64)> =
                        ask(&mut admin, &["ZRANGE", &name, "0", "-1", "WITHSCORES"]);
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

    /// The tag of each shard, and the master that has it.
    fn shards(&self) -> impl Iterator<Item = (String, redis::Connection)> {
        (0..SHARDS).map(|number| {
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
        let kind = &value[86..86 + usize::from(value[78])];
        Self {
            state: value[0],
            kind: kind.to_vec(),
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
