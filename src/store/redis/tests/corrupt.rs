//! Rows and members of indexes that this release has not written.

use proptest::prelude::*;

use super::consistent::{self, ask, tag};
use super::*;
use crate::store::redis::codec;
use crate::store::{Ahead, Target};

fn set(admin: &mut redis::Connection, hash: &str, field: &[u8], value: &[u8]) {
    let mut command = redis::cmd("HSET");
    command.arg(hash).arg(field).arg(value);
    command.exec(admin).unwrap();
}

fn get(admin: &mut redis::Connection, hash: &str, field: &[u8]) -> Vec<u8> {
    let mut command = redis::cmd("HGET");
    command.arg(hash).arg(field).query(admin).unwrap()
}

/// What the head of a row may have become in other hands.
fn garbled(value: &[u8]) -> Vec<Vec<u8>> {
    let mut values: Vec<_> = (0..value.len()).map(|end| value[..end].to_vec()).collect();
    values.push(vec![0xFF; 99]);
    values.push(vec![0xFF; 200]);
    values.push([value, b"more"].concat());
    let changed = |at: usize, byte| {
        let mut value = value.to_vec();
        value[at] = byte;
        value
    };
    // Another format, another state, a flag of a later release, a long kind, no text.
    values.extend([
        changed(0, 9),
        changed(17, 9),
        changed(26, 16),
        changed(84, 0xFF),
        changed(99, 0xFF),
    ]);
    values
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_named_and_keeps_no_other_from_running() {
    let server = RedisServer::start();
    let store = open(&server, 1);
    let row = NewRow {
        overdue_after: NONE,
        ..named(1, "a")
    };
    let rows = "{delayline:tasks:0}:rows";
    let mut admin = server.admin();
    add(&store, row.clone()).await;
    // As it is after an attempt, with every text that a row may have.
    for ending in [
        Ending::Retry {
            after: NONE,
            overdue_after: NONE,
            error: "no luck".to_owned(),
        },
        Ending::Release,
    ] {
        let claimed = store.ready(&claim(1)).await.unwrap().found.remove(0);
        let settlement = Step::end(claimed.id, claimed.version, ending);
        assert_eq!(store.advance(&[settlement]).await.unwrap(), [Guarded::Done]);
    }
    let value = get(&mut admin, rows, id(1).as_bytes());
    for garbled in garbled(&value) {
        ask::<()>(&mut admin, &["FLUSHALL"]);
        let task = add(&store, row.clone()).await;
        for index in ["due", "wake"] {
            let mut command = redis::cmd("ZADD");
            command
                .arg(format!("{{delayline:tasks:0}}:{index}:0:{KIND}"))
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
            note: Default::default(),
        }]);
        changed.await.unwrap().found.remove(0).unwrap_err();
        // A kind that is no text is another kind to the scripts.
        let is_other = garbled.len() == value.len() && garbled[99] == 0xFF;
        let by_key = (!is_other).then(|| named(3, "a"));
        for row in [due(1)].into_iter().chain(by_key) {
            let inserted = store.insert(vec![row, due(9)]).await.unwrap().found;
            let error = inserted[0].as_ref().unwrap_err();
            assert!(error.to_string().contains(&task.id.to_string()), "{error}");
            assert!(inserted[1].is_ok());
        }
        assert!(change(&store, id(9), Verb::Cancel).await.is_done());
        let other = add(
            &store,
            NewRow {
                overdue_after: NONE,
                ..due(2)
            },
        )
        .await;
        for version in 1..=5 {
            let wake = Wake {
                version,
                ..wake(&task)
            };
            let polled = store.arrive(&[wake], &claim(9)).await.unwrap().found;
            assert_eq!(polled.claimed, []);
        }
        let mut claimed = store.sweep(&claim(9), &sweep()).await.unwrap().found.claimed;
        claimed.extend(store.ready(&claim(9)).await.unwrap().found);
        assert_eq!(claimed.len(), 1, "{claimed:?}");
        assert_eq!(claimed[0].id, other.id);
        if is_other {
            continue;
        }
        let kept = get(&mut admin, rows, task.id.as_bytes());
        assert_eq!(kept, garbled, "it is not touched");
        // A process that can read it, of a later release perhaps, finds it where it belongs.
        set(&mut admin, rows, task.id.as_bytes(), &value);
        for index in ["due", "wake"] {
            let key = format!("{{delayline:tasks:0}}:{index}:0:{KIND}");
            let mut command = redis::cmd("ZSCORE");
            let score: Option<f64> = command
                .arg(key)
                .arg(task.id.as_bytes())
                .query(&mut admin)
                .unwrap();
            assert!(score.is_some(), "{index}");
        }
    }
}

#[tokio::test]
async fn rows_that_cannot_be_read_hold_up_no_other_however_many_they_are() {
    let server = RedisServer::start();
    let store = open(&server, 1);
    let at = |millis| When::At(crate::Timestamp::from_millis(millis));
    let spoilt = (1..=200).map(|n| NewRow {
        due: at(1),
        overdue_after: NONE,
        ..due(n)
    });
    store.insert(spoilt.collect()).await.unwrap();
    for n in 1..=200 {
        set(
            &mut server.admin(),
            "{delayline:tasks:0}:rows",
            id(n).as_bytes(),
            b"no row",
        );
    }
    store.insert(vec![due(900)]).await.unwrap();
    let claimed = store.ready(&claim(100)).await.unwrap().found;
    assert_eq!(claimed.iter().map(|task| task.id).collect::<Vec<_>>(), [id(900)]);
    let swept = store.sweep(&claim(100), &sweep()).await.unwrap().found;
    assert_eq!(swept.claimed, []);
}

