//! Temporary.

use super::consistent::ask;
use super::*;

fn stat(admin: &mut redis::Connection) -> (u64, u64, u64) {
    let info: String = ask(admin, &["INFO", "commandstats"]);
    let (mut scripts, mut commands, mut usec) = (0, 0, 0);
    for line in info.lines() {
        let Some((name, rest)) = line
            .strip_prefix("cmdstat_")
            .and_then(|l| l.split_once(":calls="))
        else {
            continue;
        };
        let calls: u64 = rest.split(',').next().unwrap().parse().unwrap();
        commands += calls;
        if name.starts_with("eval") {
            scripts += calls;
            usec += rest
                .split_once("usec=")
                .unwrap()
                .1
                .split(',')
                .next()
                .unwrap()
                .parse::<u64>()
                .unwrap();
        }
    }
    (scripts, commands, usec)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore]
async fn measure() {
    const N: u64 = 20_000;
    let server = RedisServer::start();
    let store = open(&server, 1);
    let mut admin = server.admin();
    add(&store, due(9_000_000)).await;
    let mut last = stat(&mut admin);
    let mut began = std::time::Instant::now();
    let mut say = |what: &str| {
        let now = stat(&mut admin);
        println!(
            "{what:32} {:7} scripts {:9} commands {:9} usec {:6} ms",
            now.0 - last.0,
            now.1 - last.1,
            now.2 - last.2,
            began.elapsed().as_millis()
        );
        last = now;
        began = std::time::Instant::now();
    };
    for part in (1..=N).collect::<Vec<_>>().chunks(500) {
        store
            .insert(part.iter().map(|n| due(*n)).collect())
            .await
            .unwrap();
    }
    say("insert in 500");
    let mut set = tokio::task::JoinSet::new();
    for caller in 0..64 {
        let store = store.clone();
        set.spawn(async move {
            for n in 0..N / 64 {
                add(
                    &store,
                    named(100_000 + caller * 1_000 + n, &format!("k{caller}-{n}")),
                )
                .await;
            }
        });
    }
    set.join_all().await;
    say("insert by 64");
    let mut done = 0;
    while done < 2 * N / 2 {
        let claimed = store.ready(&claim(500)).await.unwrap().found;
        done += claimed.len() as u64;
        let ends: Vec<_> = claimed
            .iter()
            .map(|task| Step {
                claimed: Some(std::sync::Arc::new(task.clone())),
                ..Step::end(task.id, task.version, Ending::Done)
            })
            .collect();
        store.advance(&ends).await.unwrap();
    }
    say("claim and end in 500");
    for part in (0..64)
        .map(|c| (0..N / 64).map(move |n| (c, n)).collect::<Vec<_>>())
        .take(32)
    {
        let changes = part.iter().map(|(c, n)| Change {
            target: (KIND, format!("k{c}-{n}")).into(),
            verb: Verb::Reschedule {
                due: When::After(LONG),
                look_in: LONG,
            },
            expect: Expect::Anything,
            note: Default::default(),
        });
        store.change(changes.collect()).await.unwrap();
    }
    say("move in 312");
    let mut set = tokio::task::JoinSet::new();
    for c in 0..64 {
        let store = store.clone();
        set.spawn(async move {
            for n in 0..N / 64 {
                let change = Change {
                    target: (KIND, format!("k{c}-{n}")).into(),
                    verb: Verb::Cancel,
                    expect: Expect::Anything,
                    note: Default::default(),
                };
                store.change(vec![change]).await.unwrap();
            }
        });
    }
    set.join_all().await;
    say("cancel by 64");
    let s = sweep();
    for _ in 0..20 {
        store.sweep(&claim(1), &s).await.unwrap();
    }
    say("20 sweeps");
    let memory: String = ask(&mut server.admin(), &["INFO", "memory"]);
    println!(
        "{}",
        memory.lines().find(|l| l.starts_with("used_memory:")).unwrap()
    );
}
