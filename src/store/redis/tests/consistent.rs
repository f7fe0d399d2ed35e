//! Whether indexes say what rows say.

use std::collections::{BTreeMap, BTreeSet};

use super::redis_server::RedisServer;
use crate::store::redis::codec;
use crate::store::redis::shards::home;
use crate::store::state_code;
use crate::{Task, TaskId};

type Index = BTreeMap<String, BTreeMap<Vec<u8>, f64>>;

/// Reads every key of a store and asserts that its indexes are those of its rows, and that each row is where it belongs.
#[track_caller]
pub(super) fn assert_consistent(server: &RedisServer, shards: u16, what: &str) {
    let mut admin = server.admin();
    for shard in 0..shards {
        let tag = tag(shard);
        let tasks = tasks(&mut admin, shard, what);
        let mut expected = Index::new();
        for task in &tasks {
            let lane = codec::lane(task.state, &task.kind);
            let digit = state_code::of(task.state);
            let (id, kind) = (
                task.id.as_bytes().to_vec(),
                task.kind.as_str().as_bytes().to_vec(),
            );
            let mut index = |name: String, member: &Vec<u8>, score: f64| {
                let of = expected.entry(format!("{tag}:{name}")).or_default();
                let least = of.entry(member.clone()).or_insert(score);
                *least = least.min(score);
            };
            let due = task.due_at.as_millis() as f64;
            index(format!("due:{lane}"), &id, due);
            index(format!("kinds:{digit}"), &kind, 0.0);
            index(format!("first:due:{digit}"), &kind, due);
            if let Some(wake_at) = task.wake_at {
                let wake = wake_at.as_millis() as f64;
                index(format!("wake:{lane}"), &id, wake);
                index(format!("first:wake:{digit}"), &kind, wake);
            }
            assert_eq!(
                home(shards, task.id, &task.kind, task.key.as_ref()),
                shard,
                "{what}: {task:?}"
            );
        }
        let mut found = Index::new();
        let names: Vec<String> = ask(&mut admin, &["KEYS", &format!("{tag}:*")]);
        for name in names {
            if !["rows", "payloads", "notes", "live", "named"].contains(&&name[tag.len() + 1..]) {
                let members: Vec<(Vec<u8>, f64)> =
                    ask(&mut admin, &["ZRANGE", &name, "0", "-1", "WITHSCORES"]);
                found.insert(name, members.into_iter().collect());
            }
        }
        assert_eq!(found, expected, "{what}");
        let payloads: Vec<(Vec<u8>, Vec<u8>)> = hash(&mut admin, shard, "payloads");
        let with_payload: BTreeSet<_> = payloads.into_iter().map(|(id, _)| id).collect();
        let expected = tasks
            .iter()
            .filter(|task| !task.payload.is_empty() || !task.headers.is_empty());
        let expected: BTreeSet<_> = expected.map(|task| task.id.as_bytes().to_vec()).collect();
        assert_eq!(with_payload, expected, "{what}");
        assert_keys(&mut admin, shard, &tasks, what);
    }
}

fn tasks(admin: &mut redis::Connection, shard: u16, what: &str) -> Vec<Task> {
    let rows: Vec<(Vec<u8>, Vec<u8>)> = hash(admin, shard, "rows");
    let payloads: BTreeMap<Vec<u8>, Vec<u8>> = hash(admin, shard, "payloads").into_iter().collect();
    let task = |(id, head): (Vec<u8>, Vec<u8>)| {
        let payload = payloads.get(&id).cloned().unwrap_or_default();
        let id = TaskId::from_bytes(id.try_into().expect("16 bytes"));
        codec::task(id, &head, &payload).unwrap_or_else(|error| panic!("{what}: {error}"))
    };
    rows.into_iter().map(task).collect()
}

/// Asserts that live rows have their keys, and that the others are among those of their keys.
#[track_caller]
fn assert_keys(admin: &mut redis::Connection, shard: u16, tasks: &[Task], what: &str) {
    let (mut live, mut others) = (BTreeMap::new(), BTreeSet::new());
    for task in tasks {
        let Some(key) = &task.key else { continue };
        match task.state.is_live() {
            true => {
                let other = live.insert(codec::name(&task.kind, key), task.id.as_bytes().to_vec());
                assert_eq!(other, None, "{what}: a second live row of {key}");
            }
            false => drop(others.insert(codec::entry(task, &codec::name(&task.kind, key)))),
        }
    }
    let found: BTreeMap<_, _> = hash(admin, shard, "live").into_iter().collect();
    assert_eq!(found, live, "{what}");
    let named: Vec<Vec<u8>> = ask(admin, &["ZRANGE", &format!("{}:named", tag(shard)), "0", "-1"]);
    assert_eq!(named.into_iter().collect::<BTreeSet<_>>(), others, "{what}");
}

pub(super) fn tag(shard: u16) -> String {
    format!("{{delayline:tasks:{shard}}}")
}

pub(super) fn hash(admin: &mut redis::Connection, shard: u16, name: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    ask(admin, &["HGETALL", &format!("{}:{name}", tag(shard))])
}

/// Asserts that at one moment no key has two live rows. One script over all shards, which a server by itself allows.
pub(super) fn most_live_of_a_key(admin: &mut redis::Connection, shards: u16) -> u64 {
    const COUNT: &str = "
        local counts, most = {}, 0
        for _, key in ipairs(KEYS) do
          local fields = redis.call('HGETALL', key)
          for at = 1, #fields, 2 do
            local value = fields[at + 1]
            local state = string.byte(value, 18)
            local kind, of = struct.unpack('<I4I4', value, 84)
            local name = string.sub(value, 100, 99 + kind + of)
            if state <= 1 and of < 4294967295 then
              counts[name] = (counts[name] or 0) + 1
              most = math.max(most, counts[name])
            end
          end
        end
        return most";
    let keys: Vec<_> = (0..shards).map(|shard| format!("{}:rows", tag(shard))).collect();
    redis::cmd("EVAL")
        .arg(COUNT)
        .arg(keys.len())
        .arg(keys)
        .query(admin)
        .expect("the script")
}

pub(super) fn ask<T: redis::FromRedisValue>(admin: &mut redis::Connection, words: &[&str]) -> T {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.query(admin).expect("an answer")
}