/// Members that have no row, and such as are of a row which is elsewhere.
#[tokio::test]
async fn members_that_do_not_belong_to_an_index_hold_up_no_row() {
    const NO_ROWS: [&[u8]; 3] = [b"", b"short", &[7; 16]];
    for shards in [1, 4] {
        let server = RedisServer::start();
        let store = open(&server, shards);
        let done = add(&store, due(2)).await;
        assert!(change(&store, done.id, Verb::Cancel).await.is_done());
        let mut admin = server.admin();
        let put = |admin: &mut redis::Connection, key: String, score: i64, member: &[u8]| {
            let mut command = redis::cmd("ZADD");
            command.arg(key).arg(score).arg(member).exec(admin).unwrap();
        };
        let lanes = [format!("0:{KIND}"), "0:ghost".to_owned(), format!("1:{KIND}")];
        for shard in 0..shards {
            let tag = tag(shard);
            for (index, lane) in ["due", "wake"]
                .iter()
                .flat_map(|index| lanes.iter().map(move |lane| (index, lane)))
            {
                for (score, member) in (1..).zip(NO_ROWS.into_iter().chain([done.id.as_bytes().as_slice()])) {
                    put(&mut admin, format!("{tag}:{index}:{lane}"), score, member);
                }
            }
            put(&mut admin, format!("{tag}:wake:2:{KIND}"), 1, &[7; 16]);
            for first in ["first:wake:0", "first:wake:1", "first:wake:2", "first:due:0"] {
                for kind in [KIND, "ghost", "nothing", ""] {
                    put(&mut admin, format!("{tag}:{first}"), 1, kind.as_bytes());
                }
            }
            let name = format!("{KIND}\0a");
            set(&mut admin, &format!("{tag}:live"), name.as_bytes(), b"garbage");
            put(
                &mut admin,
                format!("{tag}:named"),
                0,
                format!("{name}\0garbage").as_bytes(),
            );
        }
        let claim = Claim {
            room: [(KIND.into(), 1), ("ghost".into(), 1)].into(),
            ..claim(1)
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
            let found = store.sweep(&claim, &sweep).await.unwrap().found;
            assert_eq!(found, crate::store::PollResult::default(), "{shards} shards");
            assert_eq!(store.ready(&claim).await.unwrap().found, []);
            assert_eq!(store.purge(9).await.unwrap(), 0);
            store.find(&TaskId::from_bytes([7; 16]).into()).await.unwrap();
        }
        for key in ["due:0", "wake:0", "wake:1", "wake:2"].map(|index| format!("{index}:{KIND}")) {
            for shard in 0..shards {
                let members: Vec<Vec<u8>> = ask(
                    &mut admin,
                    &["ZRANGE", &format!("{}:{key}", tag(shard)), "0", "-1"],
                );
                assert!(
                    !members.iter().any(|member| NO_ROWS.contains(&&**member)),
                    "{key}: {members:?}"
                );
            }
        }
        let kept = store.find(&done.id.into()).await.unwrap().unwrap();
        assert_eq!(kept.state, State::Cancelled);
        let next = add(&store, named(3, "a")).await;
        assert_eq!(store.ready(&claim).await.unwrap().found[0].id, next.id);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(codec::task(id(1), &bytes, b""));
        drop(codec::task(id(1), b"", &bytes));
        drop(codec::lean(id(1), &bytes));
    }
}

/// What `docs/redis.md` has for a pause that cannot be read.
const REMOVE: &str = "
    local id = string.gsub(ARGV[1], '%x%x', function(two) return string.char(tonumber(two, 16)) end)
    for _, name in ipairs({'payloads', 'notes'}) do redis.call('HDEL', KEYS[1] .. ':' .. name, id) end
    return {redis.call('ZREM', KEYS[1] .. ':due:0:delayline.paused', id), redis.call('HDEL', KEYS[1] .. ':rows', id)}";

#[tokio::test]
async fn a_pause_that_cannot_be_read_is_found_by_what_its_errors_say() {
    for shards in [1, 4] {
        let server = RedisServer::start();
        let store = open(&server, shards);
        let scheduler = crate::Scheduler::new(store.clone());
        scheduler.pause("k", None, "the bank is down").await.unwrap();
        let mut admin = server.admin();
        let find = |admin: &mut redis::Connection, shard: u16| {
            let rows = consistent::hash(admin, shard, "rows");
            rows.into_iter().next().map(|(id, _)| (shard, id))
        };
        let (shard, id) = (0..shards).find_map(|shard| find(&mut admin, shard)).unwrap();
        set(&mut admin, &format!("{}:rows", tag(shard)), &id, b"no row");
        let error = scheduler.paused().await.unwrap_err();
        assert!(error.is_transient());
        let error = error.to_string();
        for refused in [
            scheduler.resume("k").await.unwrap_err(),
            scheduler.pause("k", None, "anew").await.unwrap_err(),
        ] {
            assert!(refused.is_transient());
            assert_eq!(refused.to_string(), error);
        }
        let (_, digits) = error.split_once("the row ").unwrap();
        let (digits, _) = digits.split_once(' ').unwrap();
        assert_eq!(u16::from_str_radix(&digits[28..], 16).unwrap() % shards, shard);
        let removed: Vec<usize> = ask(&mut admin, &["EVAL", REMOVE, "1", &tag(shard), digits]);
        assert_eq!(removed, [1, 1]);
        assert_eq!(scheduler.paused().await.unwrap(), []);
        scheduler.pause("k", None, "anew").await.unwrap();
        assert!(scheduler.resume("k").await.unwrap());
        assert!(
            !store
                .kinds(State::Scheduled, None, 9)
                .await
                .unwrap()
                .contains(&"delayline.paused".into())
        );
    }
}
