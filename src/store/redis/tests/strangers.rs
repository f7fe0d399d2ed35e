//! Rows and members that somebody else has put there, and servers that forget.

use proptest::prelude::*;

use super::consistent::{ask, assert_consistent};
use super::*;
use crate::store::redis::answer::Items;
use crate::store::redis::codec;
use crate::store::redis::database::Told;
use crate::store::redis::sweep::SWEEP;
use crate::store::{Ahead, Page};
use crate::{Kind, Target};

/// How long the rest of a row is here: no headers, and a payload.
const REST: usize = 4 + b"payload".len();

fn set(admin: &mut redis::Connection, hash: &str, field: &[u8], value: &[u8]) {
    let mut command = redis::cmd("HSET");
    command.arg(hash).arg(field).arg(value);
    command.exec(admin).unwrap();
}

fn get(admin: &mut redis::Connection, hash: &str, field: &[u8]) -> Vec<u8> {
    let mut command = redis::cmd("HGET");
    command.arg(hash).arg(field).query(admin).unwrap()
}

/// What a row may have become in other hands.
fn garbled(value: &[u8]) -> Vec<Vec<u8>> {
    let mut values: Vec<_> = (0..value.len()).map(|end| value[..end].to_vec()).collect();
    // As long as the payload is not cut into, there is no telling.
    values.truncate(value.len() - b"payload".len());
    values.push(vec![0xFF; 68]);
    values.push(vec![0xFF; 200]);
    let mut other_state = value.to_vec();
    other_state[0] = 9;
    values.push(other_state);
    let mut long_kind = value.to_vec();
    long_kind[60] = 0xFF;
    values.push(long_kind);
    let mut no_text = value.to_vec();
    no_text[68] = 0xFF;
    values.push(no_text);
    values
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_named_and_keeps_no_other_from_running() {
    let server = RedisServer::start();
    let store = open(&server, 1);
    let row = NewRow {
        look_in: NONE,
        ..named(1, "a")
    };
    let rows = "{delayline:tasks:1:0}:rows";
    let mut admin = server.admin();
    add(&store, row.clone()).await;
    // As it is after an attempt, with every text that a row may have.
    for ending in [
        Ending::Retry {
            after: NONE,
            look_in: NONE,
            error: "no luck".to_owned(),
        },
        Ending::Release,
    ] {
        let claimed = store.ready(&claim(1)).await.unwrap().found.remove(0);
        let settlement = Settlement {
            id: claimed.id,
            version: claimed.version,
            ending,
        };
        assert_eq!(store.settle(vec![settlement]).await.unwrap(), [true]);
    }
    let value = get(&mut admin, rows, id(1).as_bytes());
    for garbled in garbled(&value) {
        ask::<()>(&mut admin, &["FLUSHALL"]);
        let task = add(&store, row.clone()).await;
        for index in ["due", "wake"] {
            let mut command = redis::cmd("ZADD");
            command
                .arg(format!("{{delayline:tasks:1:0}}:{index}:0:{KIND}"))
                .arg(1)
                .arg(task.id.as_bytes());
            command.exec(&mut admin).unwrap();
        }
        set(&mut admin, rows, task.id.as_bytes(), &garbled);
        let targets: [Target; 2] = [task.id.into(), (KIND, "a").into()];
        for target in targets {
            let error = store.find(&target).await.unwrap_err();
            assert!(error.to_string().contains(&task.id.to_string()), "{error}");
            assert!(!error.is_transient());
        }
        let changed = store.change(vec![Change {
            target: task.id.into(),
            verb: Verb::Cancel,
            expect: Expect::Anything,
        }]);
        changed.await.unwrap_err();
        store.insert(vec![due(1)]).await.unwrap_err();
        let other = add(
            &store,
            NewRow {
                look_in: NONE,
                ..due(2)
            },
        )
        .await;
        for version in 1..=5 {
            let wake = Wake {
                version,
                ..wake(&task)
            };
            let looked = store.arrive(&[wake], &claim(9)).await.unwrap().found;
            assert_eq!(looked.claimed, []);
        }
        let mut claimed = store.sweep(&claim(9), &sweep()).await.unwrap().found.claimed;
        claimed.extend(store.ready(&claim(9)).await.unwrap().found);
        assert_eq!(claimed.len(), 1, "{claimed:?}");
        assert_eq!(claimed[0].id, other.id);
        // A script does not look into the rest of a row; but what it cannot read it does not touch.
        if garbled.len() < value.len() - REST {
            assert_eq!(get(&mut admin, rows, task.id.as_bytes()), garbled);
        }
    }
}

#[tokio::test]
async fn members_that_do_not_belong_to_an_index_are_taken_away() {
    for slots in [1, 4] {
        let server = RedisServer::start();
        let store = open(&server, slots);
        let layout = store.database.layout().await.unwrap();
        let soon = add(
            &store,
            NewRow {
                look_in: NONE,
                ..later(1)
            },
        )
        .await;
        let done = add(&store, due(2)).await;
        assert!(change(&store, done.id, Verb::Cancel).await.is_done());
        let mut admin = server.admin();
        for slot in layout.all() {
            let tag = slot.tag("delayline:tasks");
            for index in ["due", "wake"] {
                for lane in [format!("0:{KIND}"), "0:ghost".to_owned(), format!("1:{KIND}")] {
                    let members: [&[u8]; 5] =
                        [b"", b"short", &[7; 16], done.id.as_bytes(), soon.id.as_bytes()];
                    for (score, member) in (1..).zip(members) {
                        let mut command = redis::cmd("ZADD");
                        command
                            .arg(format!("{tag}:{index}:{lane}"))
                            .arg(score)
                            .arg(member);
                        command.exec(&mut admin).unwrap();
                    }
                    ask::<u64>(&mut admin, &["SADD", &format!("{tag}:lanes"), &lane]);
                }
            }
            for lane in ["", "0", "9:x", "0:nobody", "2:nobody", "text"] {
                ask::<u64>(&mut admin, &["SADD", &format!("{tag}:lanes"), lane]);
            }
            let name = format!("{KIND}\0a");
            set(&mut admin, &format!("{tag}:keys"), name.as_bytes(), b"garbage");
        }
        let claim = Claim {
            room: [(KIND.into(), 9), ("ghost".into(), 9)].into(),
            ..claim(9)
        };
        let ahead = Ahead {
            within: 2 * LONG,
            limit: 9,
        };
        let sweep = Sweep {
            retake: NONE,
            ahead: Some(ahead),
            ..sweep()
        };
        for _ in 0..3 {
            assert_eq!(store.ready(&claim).await.unwrap().found, []);
            let found = store.sweep(&claim, &sweep).await.unwrap().found;
            assert_eq!((found.claimed.len(), found.expired), (0, 0));
            assert!(found.early.iter().all(|row| row.wake.id == soon.id));
            store.upcoming(ahead).await.unwrap();
            store.purge(9).await.unwrap();
        }
        let upcoming = store.upcoming(ahead).await.unwrap().found;
        assert_eq!(upcoming.len(), 1);
        add(&store, named(3, "a")).await;
        for slot in layout.all() {
            // Those that no verb has a use for.
            let tag = slot.tag("delayline:tasks");
            for lane in ["", "0", "9:x", "text"] {
                ask::<u64>(&mut admin, &["SREM", &format!("{tag}:lanes"), lane]);
            }
            let name = format!("{KIND}\0a");
            if slot != crate::store::redis::keys::slot_of(layout, &KIND.into(), &"a".into()) {
                ask::<u64>(&mut admin, &["HDEL", &format!("{tag}:keys"), &name]);
            }
            for index in ["due:1", "due:0"] {
                // Only what is due or overdue is looked at; the rest is no trouble to anybody.
                for member in [&b""[..], b"short", &[7; 16], done.id.as_bytes()] {
                    let key = format!("{tag}:{index}:{KIND}");
                    let mut command = redis::cmd("ZSCORE");
                    let score: Option<f64> = command.arg(&key).arg(member).query(&mut admin).unwrap();
                    assert!(score.is_none() || index == "due:1", "{key}");
                }
                if index == "due:1" {
                    ask::<u64>(&mut admin, &["DEL", &format!("{tag}:{index}:{KIND}")]);
                    ask::<u64>(
                        &mut admin,
                        &["SREM", &format!("{tag}:lanes"), &format!("1:{KIND}")],
                    );
                }
            }
        }
        assert_consistent(&server, layout, &format!("{slots} slots"));
    }
}

#[tokio::test]
async fn a_row_that_has_moved_on_since_it_was_found_is_not_swept() {
    let server = RedisServer::start();
    let store = open(&server, 1);
    let task = add(
        &store,
        NewRow {
            look_in: NONE,
            ..due(1)
        },
    )
    .await;
    let database = &store.database;
    let layout = database.layout().await.unwrap();
    for (version, said) in [(task.version + 1, 3), (task.version, 0), (task.version, 3)] {
        let mut call = database.script(&SWEEP, layout.slot(task.id), Told::No, layout);
        call.arg("tester").arg(1).arg(1);
        call.arg(task.id.as_bytes()).arg(version).arg(1);
        let mut items = Items::of(database.write(call).await.unwrap().found).unwrap();
        assert_eq!(items.items().unwrap().number().unwrap(), said);
    }
}

#[tokio::test]
async fn a_server_that_forgets_all_is_as_a_new_one() {
    for slots in [1, 16] {
        let server = RedisServer::start();
        let (store, other) = (open(&server, slots), open(&server, slots));
        let before = add(&store, named(1, "a")).await;
        store.sweep(&claim(1), &sweep()).await.unwrap();
        ask::<()>(&mut server.admin(), &["FLUSHALL"]);
        assert_eq!(store.find(&before.id.into()).await.unwrap(), None);
        assert_eq!(
            store
                .arrive(&[wake(&before)], &claim(1))
                .await
                .unwrap()
                .found
                .stale,
            1
        );
        assert_eq!(store.sweep(&claim(1), &sweep()).await.unwrap().found.claimed, []);
        let after = add(&store, named(1, "a")).await;
        assert_eq!(
            other.find(&(KIND, "a").into()).await.unwrap(),
            Some(after.clone())
        );
        assert_eq!(other.ready(&claim(1)).await.unwrap().found[0].id, after.id);
        let layout = other.database.layouts_now().await.unwrap().current;
        assert_eq!(layout.slots, slots);
        assert_consistent(&server, layout, "after all was forgotten");
    }
}

#[tokio::test]
async fn a_server_that_forgets_scripts_is_told_them_again() {
    let server = RedisServer::start();
    let store = open(&server, 4);
    for n in 1..=5 {
        let mut admin = server.admin();
        ask::<()>(&mut admin, &["SCRIPT", "FLUSH"]);
        let task = add(&store, named(n, &n.to_string())).await;
        ask::<()>(&mut admin, &["SCRIPT", "FLUSH"]);
        assert_eq!(store.ready(&claim(1)).await.unwrap().found[0].id, task.id);
    }
}

#[tokio::test]
async fn a_server_that_would_remove_tasks_is_refused() {
    let with = |policy| RedisServer::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", policy]);
    let error = open(&with("allkeys-lru"), 2).check().await.unwrap_err();
    assert!(
        error.to_string().contains("allkeys-lru") && !error.is_transient(),
        "{error}"
    );
    open(&with("noeviction"), 2).check().await.unwrap();
}

/// Whether it has room again is asked by whoever repeats what failed: no error here is for good.
#[tokio::test]
async fn a_full_server_takes_no_new_rows_for_now_and_lets_those_it_has_end() {
    let server = RedisServer::start();
    let mut admin = server.admin();
    let store = open(&server, 1);
    for n in 1..=3 {
        add(&store, due(n)).await;
    }
    let tasks = store.ready(&claim(2)).await.unwrap().found;
    ask::<()>(&mut admin, &["CONFIG", "SET", "maxmemory", "1"]);
    let error = store.insert(vec![due(4)]).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let again = Ending::Again {
        after: LONG,
        look_in: LONG,
    };
    let endings = tasks.iter().zip([Ending::Done, again]);
    let endings = endings.map(|(task, ending)| Settlement {
        id: task.id,
        version: task.version,
        ending,
    });
    assert_eq!(store.settle(endings.collect()).await.unwrap(), [true; 2]);
    assert_eq!(store.ready(&claim(9)).await.unwrap().found.len(), 1);
    let cancelled = change(&store, tasks[1].id, Verb::Cancel).await;
    assert!(matches!(cancelled, Answer::Done(_)), "{cancelled:?}");
    ask::<()>(&mut admin, &["CONFIG", "SET", "maxmemory", "0"]);
    add(&store, due(4)).await;
}

#[tokio::test]
async fn the_number_of_slots_is_what_is_kept() {
    let server = RedisServer::start();
    let task = add(&open(&server, 3), named(1, "a")).await;
    let other = open(&server, 7);
    assert_eq!(other.find(&task.id.into()).await.unwrap(), Some(task));
    assert_eq!(other.database.layout().await.unwrap().slots, 3);
}

#[tokio::test]
async fn what_cannot_be_kept_apart_is_refused() {
    let server = RedisServer::start();
    let store = open(&server, 1);
    for row in [
        NewRow {
            kind: "a\0b".into(),
            ..due(1)
        },
        NewRow {
            kind: "k".repeat(101).as_str().into(),
            ..due(1)
        },
        named(1, "a\0b"),
        named(1, &"k".repeat(256)),
    ] {
        let error = store.insert(vec![due(2), row]).await.unwrap_err();
        assert!(matches!(error, crate::Error::Invalid { .. }), "{error}");
        assert_eq!(store.find(&id(2).into()).await.unwrap(), None, "all or nothing");
    }
}

#[tokio::test]
async fn times_that_no_task_is_due_at_are_kept_as_well_as_can_be() {
    use crate::Timestamp;
    let server = RedisServer::start();
    let store = open(&server, 1);
    let at = |time| NewRow {
        due: When::At(Timestamp::from_millis(time)),
        ..due(1)
    };
    for (given, kept) in [
        (i64::MIN, i64::MIN),
        (i64::MIN + 1, i64::MIN),
        (-1, -1),
        (0, 0),
        (i64::MAX, Timestamp::MAX.as_millis()),
    ] {
        let task = add(&store, at(given)).await;
        assert_eq!(task.due_at.as_millis(), kept);
        assert_eq!(store.find(&task.id.into()).await.unwrap(), Some(task.clone()));
        let page = Page {
            kind: Kind::from(KIND),
            state: State::Scheduled,
            after: None,
            limit: 9,
        };
        assert_eq!(store.list(&page).await.unwrap(), std::slice::from_ref(&task));
        let after = Some((task.due_at, task.id));
        assert_eq!(store.list(&Page { after, ..page }).await.unwrap(), []);
        let reschedule = Verb::Reschedule {
            due: When::At(Timestamp::from_millis(given)),
            look_in: LONG,
        };
        let expecting = Change {
            target: task.id.into(),
            verb: reschedule,
            expect: Expect::Due(task.due_at),
        };
        assert!(store.change(vec![expecting]).await.unwrap().found[0].is_done());
        ask::<()>(&mut server.admin(), &["FLUSHALL"]);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(codec::task(id(1), &bytes));
        drop(codec::brief(id(1), &bytes));
    }
}
