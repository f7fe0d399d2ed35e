//! Services in Java and Go that know nothing but RocketMQ, and have their messages delayed by the gateway.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

use crate::brokers::{fresh, make_topic, nameserver};
use crate::gateway::config;
use crate::rocketmq_servers::{BROKER, RocketMqServers};
use crate::server::Server;
use crate::setting::setting;

/// The programs of `server/tests/clients`, ready to be run.
struct Programs {
    jars: String,
    folder: TempDir,
}

fn clients() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// What a command prints that succeeds, and what it complains of.
fn said(command: &mut Command) -> (String, String) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {errors}");
    (
        String::from_utf8(output.stdout).unwrap().trim().to_owned(),
        errors,
    )
}

impl Programs {
    async fn build() -> Self {
        spawn_blocking(|| {
            let folder = tempfile::tempdir().unwrap();
            let scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scripts/rocketmq");
            let jars = said(Command::new(scripts).arg("jars")).0 + "/*";
            let mut javac = Command::new("javac");
            javac.args(["-cp", &jars, "-d"]).arg(folder.path());
            said(javac.args(
                ["GatewayClient.java", "TracedOrder.java"].map(|file| clients().join("java").join(file)),
            ));
            let mut go = Command::new("go");
            go.current_dir(clients().join("go")).args(["build", "-o"]);
            said(go.arg(folder.path().join("client")).arg("."));
            Self { jars, folder }
        })
        .await
        .unwrap()
    }

    fn java(&self, main: &str) -> Command {
        let mut java = Command::new("java");
        let own = self.folder.path().display();
        // The Netty of RocketMQ 4.8 asks for it, from JDK 16 on.
        java.args(["--add-opens", "java.base/java.nio=ALL-UNNAMED"]);
        java.args(["-cp", &format!("{own}:{}", self.jars), main]);
        java
    }

    fn go(&self) -> Command {
        Command::new(self.folder.path().join("client"))
    }
}

/// Each of the tests has two services, and servers, at work.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// For how long a service waits at the most after its last order was due.
const PATIENCE_MS: &str = "240000";

/// How many orders a service has delayed: `DELAYLINE_GATEWAY_ORDERS`.
fn count() -> u64 {
    setting("DELAYLINE_GATEWAY_ORDERS").unwrap_or(200)
}

/// A service's orders, with delays of 0.3 to 20 s, a third of them moved or cancelled meanwhile: how they came
/// out, and what it complains of.
fn orders(mut program: Command, nameserver: &str, name: &str, seed: &str) -> JoinHandle<(Value, String)> {
    program.args([
        "--nameserver",
        nameserver,
        "--count",
        &count().to_string(),
        "--seed",
        seed,
    ]);
    program.args(["--patience-ms", PATIENCE_MS]);
    for (flag, topic) in [
        ("--inbox", "in"),
        ("--target", "out"),
        ("--route-inbox", "routed"),
    ] {
        program.args([flag, &format!("{name}-{topic}")]);
    }
    spawn_blocking(move || {
        let (summary, complaints) = said(&mut program);
        (serde_json::from_str(&summary).unwrap(), complaints)
    })
}

/// Each answer was true, and each message came at its time and as it was sent, and none that was cancelled. One may be
/// published twice, under the same id; and `out_before` may have come out when they were cancelled or moved.
#[track_caller]
fn kept((summary, complaints): &(Value, String), out_before: u64) {
    println!("{summary}");
    let none = ["early", "missing", "unwanted", "twice", "wrong", "unanswered"];
    // On a busy machine most of what is asked for comes too late, and is answered so.
    let asked = ["cancelled", "moved", "too_late"].map(|answer| summary[answer].as_u64().unwrap());
    let is_kept = summary["sent"] == count()
        && none.iter().all(|wrong| summary[wrong] == 0)
        && summary["out_before"].as_u64().unwrap() <= out_before
        && asked.iter().sum::<u64>() > count() / 4;
    assert!(is_kept, "{summary}\n{complaints}");
}

