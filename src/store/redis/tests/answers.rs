//! Answers that are lost on their way.

use std::net::SocketAddr;
use std::time::Instant;

use tokio::task::JoinHandle;

use super::consistent::{ask, tag};
use super::*;
use crate::store::proxy::{Network, Proxy};
use crate::store::redis::table::RedisTable;
use crate::store::table::{Table, Write};

/// The store over a line of its own.
async fn far(server: &RedisServer) -> (RedisStore, Proxy) {
    let target: SocketAddr = server.url()["redis://".len()..].parse().unwrap();
    let proxy = Proxy::start(target).await;
    let store = RedisStore::new(&proxy.url(&server.url())).unwrap();
    // It has asked what it asks before its first write: what is lost then is the answer to a write.
    store.check().await.unwrap();
    (store, proxy)
}

/// Waits until a call has had its effect, whose answer is still on its way.
async fn unanswered<T>(near: &RedisStore, before: &Task, call: &JoinHandle<T>) {
    loop {
        let row = near.find(&before.id.into()).await.unwrap().unwrap();
        if row.version > before.version {
            return;
        }
        assert!(!call.is_finished(), "it was not done");
    }
}

/// Cuts the line of a call whose effect is there, and gives what it is answered.
async fn cut<T>(near: &RedisStore, proxy: &Proxy, before: &Task, call: JoinHandle<T>) -> T {
    unanswered(near, before, &call).await;
    // A worker claims what is due before a second try could come.
    near.ready(&claim(9)).await.unwrap();
    proxy.reset();
    proxy.set(Network::Open);
    call.await.unwrap()
}

/// Until the rows are read, answers come; that of the write does not.
async fn deafen(proxy: &Proxy, store: &RedisStore, before: &Task) {
    store.find(&before.id.into()).await.unwrap();
    proxy.set(Network::Open);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_answered_of_a_change_whose_answer_was_lost_is_never_wrong() {
    let server = RedisServer::start();
    let near = open(&server, 1);
    let (far, proxy) = far(&server).await;
    // The server has the script already, and is not asked for it first.
    assert_eq!(change(&near, id(0), Verb::Cancel).await, Answer::NotFound);
    let verbs = [
        Verb::Cancel,
        Verb::RunNow { overdue_after: LONG },
        Verb::Dismiss,
        Verb::Redrive { overdue_after: LONG },
    ];
    let mut unknown = 0;
    for (n, verb) in (1..).zip(verbs.iter().cycle().take(40)) {
        let key = n.to_string();
        let of_dead = matches!(verb, Verb::Dismiss | Verb::Redrive { .. });
        let before = match of_dead {
            true => dead(&near, n, &key).await,
            false => {
                add(
                    &near,
                    NewRow {
                        due: When::After(LONG),
                        ..named(n, &key)
                    },
                )
                .await
            }
        };
        deafen(&proxy, &far, &before).await;
        let changing = tokio::spawn({
            let (far, verb) = (far.clone(), verb.clone());
            async move {
                let change = Change {
                    target: id(n).into(),
                    verb,
                    expect: Expect::Anything,
                    note: Default::default(),
                };
                far.change(vec![change])
                    .await
                    .and_then(|mut said| said.found.remove(0))
            }
        });
        // Between its read and its write, or after both: the moment is chance.
        tokio::time::sleep(Duration::from_micros(150 * (n % 10))).await;
        proxy.set(Network::DeafClient);
        tokio::time::sleep(Duration::from_millis(5)).await;
        let is_done = near.find(&id(n).into()).await.unwrap().unwrap().version > before.version;
        let answer = match is_done {
            true => cut(&near, &proxy, &before, changing).await,
            false => {
                proxy.reset();
                proxy.set(Network::Open);
                changing.await.unwrap()
            }
        };
        match answer {
            Ok(Answer::Done(after)) => assert_eq!(after.version, before.version + 1),
            Ok(answer) => panic!("{verb:?} was answered {answer:?}"),
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                unknown += 1;
            }
        }
    }
    println!("of 40 changes it is not known of {unknown} what came of them");
}

/// The client of a Cluster sends a call again by itself when its connection is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_too_what_is_answered_is_never_wrong() {
    let cluster = RedisCluster::start();
    let open = || {
        let builder = RedisStore::builder(&cluster.url()).shards(1);
        builder.build().expect("good settings")
    };
    let (near, far) = (open(), open());
    assert_eq!(change(&near, id(0), Verb::Cancel).await, Answer::NotFound);
    let mut unknown = 0;
    for n in 1..=60 {
        let row = NewRow {
            due: When::After(LONG),
            ..named(n, &n.to_string())
        };
        let before = add(&near, row).await;
        far.find(&before.id.into()).await.unwrap();
        let changing = tokio::spawn({
            let far = far.clone();
            async move {
                let change = Change {
                    target: id(n).into(),
                    verb: Verb::RunNow { overdue_after: LONG },
                    expect: Expect::Anything,
                    note: Default::default(),
                };
                far.change(vec![change])
                    .await
                    .and_then(|mut said| said.found.remove(0))
            }
        });
        tokio::time::sleep(Duration::from_micros(100 * (n % 20))).await;
        tokio::task::block_in_place(|| cluster.ask_masters(&["CLIENT", "KILL", "TYPE", "normal"]));
        // A worker claims what is due before a second try could come.
        while near.ready(&claim(9)).await.is_err() {}
        match changing.await.unwrap() {
            Ok(Answer::Done(after)) => assert_eq!(after.version, before.version + 1),
            Ok(answer) => panic!("run now was answered {answer:?}"),
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                unknown += 1;
            }
        }
        while !change(&near, id(n), Verb::Cancel).await.is_done() {
            let claimed = near.find(&id(n).into()).await.unwrap().unwrap();
            let end = Step::end(claimed.id, claimed.version, Ending::Done);
            if near
                .advance(&[end])
                .await
                .is_ok_and(|came| came == [Guarded::Done])
            {
                break;
            }
        }
    }
    println!("of 60 changes it is not known of {unknown} what came of them");
}

