//! Servers that are full: what is there may end, move or be kept; what is new must wait.

use super::consistent::{ask, assert_consistent};
use super::*;
use crate::store::Renewal;

/// A server that is full to the last byte, and for all that comes.
fn fill(server: &RedisServer) {
    ask::<()>(&mut server.admin(), &["CONFIG", "SET", "maxmemory", "1"]);
}

fn renewal(task: &Task) -> Renewal {
    Renewal {
        id: task.id,
        version: task.version,
        started: true,
    }
}

fn end(task: &Task, ending: Ending) -> Step {
    Step::end(task.id, task.version, ending)
}

/// A caller that repeats what failed finds out whether there is room again: no error here is for good.
#[tokio::test]
async fn a_full_server_takes_nothing_new_for_now_and_half_of_nothing() {
    for shards in [1, 4] {
        let server = RedisServer::start();
        let store = open(&server, shards);
        // One whose id is asked for elsewhere, and one whose lease has ended.
        let pointed = (1..).find(|n| is_pointed(shards, *n)).unwrap();
        let lapsed = add(&store, named(900, "lapsed")).await;
        let fleeting = Claim {
            lease: NONE,
            ..claim(1)
        };
        store.arrive(&[wake(&lapsed)], &fleeting).await.unwrap();
        let before = store.find(&lapsed.id.into()).await.unwrap();
        fill(&server);
        for row in [
            due(4),
            named(pointed, "a"),
            NewRow {
                replace: true,
                ..named(5, "lapsed")
            },
        ] {
            let inserted = store.insert(vec![row]).await;
            let error = inserted
                .and_then(|mut inserted| inserted.found.remove(0))
                .unwrap_err();
            assert!(
                error.is_transient() && error.to_string().contains("OOM"),
                "{error}"
            );
        }
        assert_eq!(store.find(&lapsed.id.into()).await.unwrap(), before);
        assert_consistent(&server, shards, "a full server");
        ask::<()>(&mut server.admin(), &["CONFIG", "SET", "maxmemory", "0"]);
        add(&store, due(4)).await;
        add(&store, named(pointed, "a")).await;
        assert_consistent(&server, shards, "a server that has room again");
    }
}

fn is_pointed(shards: u16, n: u64) -> bool {
    use crate::store::redis::shards::{of_id, of_key};
    shards == 1 || of_id(shards, id(n)) != of_key(shards, &KIND.into(), &"a".into())
}

#[tokio::test]
async fn on_a_full_server_what_is_there_is_kept_and_goes_its_way() {
    for shards in [1, 4] {
        let server = RedisServer::start();
        let store = open_without_history(&server, shards);
        for n in 1..=12 {
            add(&store, named(n, &n.to_string())).await;
        }
        add(&store, later(20)).await;
        let lost = NewRow {
            overdue_after: NONE,
            ..later(21)
        };
        add(&store, lost).await;
        let first = store.ready(&claim(8)).await.unwrap().found;
        let fleeting = Claim {
            lease: NONE,
            ..claim(1)
        };
        store.ready(&fleeting).await.unwrap();
        fill(&server);

        let renewals: Vec<_> = first.iter().map(renewal).collect();
        assert_eq!(store.renew(&renewals, LONG).await.unwrap(), [Guarded::Done; 8]);
        let hop = Step::hop(id(20), 1, LONG);
        assert_eq!(store.advance(&[hop]).await.unwrap(), [Guarded::Done]);
        let swept = store.sweep(&claim(0), &sweep()).await.unwrap().found;
        assert_eq!((swept.expired, swept.early.len()), (1, 1));
        assert_eq!(store.ready(&claim(9)).await.unwrap().found.len(), 4);
        let later = |text: &str| Ending::Retry {
            after: LONG,
            overdue_after: LONG,
            error: text.repeat(1_000),
        };
        let dead = Ending::Dead {
            error: "gave up".to_owned(),
            give_back: false,
        };
        let again = Ending::Again {
            after: LONG,
            overdue_after: LONG,
        };
        let endings = [
            Ending::Done,
            dead,
            later("no luck"),
            again,
            Ending::Release,
            Ending::Cancelled,
            Ending::Done,
            Ending::Done,
        ];
        let settlements = first.iter().zip(endings).map(|(task, ending)| end(task, ending));
        let settled = store.advance(&settlements.collect::<Vec<_>>()).await.unwrap();
        assert_eq!(settled, [Guarded::Done; 8]);
        assert!(change(&store, id(20), Verb::Cancel).await.is_done());
        let reschedule = Verb::Reschedule {
            due: When::After(LONG),
            overdue_after: LONG,
        };
        assert!(change(&store, first[2].id, reschedule).await.is_done());
        assert!(
            change(&store, first[1].id, Verb::Redrive { overdue_after: LONG })
                .await
                .is_done()
        );
        assert_eq!(store.purge(9).await.unwrap(), 5);
        assert_consistent(&server, shards, "a full server");
    }
}
