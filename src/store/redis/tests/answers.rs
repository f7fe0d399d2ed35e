//! Answers that are lost on their way.

use std::net::SocketAddr;

use super::*;
use crate::store::proxy::{Network, Proxy};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_answer_was_lost_is_answered_as_what_it_did() {
    let server = RedisServer::start();
    let near = open(&server, 1);
    let target: SocketAddr = server.url()["redis://".len()..].parse().unwrap();
    let proxy = Proxy::start(target).await;
    let far = RedisStore::new(&proxy.url(&server.url())).unwrap();
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
        while near.find(&before.id.into()).await.unwrap().unwrap().version == before.version {
            assert!(!changing.is_finished(), "it was not done");
        }
        proxy.reset();
        proxy.set(Network::Open);
        let answer = changing.await.unwrap();
        let Answer::Done(after) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(after.version, before.version + 1);
    }
}
