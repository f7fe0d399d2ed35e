//! All is carried over as it is, whatever interrupts it.

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::*;
use crate::Target;
use crate::backend::Resharding;

#[tokio::test]
async fn rows_of_every_state_are_moved_as_they_are() {
    let server = RedisServer::start();
    for (before, after) in [(1, 5), (5, 3), (3, 1)] {
        let () = ask(&mut server.admin(), &["FLUSHALL"]);
        let store = open(&server, before);
        let dead = dead(&store, 1, "dead").await;
        let mut tasks = vec![dead];
        for n in 2..40 {
            let row = if n % 2 == 0 {
                due(n)
            } else {
                named(n, &n.to_string())
            };
            add(&store, row).await;
        }
        for task in store.ready(&claim(12)).await.unwrap().found {
            let ending = match task.id.as_bytes()[15] % 3 {
                0 => Ending::Done,
                1 => Ending::Cancelled,
                _ => continue,
            };
            store.settle(vec![end(&task, ending)]).await.unwrap();
        }
        for n in 2..40 {
            tasks.push(store.find(&id(n).into()).await.unwrap().unwrap());
        }
        let mut told = Vec::new();
        store.reshard(after, |so_far| told.push(so_far)).await.unwrap();
        let other = open(&server, 1);
        for task in tasks {
            assert_eq!(other.find(&task.id.into()).await.unwrap().as_ref(), Some(&task));
            if let Some(key) = &task.key {
                let target = Target::Key(task.kind.clone(), key.clone());
                assert_eq!(other.find(&target).await.unwrap(), Some(task));
            }
        }
        let last: Resharding = *told.last().unwrap();
        assert_eq!((last.moved, last.left), (39, 0));
        let layouts = Layouts {
            current: Layout {
                epoch: 2,
                slots: after,
            },
            former: Some(Layout {
                epoch: 1,
                slots: before,
            }),
        };
        assert_over(&server, &other, layouts, &format!("{before} to {after}")).await;
        // There is nothing to do.
        store.reshard(after, |_| ()).await.unwrap();
        assert_eq!(store.database.layouts_now().await.unwrap().current.epoch, 2);
    }
}

#[tokio::test]
async fn more_rows_than_one_call_takes_are_moved() {
    let server = RedisServer::start();
    let store = open(&server, 1);
    let rows = (1..=1_500).map(|n| named(n, &n.to_string())).collect();
    store.insert(rows).await.unwrap();
    // Somebody has put there what nobody can name.
    let mut admin = server.admin();
    let () = ask(
        &mut admin,
        &["HSET", "{delayline:tasks:1:0}:rows", "stray", "row"],
    );
    let layouts = Layouts {
        current: Layout { epoch: 2, slots: 7 },
        former: Some(Layout { epoch: 1, slots: 1 }),
    };
    store.reshard(7, |_| ()).await.unwrap();
    assert_over(&server, &store, layouts, "many").await;
    assert_eq!(store.ready(&claim(2_000)).await.unwrap().found.len(), 1_500);
}

#[tokio::test]
async fn one_mover_goes_on_where_another_was_interrupted() {
    let server = RedisServer::start();
    let store = open(&server, 3);
    let rows = (1..=300).map(|n| named(n, &n.to_string())).collect();
    store.insert(rows).await.unwrap();
    for part in 0..5 {
        let (stop, stopped) = mpsc::unbounded_channel();
        let mut stopped = stopped;
        let mut left = part;
        let mover = open(&server, 3);
        let moved = mover.reshard(8, move |_| {
            if left == 0 {
                let _ = stop.send(());
            }
            left -= i32::from(left > 0);
        });
        tokio::select! {
            biased;
            _ = stopped.recv() => {}
            moved = moved => moved.unwrap(),
        }
    }
    // Several at once, for the same and for others.
    let mut movers = JoinSet::new();
    for slots in [8, 8, 5] {
        let mover = open(&server, 3);
        movers.spawn(async move { mover.reshard(slots, |_| ()).await });
    }
    while let Some(ended) = movers.join_next().await {
        ended.unwrap().unwrap();
    }
    let now = store.database.layouts_now().await.unwrap();
    assert_eq!(now.former, None);
    assert_consistent(&server, now.current, "all of them");
    assert_eq!(store.ready(&claim(999)).await.unwrap().found.len(), 300);
}

#[tokio::test]
async fn a_layout_that_the_server_has_lost_is_kept_again_with_the_former_one() {
    let server = RedisServer::start();
    let store = open(&server, 2);
    add(&store, due(1)).await;
    let layouts = begin(&store, 4).await;
    let () = ask(&mut server.admin(), &["DEL", "{delayline:tasks}:layout"]);
    assert_eq!(store.database.layouts_now().await.unwrap(), layouts);
    // Nobody knows of it any more: what is said is that, and another change mends it.
    let () = ask(
        &mut server.admin(),
        &["HSET", "{delayline:tasks}:layout", "epoch", "1", "slots", "2"],
    );
    let () = ask(
        &mut server.admin(),
        &["HDEL", "{delayline:tasks}:layout", "former"],
    );
    let late = open(&server, 2);
    let error = late.find(&id(1).into()).await.unwrap_err();
    assert!(
        error.is_transient() && error.to_string().contains("closed"),
        "{error}"
    );
    late.reshard(4, |_| ()).await.unwrap();
    assert!(late.find(&id(1).into()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_number_of_slots_that_cannot_be_is_refused() {
    let store = RedisStore::connect("redis://127.0.0.1:1").unwrap();
    for slots in [0, 1_025] {
        let error = store.reshard(slots, |_| ()).await.unwrap_err();
        assert!(matches!(error, crate::Error::Invalid { .. }), "{error}");
    }
}
