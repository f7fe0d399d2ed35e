//! Schedules, claims, changes in bulk and pauses over HTTP, and remembers what was answered.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::rows::{BULK, JOB, MESSAGE};
use super::way::Way;
use crate::gateway::now;

/// A claim that a worker was given, and whether its end was answered `done`; none, if it was not answered, or not asked for.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    /// The task and the version.
    pub(super) claim: String,
    pub(super) is_done: Option<bool>,
}

/// A kind that waits, in ms since 1970: from when that was answered until it was asked to go on.
#[derive(Clone, Debug)]
pub(super) struct Pause {
    pub(super) kind: &'static str,
    pub(super) answered: i64,
    pub(super) resumed: i64,
}

/// Changes in bulk of the tasks with a prefix, one reason for each verb.
#[derive(Clone, Debug, Default)]
pub(super) struct Bulk {
    pub(super) prefix: String,
    /// How many were scheduled; none: tasks that workers claim meanwhile.
    pub(super) scheduled: Option<usize>,
    /// How many were moved by an hour; none: that is not known.
    pub(super) shifted: Option<u64>,
    /// How many were cancelled by the calls that were answered, and whether all were.
    pub(super) cancelled: u64,
    pub(super) all_answered: bool,
}

/// What was asked for, and answered.
#[derive(Clone, Debug, Default)]
pub(super) struct Called {
    pub(super) jobs: Vec<String>,
    pub(super) claims: Vec<Claim>,
    pub(super) pauses: Vec<Pause>,
    pub(super) bulks: Vec<Bulk>,
}

impl fmt::Display for Called {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = |wanted| self.claims.iter().filter(|claim| claim.is_done == wanted).count();
        write!(
            f,
            "{} jobs, {} claims: {} done, {} lost, {} not answered; {} pauses; {} changes in bulk, {} of them not answered",
            self.jobs.len(),
            self.claims.len(),
            done(Some(true)),
            done(Some(false)),
            done(None),
            self.pauses.len(),
            self.bulks.len(),
            self.bulks.iter().filter(|bulk| !bulk.all_answered).count()
        )
    }
}

/// All that call over HTTP.
pub(super) struct HttpCallers {
    shared: Arc<Shared>,
    callers: Mutex<Vec<JoinHandle<()>>>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    way: Way,
    called: Mutex<Called>,
    calls_are_over: AtomicBool,
    work_is_over: AtomicBool,
}

/// How many workers claim.
const WORKERS: u64 = 3;

impl HttpCallers {
    pub(super) fn start(way: Way, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            way,
            called: Mutex::default(),
            calls_are_over: AtomicBool::new(false),
            work_is_over: AtomicBool::new(false),
        });
        let chance = |number: u64| Rng::with_seed(seed ^ (number << 32));
        let callers = vec![
            tokio::spawn(Arc::clone(&shared).schedule_jobs(chance(1))),
            tokio::spawn(Arc::clone(&shared).pause(chance(2))),
            tokio::spawn(Arc::clone(&shared).change_in_bulk(chance(3))),
        ];
        let work = |number| tokio::spawn(Arc::clone(&shared).work(chance(10 + number)));
        let workers = (0..WORKERS).map(work).collect();
        Self {
            shared,
            callers: Mutex::new(callers),
            workers,
        }
    }

    /// Ends all but the work.
    pub(super) async fn stop_calling(&self) {
        self.shared.calls_are_over.store(true, Ordering::Relaxed);
        let callers = std::mem::take(&mut *self.callers.lock().unwrap());
        for caller in callers {
            caller.await.unwrap();
        }
    }

    /// Ends the work; what was called.
    pub(super) async fn stop(self) -> Called {
        self.shared.work_is_over.store(true, Ordering::Relaxed);
        for worker in self.workers {
            worker.await.unwrap();
        }
        self.shared.called.lock().unwrap().clone()
    }
}

async fn waits(chance: &mut Rng, ms: std::ops::Range<u64>) {
    sleep(Duration::from_millis(chance.u64(ms))).await;
}

impl Shared {
    fn note(&self, note: impl FnOnce(&mut Called)) {
        note(&mut self.called.lock().unwrap());
    }

    fn goes_on(&self) -> bool {
        !self.calls_are_over.load(Ordering::Relaxed)
    }

    /// Tasks to be claimed: every third has a prefix by which it may be cancelled in bulk.
    async fn schedule_jobs(self: Arc<Self>, mut chance: Rng) {
        let mut number = 0;
        while self.goes_on() {
            let keys: Vec<_> = (0..chance.usize(1..6))
                .map(|_| {
                    number += 1;
                    format!("{}-{number}", if number % 3 == 0 { "c" } else { "w" })
                })
                .collect();
            let mut task =
                |key| json!({"kind": JOB, "key": key, "after": format!("{}ms", chance.u64(..3_000))});
            let tasks: Vec<_> = keys.iter().map(&mut task).collect();
            self.way.schedule(&keys[0], &tasks).await;
            self.note(|called| called.jobs.extend(keys));
            waits(&mut chance, 50..500).await;
        }
    }

