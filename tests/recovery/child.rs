//! Another process: this test binary once more, told by its environment what to do.

use std::env;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::service::Service;
use crate::{crowd, killed};

const TASK: &str = "DELAYLINE_TEST_CHILD";
const URL: &str = "DELAYLINE_TEST_URL";
/// The beginning of a child's lines; the test harness prints lines as well.
const MARK: &str = "child says: ";

/// A process of the same service, killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts one on the database `name` at `url`.
    pub(crate) fn start(name: &str, url: &str, task: &str) -> Self {
        let test = format!("{name}::child_process");
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", &test, "--nocapture"])
            .env(TASK, task)
            .env(URL, url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Returns its next line; none if it has ended.
    pub(crate) fn says(&mut self) -> Option<String> {
        self.lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| Some(line.split_once(MARK)?.1.to_owned()))
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it gracefully: its standard input ends.
    pub(crate) fn has_ended_well(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prints a line for the parent.
pub(crate) fn say(what: &str) {
    println!("\n{MARK}{what}");
}

/// Runs the task of the parent.
pub(crate) async fn run<S: Service>() {
    let (Ok(task), Ok(url)) = (env::var(TASK), env::var(URL)) else {
        return;
    };
    let service = S::open(url).await;
    match task.as_str() {
        "work" => crowd::work(service).await,
        point => killed::die_at(point, service).await,
    }
}