#[tokio::test(flavor = "multi_thread")]
async fn services_in_java_and_go_delay_move_and_cancel() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (nameserver, name) = (nameserver(), fresh("shop"));
    make_topic(&nameserver, &format!("{name}-out")).await;
    let programs = Programs::build().await;
    let server = Server::configured(&config(&nameserver, &name));
    let java = orders(programs.java("GatewayClient"), &nameserver, &name, "1");
    let go = orders(programs.go(), &nameserver, &name, "2");
    for came in [java.await.unwrap(), go.await.unwrap()] {
        kept(&came, 0);
    }
    drop(server);
}

/// An order of a service that traces, delayed over two hops, is one story: each part of it leads to the one before.
#[cfg(feature = "otlp")]
#[tokio::test(flavor = "multi_thread")]
async fn an_order_from_java_to_java_is_one_story() {
    use crate::traces::{Collector, links, traceparent};

    const PLACED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let _alone = ONE_AT_A_TIME.lock().await;
    let (nameserver, name) = (nameserver(), fresh("shop"));
    let out = format!("{name}-out");
    make_topic(&nameserver, &out).await;
    let programs = Programs::build().await;
    let mut collector = Collector::start().await;
    let server = Server::configured(&[config(&nameserver, &name), collector.config()].concat());
    let mut order = programs.java("TracedOrder");
    // Through 5 s, 2 s, and what is left then, however late the first comes out.
    order.args([&nameserver, &format!("{name}-in"), &out, "9s", PLACED]);
    let (came, _) = spawn_blocking(move || said(&mut order)).await.unwrap();
    let came: Value = serde_json::from_str(&came).unwrap();

    let create = collector.span("create message").await;
    assert!(PLACED.contains(&crate::traces::hex(&create.trace_id)));
    assert!(PLACED.contains(&crate::traces::hex(&create.parent_span_id)));
    let process = collector.span("process message").await;
    assert_eq!(links(&process), [traceparent(&create)]);
    let expected = serde_json::json!({
        "traceparent": traceparent(&process),
        "DELAYLINE_TRACEPARENT": traceparent(&create),
        "DELAYLINE_TRACESTATE": "shop=1",
    });
    assert_eq!(came, expected);
    let task = server.get("/v1/tasks/message/order-1").await.body;
    assert!(task["hops"].as_u64().unwrap() >= 2, "{task}");
}

/// How often one of the servers is killed: past the last due time, and not for as long as a busy machine is late.
const KILLS: usize = 10;
/// A server that is killed may have published a message, and not have said so in its row: when the lease has ended, the
/// row can be cancelled or moved. Each kill may do so to what is published at once; it is nearly always none.
const OUT_BEFORE: u64 = 64;

/// Two servers over one file, one of them killed every 3 s; and the broker is away for 5 s.
#[tokio::test(flavor = "multi_thread")]
async fn services_lose_nothing_while_servers_and_the_broker_are_killed() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let brokers = spawn_blocking(|| RocketMqServers::start(&["--levels", "1s 2s 5s 10s"]));
    let (brokers, programs) = (brokers.await.unwrap(), Programs::build().await);
    let (nameserver, name) = (brokers.nameserver.clone(), fresh("shop"));
    make_topic(&nameserver, &format!("{name}-out")).await;
    let rows = tempfile::tempdir().unwrap();
    let store = format!(
        "[store]\nurl = \"sqlite:{}\"\n",
        rows.path().join("rows").display()
    );
    let config = [store, config(&nameserver, &name)].concat();
    let mut servers = [(); 2].map(|()| Some(Server::configured(&config)));
    let java = orders(programs.java("GatewayClient"), &nameserver, &name, "1");
    let go = orders(programs.go(), &nameserver, &name, "2");
    let killing = tokio::spawn(async move {
        for kill in 0..KILLS {
            sleep(Duration::from_secs(3)).await;
            let server = &mut servers[kill % 2];
            let killed = server.take().unwrap();
            *server = Some(spawn_blocking(|| killed.killed_and_started()).await.unwrap());
        }
        servers
    });
    sleep(Duration::from_secs(8)).await;
    let away = spawn_blocking(move || {
        brokers.kill(BROKER);
        std::thread::sleep(Duration::from_secs(5));
        brokers.start_again();
        brokers
    });
    let _brokers = away.await.unwrap();
    for came in [java.await.unwrap(), go.await.unwrap()] {
        kept(&came, OUT_BEFORE);
    }
    drop(killing.await.unwrap());
}