    /// Claims, and ends most claims at any server.
    async fn work(self: Arc<Self>, mut chance: Rng) {
        while !self.work_is_over.load(Ordering::Relaxed) {
            let wanted = json!({"kinds": [JOB], "max": 4, "wait": "1s", "lease": "4s"});
            let asked = self
                .way
                .ask(chance.usize(..2), Method::POST, "/v1/claims", &wanted);
            let Some((status, given)) = asked.await else {
                waits(&mut chance, 50..200).await;
                continue;
            };
            assert_eq!(status, 200, "{given}");
            for claim in given["claims"].as_array().unwrap() {
                waits(&mut chance, 0..200).await;
                let claim = claim["claim"].as_str().unwrap().to_owned();
                // Its worker has died.
                let is_done = match chance.u8(..10) {
                    0 => None,
                    _ => self.end(&claim, chance.usize(..2)).await,
                };
                self.note(|called| called.claims.push(Claim { claim, is_done }));
            }
        }
    }

    /// Whether the end of a claim is answered `done`, by the first server that answers at all, where only the first call
    /// can tell.
    async fn end(&self, claim: &str, server: usize) -> Option<bool> {
        let path = format!("/v1/claims/{claim}/done");
        let (status, _) = self.way.ask(server, Method::POST, &path, &json!({})).await?;
        assert!(matches!(status, 200 | 409), "{status}");
        Some(status == 200)
    }

    async fn pause(self: Arc<Self>, mut chance: Rng) {
        while self.goes_on() {
            waits(&mut chance, 500..4_000).await;
            let kind = if chance.bool() { JOB } else { MESSAGE };
            let path = |verb: &str| format!("/v1/kinds/{kind}/{verb}");
            self.way.until_answered(&path("pause")).await;
            let answered = now();
            waits(&mut chance, 1_500..5_000).await;
            let resumed = now();
            self.way.until_answered(&path("resume")).await;
            self.note(|called| {
                called.pauses.push(Pause {
                    kind,
                    answered,
                    resumed,
                })
            });
        }
    }

    async fn change_in_bulk(self: Arc<Self>, mut chance: Rng) {
        for round in 0.. {
            if !self.goes_on() {
                return;
            }
            let mut bulk = Bulk {
                prefix: format!("{round}-"),
                // Of more than a thousand it goes on behind the call.
                scheduled: Some(if chance.u8(..5) == 0 {
                    1_100
                } else {
                    chance.usize(20..60)
                }),
                ..Bulk::default()
            };
            self.schedule_bulk(&bulk).await;
            let path = "/v1/tasks:shift";
            let server = chance.usize(..2);
            let shift = json!({"filter": filter(BULK, &bulk.prefix), "by": "+1h", "reason": reason("shift", &bulk.prefix)});
            bulk.shifted = self.changed(server, path, &shift).await;
            self.cancel(BULK, &mut bulk).await;
            self.note(|called| called.bulks.push(bulk));
            let mut jobs = Bulk {
                prefix: "c-".to_owned(),
                ..Bulk::default()
            };
            self.cancel(JOB, &mut jobs).await;
            self.note(|called| called.bulks.push(jobs));
            waits(&mut chance, 100..1_500).await;
        }
    }

    async fn schedule_bulk(&self, bulk: &Bulk) {
        let task = |number| json!({"kind": BULK, "key": format!("{}{number}", bulk.prefix), "at": "2099-01-01T00:00:00Z"});
        let tasks: Vec<_> = (0..bulk.scheduled.unwrap()).map(task).collect();
        for (part, tasks) in tasks.chunks(500).enumerate() {
            self.way
                .schedule(&format!("{}part-{part}", bulk.prefix), tasks)
                .await;
        }
    }

    /// Cancels all of a kind with a prefix, at both servers at once; and again, until one answers that none is left.
    async fn cancel(&self, kind: &str, bulk: &mut Bulk) {
        let body = json!({"filter": filter(kind, &bulk.prefix), "reason": reason("cancel", &bulk.prefix)});
        let path = "/v1/tasks:cancel";
        bulk.all_answered = true;
        loop {
            let both = tokio::join!(self.changed(0, path, &body), self.changed(1, path, &body));
            for changed in [both.0, both.1] {
                bulk.all_answered &= changed.is_some();
                bulk.cancelled += changed.unwrap_or(0);
            }
            // What workers claim goes on to be scheduled.
            if both.0.or(both.1) == Some(0) || (kind == JOB && both.0.or(both.1).is_some()) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// How many a server says that it has changed, in the call or behind it.
    async fn changed(&self, server: usize, path: &str, body: &Value) -> Option<u64> {
        let (mut status, mut said) = self.way.ask(server, Method::POST, path, body).await?;
        while status == 202 || said["state"] == "running" {
            sleep(Duration::from_millis(100)).await;
            let path = format!("/v1/bulk/{}", said["id"].as_str().unwrap());
            (status, said) = self.way.ask(server, Method::GET, &path, &json!({})).await?;
        }
        // Another server is there by now, or the store was away.
        if status == 404 || said["state"] == "failed" {
            return None;
        }
        assert_eq!(status, 200, "{said}");
        said["answers"]["done"].as_u64()
    }
}

fn filter(kind: &str, prefix: &str) -> Value {
    json!({"kind": kind, "key_prefix": prefix})
}

/// By which the history of a task tells which change it was.
pub(super) fn reason(verb: &str, prefix: &str) -> String {
    format!("{verb} {prefix}")
}
