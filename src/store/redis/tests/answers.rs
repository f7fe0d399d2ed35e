//! Answers that are lost on their way.

use std::net::SocketAddr;

use tokio::task::JoinHandle;

use super::*;
use crate::store::proxy::{Network, Proxy};

/// The store over a line of its own.
async fn far(server: &RedisServer) -> (RedisStore, Proxy) {
    let target: SocketAddr = server.url()["redis://".len()..].parse().unwrap();
    let proxy = Proxy::start(target).await;
    let store = RedisStore::new(&proxy.url(&server.url())).unwrap();
    // It has asked what it asks before its first write: what is lost then is the answer to a write.
    store.check().await.unwrap();
    (store, proxy)
}

/// The row as the call has made it, whose answer is still on its way.
async fn unanswered<T>(near: &RedisStore, before: &Task, call: &JoinHandle<T>) -> Task {
    loop {
        let row = near.find(&before.id.into()).await.unwrap().unwrap();
        if row.version > before.version {
            return row;
        }
        assert!(!call.is_finished(), "it was not done");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replacement_whose_answer_was_lost_is_not_done_again_whatever_has_become_of_it() {
    let server = RedisServer::start();
    let near = open(&server, 1);
    let (far, proxy) = far(&server).await;
    for (n, now) in (1..).zip([State::Scheduled, State::Running, State::Done]) {
        let key = n.to_string();
        let before = add(&near, named(n, &key)).await;
        far.find(&before.id.into()).await.unwrap();
        proxy.set(Network::DeafClient);
        let other = NewRow {
            replace: true,
            payload: b"other".to_vec(),
            ..named(100 + n, &key)
        };
        let replacing = tokio::spawn({
            let far = far.clone();
            async move { insert(&far, other).await }
        });
        let row = unanswered(&near, &before, &replacing).await;
        if now != State::Scheduled {
            let looked = near.arrive(&[wake(&row)], &claim(1)).await.unwrap();
            assert_eq!(looked.found.claimed.len(), 1, "{looked:?} {row:?}");
        }
        if now == State::Done {
            let end = Step::end(row.id, row.version + 1, Ending::Done);
            assert_eq!(near.advance(&[end]).await.unwrap(), [Guarded::Done]);
        }
        proxy.reset();
        proxy.set(Network::Open);
        let answer = replacing.await.unwrap();
        let Scheduled::Replaced(after) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!((after.id, after.state), (before.id, now));
        assert_eq!(after.payload, b"other");
        assert_eq!(near.find(&id(100 + n).into()).await.unwrap(), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_answer_was_lost_is_answered_as_what_it_did() {
    let server = RedisServer::start();
    let near = open(&server, 1);
    let (far, proxy) = far(&server).await;
    // The server has the script already, and is not asked for it first.
    assert_eq!(change(&near, id(0), Verb::Cancel).await, Answer::NotFound);
    let verbs = [
        Verb::Cancel,
        Verb::RunNow { look_in: LONG },
        Verb::Dismiss,
        Verb::Redrive { look_in: LONG },
    ];
    for (n, verb) in (1..).zip(verbs) {
        let key = n.to_string();
        let of_dead = matches!(verb, Verb::Dismiss | Verb::Redrive { .. });
        let before = match of_dead {
            true => dead(&near, n, &key).await,
            false => add(&near, named(n, &key)).await,
        };
        // Its connection is there already.
        far.find(&before.id.into()).await.unwrap();
        proxy.set(Network::DeafClient);
        let changing = tokio::spawn({
            let far = far.clone();
            async move { change(&far, id(n), verb).await }
        });
        unanswered(&near, &before, &changing).await;
        proxy.reset();
        proxy.set(Network::Open);
        let answer = changing.await.unwrap();
        let Answer::Done(after) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(after.version, before.version + 1);
    }
}