/// The answer of a write is lost for sure: nothing comes back until the write is done, and then the connection is cut, so that the
/// client of the Cluster sends it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_a_cluster_is_sent_twice_is_answered_as_it_was_the_first_time() {
    let cluster = RedisCluster::start();
    let master = tokio::task::block_in_place(|| cluster.master_of(cluster.slot_of(&tag(0))));
    let mut admin = cluster.admin(master);
    let proxy = Proxy::start(cluster.address(master).parse().unwrap()).await;
    // Clients go where a node says that it is.
    let port = proxy.address().port().to_string();
    ask::<()>(&mut admin, &["CONFIG", "SET", "cluster-announce-port", &port]);
    let builder = RedisStore::builder(&format!("redis+cluster://{}", proxy.address()));
    let store = builder.shards(1).build().expect("good settings");
    let table = RedisTable(store.database.clone());
    // The server knows the script then, and is not asked for it first.
    add(&store, later(1)).await;
    assert!(change(&store, id(1), Verb::Cancel).await.is_done());
    // Where the machine stands still, the client may give up, or ask again by itself, before the connection is cut: so it is
    // tried for as long as that takes, and told what came of it.
    let (begun, mut n, mut sent_twice, mut unknown) = (Instant::now(), 1, 0, Vec::new());
    while sent_twice < 3 {
        n += 1;
        assert!(
            begun.elapsed() < Duration::from_secs(300),
            "at try {n} the client has sent {sent_twice} twice; of these nothing is known, and the others were over before the \
             cut: {unknown:?}"
        );
        let before = add(&store, later(n)).await;
        let row = Task {
            version: 2,
            state: State::Cancelled,
            payload: Vec::new(),
            ..before.clone()
        };
        let write = Write {
            before,
            guards_wake: true,
            row,
            refill: false,
            noted: Default::default(),
        };
        proxy.set(Network::DeafClient);
        let table = table.clone();
        let writing = tokio::spawn(async move { table.write(&[write]).await });
        let version = |admin: &mut redis::Connection| {
            let mut command = redis::cmd("HGET");
            let command = command.arg(format!("{}:rows", tag(0))).arg(id(n).as_bytes());
            let head: Vec<u8> = command.query(admin).unwrap();
            head[1]
        };
        while version(&mut admin) == 1 && !writing.is_finished() {}
        let was_cut = !writing.is_finished();
        proxy.reset();
        proxy.set(Network::Open);
        match writing.await.unwrap() {
            Ok(came) => {
                assert!(came[0].is_written(), "{came:?}");
                assert_eq!(version(&mut admin), 2);
                sent_twice += u32::from(was_cut);
            }
            // Nothing is known of it then.
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                unknown.push(error.to_string());
            }
        }
    }
}

/// Finds a row for a caller that waits for a moment only, again and again.
async fn found_by_the_impatient(store: &RedisStore, task: &Task) -> Option<Task> {
    loop {
        let found = tokio::time::timeout(Duration::from_millis(500), store.find(&task.id.into())).await;
        if let Ok(Ok(found)) = found {
            return found;
        }
        tokio::task::yield_now().await;
    }
}

/// Within a minute, though no call waits for as long as the store would.
#[tokio::test]
async fn a_dead_connection_is_replaced_though_all_callers_give_up_soon() {
    let server = RedisServer::start();
    let (far, proxy) = far(&server).await;
    let task = add(&far, due(1)).await;
    proxy.set(Network::FrozenSoFar);
    let found = tokio::time::timeout(Duration::from_secs(60), found_by_the_impatient(&far, &task));
    assert_eq!(found.await, Ok(Some(task)));
}

/// The client of a Cluster learns from no redirection that a replica has taken over from a master that hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_hangs_is_left_though_all_callers_give_up_soon() {
    let cluster = RedisCluster::start();
    let store = RedisStore::new(&cluster.url()).unwrap();
    let task = add(&store, due(1)).await;
    let slot = slot_of(&cluster, &store, &task).await;
    let master = cluster.master_of(slot);
    cluster.signal(master, "STOP");
    cluster.wait_for_failover(slot, master);
    let found = tokio::time::timeout(Duration::from_secs(60), found_by_the_impatient(&store, &task));
    assert_eq!(found.await, Ok(Some(task)));
}
