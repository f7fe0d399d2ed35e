//! A Prometheus of a test's own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than any machine needs.
const DEADLINE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);

/// A file of the repository.
pub(crate) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// What `promtool` says, given this on its standard input.
pub(crate) fn promtool(arguments: &[&str], input: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let given = folder.path().join("input");
    fs::write(&given, input).unwrap();
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(File::open(given).unwrap());
    command
        .output()
        .expect("promtool is needed, of Debian's package prometheus")
}

/// One that runs, scrapes a server each second, and ends with the test.
pub(crate) struct Prometheus {
    child: Child,
    url: String,
    client: reqwest::Client,
    folder: TempDir,
}

/// A series, or what was reckoned of some: its labels, and its value.
pub(crate) type Series = (BTreeMap<String, String>, f64);

impl Prometheus {
    /// One that has scraped `http://HOST:PORT/metrics` of this URL.
    pub(crate) async fn of(url: &str) -> Self {
        let target = url.strip_prefix("http://").unwrap();
        // Another process may take the port that was free.
        for _ in 0..5 {
            if let Some(started) = Self::start(target).await {
                started.until_up().await;
                return started;
            }
        }
        panic!("no Prometheus starts");
    }

    async fn start(target: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: [ {} ]\n\
             scrape_configs:\n  - job_name: delayline\n    static_configs: [ {{ targets: [ {target} ] }} ]\n",
            file("deploy/alerts.yml").canonicalize().unwrap().display()
        );
        fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = || {
            Stdio::from(
                File::options()
                    .create(true)
                    .append(true)
                    .open(folder.path().join("log"))
                    .unwrap(),
            )
        };
        let child = Command::new("prometheus")
            .current_dir(folder.path())
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address={free}"))
            .stdout(log())
            .stderr(log())
            .spawn()
            .expect("prometheus is needed, of Debian's package of that name");
        let mut started = Self {
            child,
            url: format!("http://{free}"),
            client: reqwest::Client::new(),
            folder,
        };
        let begin = Instant::now();
        while begin.elapsed() < DEADLINE {
            if started.child.try_wait().unwrap().is_some() {
                eprintln!("it has ended: {}", started.log());
                return None;
            }
            let ready = started
                .client
                .get(format!("{}/-/ready", started.url))
                .send()
                .await;
            if ready.is_ok_and(|ready| ready.status().is_success()) {
                return Some(started);
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("it is not ready: {}", started.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Waits until it has scraped the server.
    async fn until_up(&self) {
        let begin = Instant::now();
        loop {
            let targets = self.ask("targets").await;
            let target = &targets["activeTargets"][0];
            if target["health"] == "up" {
                return;
            }
            assert!(begin.elapsed() < DEADLINE, "{target}: {}", self.log());
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// What it answers, which must not be an error.
    pub(crate) async fn ask(&self, path: &str) -> Value {
        let asked = self.client.get(format!("{}/api/v1/{path}", self.url));
        let answer: Value = asked.send().await.unwrap().json().await.unwrap();
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// What a query gives now.
    pub(crate) async fn query(&self, query: &str) -> Vec<Series> {
        let encoded = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let found = self.ask(&format!("query?query={encoded}")).await;
        assert_eq!(found["resultType"], "vector", "{query}");
        let series = |series: &Value| {
            let labels = serde_json::from_value(series["metric"].clone()).unwrap();
            (labels, series["value"][1].as_str().unwrap().parse().unwrap())
        };
        found["result"].as_array().unwrap().iter().map(series).collect()
    }

    /// What a query gives as soon as it gives anything.
    pub(crate) async fn found(&self, query: &str) -> Vec<Series> {
        let begin = Instant::now();
        loop {
            let found = self.query(query).await;
            if !found.is_empty() {
                return found;
            }
            assert!(begin.elapsed() < DEADLINE, "{query} gives nothing");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The one number that a query gives.
    pub(crate) async fn number(&self, query: &str) -> f64 {
        let found = self.query(query).await;
        match &found[..] {
            [(_, value)] => *value,
            _ => panic!("{query} gives {found:?}"),
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
