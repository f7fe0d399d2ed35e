//! Whether indexes say what rows say.

use std::collections::{BTreeMap, BTreeSet};

use super::redis_server::RedisServer;
use crate::redis::Layout;
use crate::store::redis::{codec, keys};
use crate::{Task, TaskId};

type Index = BTreeMap<String, BTreeMap<Vec<u8>, f64>>;

/// Reads every key of a store and asserts that its indexes are those of its rows, and that nobody waits for a key.
#[track_caller]
pub(super) fn assert_consistent(server: &RedisServer, layout: Layout, what: &str) {
    let mut admin = server.admin();
    let mut tasks: Vec<Task> = Vec::new();
    for slot in layout.all() {
        let tag = slot.tag("delayline:tasks");
        let rows: Vec<(Vec<u8>, Vec<u8>)> = ask(&mut admin, &["HGETALL", &format!("{tag}:rows")]);
        let mut expected = Index::new();
        let mut lanes = BTreeSet::new();
        for (id, value) in rows {
            let id = TaskId::from_bytes(id.try_into().expect("16 bytes"));
            let task = codec::task(id, &value)
                .expect("a row")
                .expect("no intent is left");
            assert_eq!(layout.slot(id), slot, "{what}: {task:?}");
            let lane = codec::lane(task.state, &task.kind);
            let mut index = |name: &str, time: crate::Timestamp| {
                let of = expected.entry(format!("{tag}:{name}:{lane}")).or_default();
                of.insert(id.as_bytes().to_vec(), time.as_millis() as f64);
            };
            index("due", task.due_at);
            if let Some(wake_at) = task.wake_at {
                index("wake", wake_at);
            }
            lanes.insert(lane);
            tasks.push(task);
        }
        let mut found = Index::new();
        let names: Vec<String> = ask(&mut admin, &["KEYS", &format!("{tag}:*")]);
        for name in names {
            if name.starts_with(&format!("{tag}:due:")) || name.starts_with(&format!("{tag}:wake:")) {
                let members: Vec<(Vec<u8>, f64)> =
                    ask(&mut admin, &["ZRANGE", &name, "0", "-1", "WITHSCORES"]);
                found.insert(name, members.into_iter().collect());
            }
        }
        assert_eq!(found, expected, "{what}");
        let kept: BTreeSet<String> = ask(&mut admin, &["SMEMBERS", &format!("{tag}:lanes")]);
        assert_eq!(kept, lanes, "{what}");
        let waiting: u64 = ask(&mut admin, &["ZCARD", &format!("{tag}:intents")]);
        assert_eq!(waiting, 0, "{what}");
    }
    assert_keys(&mut admin, layout, &tasks, what);
}

/// Asserts that entries name the rows of their keys, and that the live one is the first.
#[track_caller]
fn assert_keys(admin: &mut redis::Connection, layout: Layout, tasks: &[Task], what: &str) {
    let mut named = BTreeMap::<String, BTreeSet<TaskId>>::new();
    for slot in layout.all() {
        let entries: Vec<(String, Vec<u8>)> = ask(
            admin,
            &["HGETALL", &format!("{}:keys", slot.tag("delayline:tasks"))],
        );
        for (name, entry) in entries {
            assert_eq!(entry.len() % 16, 8, "{what}: {name:?}");
            let ids: Vec<_> = entry[8..]
                .chunks(16)
                .map(|id| TaskId::from_bytes(id.try_into().expect("16 bytes")))
                .collect();
            let live = tasks
                .iter()
                .filter(|task| task.state.is_live() && is_named(task, &name))
                .map(|task| task.id)
                .collect::<Vec<_>>();
            assert!(live.len() <= 1, "{what}: {live:?} are live under {name:?}");
            if let [live] = live[..] {
                assert_eq!((entry[0], ids[0]), (1, live), "{what}: {name:?}");
            }
            let (kind, key) = name.split_once('\0').expect("a kind and a key");
            assert_eq!(keys::slot_of(layout, &kind.into(), &key.into()), slot, "{what}");
            named.insert(name, ids.into_iter().collect());
        }
    }
    let mut expected = BTreeMap::<String, BTreeSet<TaskId>>::new();
    for task in tasks {
        if let Some(key) = &task.key {
            expected
                .entry(codec::name(&task.kind, key))
                .or_default()
                .insert(task.id);
        }
    }
    assert_eq!(named, expected, "{what}");
}

fn is_named(task: &Task, name: &str) -> bool {
    let key = task.key.as_ref();
    key.is_some_and(|key| codec::name(&task.kind, key) == name)
}

/// Asserts that at one moment no key has two live rows. One script over all slots, which a server by itself allows.
pub(super) fn most_live_of_a_key(admin: &mut redis::Connection, layouts: &[Layout]) -> u64 {
    const COUNT: &str = "
        local counts, most, seen = {}, 0, {}
        for _, key in ipairs(KEYS) do
          local fields = redis.call('HGETALL', key)
          for at = 1, #fields, 2 do
            local id, value = fields[at], fields[at + 1]
            local state = string.byte(value, 1)
            local kind, of = string.byte(value, 61), string.byte(value, 62)
            local name = string.sub(value, 69, 68 + kind + of)
            if state <= 1 and of > 0 and not seen[id] then
              counts[name] = (counts[name] or 0) + 1
              most = math.max(most, counts[name])
            end
            -- The newest epoch comes first: what an older one says of the row is past.
            seen[id] = true
          end
        end
        return most";
    let keys: Vec<_> = layouts
        .iter()
        .rev()
        .flat_map(|layout| layout.all())
        .map(|slot| format!("{}:rows", slot.tag("delayline:tasks")))
        .collect();
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
