//! Tasks that are claimed and ended over HTTP by many at once.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use delayline::State;
use delayline::store::Page;
use serde::Deserialize;
use tokio::task::JoinSet;

use crate::connection::{Connection, address_of, apart};
use crate::place::{Place, scheduler};
use crate::server::{ANY_PORT, Server};
use crate::table::{Floor, Line};
use crate::wanted::Sizes;
use crate::{Error, KIND, worker};

pub(crate) const POLLERS: usize = 16;

/// How a claimant works: how many it asks for, how many requests that end claims it has at once, and how many claims each of
/// these ends.
#[derive(Clone, Copy, Debug)]
struct Manner {
    max: usize,
    at_once: usize,
    together: usize,
}

/// What was claimed together ends together.
const TOGETHER: Manner = Manner {
    max: 50,
    at_once: 1,
    together: 50,
};
/// All together end as many at once as a worker has places, by default.
const APART: Manner = Manner {
    max: 50,
    at_once: 4,
    together: 1,
};
const ONE: Manner = Manner {
    max: 1,
    at_once: 1,
    together: 1,
};

pub(crate) async fn measure(place: &Place, sizes: &Sizes) -> Result<Vec<Line>, Error> {
    let line = |manner: Manner, floor| {
        let Manner {
            max,
            at_once,
            together,
        } = manner;
        let name = format!(
            "{} due, claimed by {POLLERS}, {max} a call, ended {together} a call, {at_once} at once, 1/s",
            sizes.due
        );
        (manner, Line::new(name, floor))
    };
    let mut lines = [
        line(TOGETHER, Floor::AtLeast(0.5)),
        line(APART, Floor::None),
        line(ONE, Floor::None),
    ];
    for _ in 0..sizes.rounds {
        let fresh = place.fresh().await?;
        fresh.fill_with_due(sizes.due).await?;
        let limit = worker::rate(&fresh.url, sizes.due).await?;
        all_have_ended(&fresh.url).await?;
        fresh.remove().await?;
        for (manner, line) in &mut lines {
            line.limit(limit);
            let fresh = place.fresh().await?;
            fresh.fill_with_due(sizes.due).await?;
            let server = Server::configured(&format!("[store]\nurl = \"{}\"\n{ANY_PORT}", fresh.url));
            line.ours(rate(&server, *manner, sizes.due).await?);
            drop(server);
            all_have_ended(&fresh.url).await?;
            fresh.remove().await?;
        }
    }
    Ok(lines.into_iter().map(|(_, line)| line).collect())
}

/// Fails if a task is left.
async fn all_have_ended(url: &str) -> Result<(), Error> {
    let scheduler = scheduler(url).await?;
    for state in [State::Scheduled, State::Running, State::Dead] {
        if let Some(task) = scheduler.list(&Page::new(KIND, state).limit(1)).await?.first() {
            return Err(format!("a task has not ended: {task:?}").into());
        }
    }
    Ok(scheduler.close().await?)
}

/// How many tasks a second are ended, of so many that are due.
async fn rate(server: &Server, manner: Manner, count: usize) -> Result<f64, Error> {
    let address = address_of(&server.url)?;
    let claim = move || async move {
        let ended = Arc::new(Ended::of(count));
        let mut claimants = Vec::new();
        for _ in 0..POLLERS {
            claimants.push(Claimant::open(address, manner).await?);
        }
        let mut working = JoinSet::new();
        let begun = Instant::now();
        for claimant in claimants {
            working.spawn(claimant.work(Arc::clone(&ended)));
        }
        while let Some(worked) = working.join_next().await {
            worked??;
        }
        let last = ended.last().ok_or("nothing was claimed")?;
        Ok(count as f64 / (last - begun).as_secs_f64())
    };
    apart(claim).await
}

/// The ids of the tasks that have been ended, and when the last was.
struct Ended {
    expected: usize,
    seen: Mutex<(HashSet<String>, Option<Instant>)>,
}

impl Ended {
    fn of(expected: usize) -> Self {
        let seen = (HashSet::with_capacity(expected), None);
        Self {
            expected,
            seen: Mutex::new(seen),
        }
    }

    fn add(&self, claims: &[Claim]) -> Result<(), Error> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.1 = Some(Instant::now());
        for Claim { task, .. } in claims {
            if !seen.0.insert(task.id.clone()) {
                return Err("a task was claimed twice".into());
            }
        }
        Ok(())
    }

    fn are_all(&self) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.0.len() >= self.expected
    }

    fn last(&self) -> Option<Instant> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// Claims tasks, and has some connections to end them by.
struct Claimant {
    wanted: String,
    asking: Connection,
    ending: Vec<Connection>,
    together: usize,
}

#[derive(Deserialize)]
struct Given {
    claims: Vec<Claim>,
}

#[derive(Clone, Deserialize)]
struct Claim {
    claim: String,
    task: Task,
}

#[derive(Clone, Deserialize)]
struct Task {
    id: String,
}

impl Claimant {
    async fn open(address: SocketAddr, manner: Manner) -> Result<Self, Error> {
        let mut ending = Vec::new();
        for _ in 0..manner.at_once {
            ending.push(Connection::open(address).await?);
        }
        Ok(Self {
            wanted: wanted(KIND, manner.max, Duration::from_secs(1)),
            asking: Connection::open(address).await?,
            ending,
            together: manner.together,
        })
    }

    async fn work(mut self, ended: Arc<Ended>) -> Result<(), Error> {
        while !ended.are_all() {
            let given = self.asking.ask("POST", "/v1/claims", &self.wanted, 200).await?;
            let Given { claims } = serde_json::from_slice(given)?;
            let mut working = JoinSet::new();
            let places = self.ending.len();
            for (place, mut connection) in self.ending.drain(..).enumerate() {
                let share: Vec<_> = claims.iter().skip(place).step_by(places).cloned().collect();
                let (ended, together) = (Arc::clone(&ended), self.together);
                working.spawn(async move {
                    for claims in share.chunks(together) {
                        end(&mut connection, claims).await?;
                        ended.add(claims)?;
                    }
                    Ok::<_, Error>(connection)
                });
            }
            while let Some(connection) = working.join_next().await {
                self.ending.push(connection??);
            }
        }
        Ok(())
    }
}

/// Ends claims that all hold: by the request that is for one, or by that for several.
async fn end(connection: &mut Connection, claims: &[Claim]) -> Result<(), Error> {
    if let [Claim { claim, .. }] = claims {
        connection
            .ask("POST", &format!("/v1/claims/{claim}/done"), "", 200)
            .await?;
        return Ok(());
    }
    let ids: Vec<_> = claims.iter().map(|claim| &claim.claim).collect();
    let body = serde_json::json!({ "claims": ids }).to_string();
    let answered = connection.ask("POST", "/v1/claims:done", &body, 200).await?;
    let Answered { answers } = serde_json::from_slice(answered)?;
    match answers.len() == claims.len() && answers.iter().all(|answer| answer == "done") {
        true => Ok(()),
        false => Err(format!("claims were lost: {answers:?}").into()),
    }
}

#[derive(Deserialize)]
struct Answered {
    answers: Vec<String>,
}

/// What a claimant asks for.
pub(crate) fn wanted(kind: &str, max: usize, wait: Duration) -> String {
    let wait = wait.as_secs();
    format!(r#"{{"kinds":["{kind}"],"max":{max},"wait":"{wait}s","lease":"60s"}}"#)
}
