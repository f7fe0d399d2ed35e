//! Another number of slots: what tests of that have in common.

mod callers;
mod carried;
mod steps;

use super::consistent::{ask, assert_consistent};
use super::*;
use crate::redis::{Layout, Layouts};
use crate::store::redis::moving::Moving;
use crate::store::redis::{codec, keys, mover};

const KEY: &str = "d";

/// Begins another epoch, which nothing is carried over to yet.
async fn begin(store: &RedisStore, slots: u16) -> Layouts {
    let layout = store.database.layouts_now().await.unwrap().current;
    mover::begin(&store.database, layout, slots).await.unwrap();
    store.database.layouts_now().await.unwrap()
}

fn moving<'a>(store: &'a RedisStore, layouts: Layouts) -> Moving<'a> {
    Moving::of(&store.database, layouts).expect("a change is under way")
}

/// The row of an id as it is in the former slots.
async fn read(moving: &Moving<'_>, n: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let ids = [id(n).as_bytes().to_vec()].into_iter();
    let former = moving.former;
    moving
        .fetch("rows", ids, |id| {
            former.slot(TaskId::from_bytes(id.try_into().unwrap()))
        })
        .await
        .unwrap()
}

async fn read_key(moving: &Moving<'_>, key: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let names = [codec::name(&KIND.into(), &key.into()).into_bytes()].into_iter();
    let former = moving.former;
    let slot_of = |name: &[u8]| keys::slot_of_name(former, name);
    moving.fetch("keys", names, slot_of).await.unwrap()
}

async fn finish(store: &RedisStore) {
    let layouts = store.database.layouts_now().await.unwrap();
    store.reshard(layouts.current.slots, |_| ()).await.unwrap();
}

/// Asserts that of an epoch there is nothing left but that its slots are closed, for a while.
#[track_caller]
fn assert_gone(server: &RedisServer, layout: Layout) {
    let mut admin = server.admin();
    let tag = format!("{{delayline:tasks:{}:", layout.epoch);
    let mut names: Vec<String> = ask(&mut admin, &["KEYS", "*"]);
    names.retain(|name| name.starts_with(&tag));
    let closed = |slot: crate::redis::Slot| format!("{}:closed", slot.tag("delayline:tasks"));
    let mut expected: Vec<_> = layout.all().map(closed).collect();
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
    for name in names {
        assert!(ask::<i64>(&mut admin, &["PTTL", &name]) > 0, "{name}");
    }
}

/// Asserts that the new slots have all, and that nothing of the change is left there.
async fn assert_over(server: &RedisServer, store: &RedisStore, layouts: Layouts, what: &str) {
    let now = store.database.layouts_now().await.unwrap();
    let expected = Layouts {
        former: None,
        ..layouts
    };
    assert_eq!(now, expected, "{what}");
    assert_consistent(server, now.current, what);
    assert_gone(server, layouts.former.expect("there was one"));
    let mut admin = server.admin();
    let names: Vec<String> = ask(&mut admin, &["KEYS", "*:gone"]);
    assert!(names.is_empty(), "{names:?}");
}

fn end(task: &Task, ending: Ending) -> Settlement {
    Settlement {
        id: task.id,
        version: task.version,
        ending,
    }
}
