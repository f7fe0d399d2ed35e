//! `delayline kinds`: which kinds of tasks there are, and which of them are paused.

use std::collections::BTreeMap;

use delayline::store::{Paused, Store};
use delayline::{Error, Kind, Scheduler, State, Timestamp};

use crate::Failure;
use crate::database::Place;

/// See which kinds of tasks there are, and let the tasks of a kind wait.
#[derive(Debug, clap::Args)]
pub(crate) struct Kinds {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(List),
    Pause(Pause),
    Resume(Resume),
}

/// List the kinds of which there are tasks, in which states, and which are paused.
#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Let the tasks of a kind wait: all workers know within a second, and start none of them.
#[derive(Debug, clap::Args)]
struct Pause {
    /// The kind
    #[arg(value_name = "KIND")]
    kind: String,
    /// Until this time, such as 2026-12-24T18:00:00Z; else until it is resumed
    #[arg(long, value_name = "TIME")]
    until: Option<Timestamp>,
    /// Why, for people
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    place: Place,
}

/// Let the tasks of a paused kind run again.
#[derive(Debug, clap::Args)]
struct Resume {
    /// The kind
    #[arg(value_name = "KIND")]
    kind: String,
    #[command(flatten)]
    place: Place,
}

/// How many are asked for at once.
const PAGE: usize = 500;

impl Kinds {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::List(list) => list.run(),
            Command::Pause(pause) => pause.run(),
            Command::Resume(resume) => resume.run(),
        }
    }
}

impl List {
    fn run(self) -> Result<(), Failure> {
        let kinds = crate::in_runtime(self.find())??;
        let mut text = String::new();
        for (kind, Found { states, paused }) in &kinds {
            let line = match self.json {
                true => crate::json(&serde_json::json!({
                    "kind": kind.as_str(),
                    "states": states,
                    "paused": paused.as_ref().map(|paused| serde_json::json!({
                        "since": paused.since.to_string(),
                        "until": paused.until.map(|until| until.to_string()),
                        "reason": paused.reason,
                        "actor": paused.actor,
                    })),
                }))?,
                false => {
                    let mut words: Vec<_> = states
                        .iter()
                        .map(|state| format!("{state:?}").to_lowercase())
                        .collect();
                    words.extend(paused.as_ref().map(told));
                    format!("{kind}  {}", words.join(", "))
                }
            };
            text.push_str(&line);
            text.push('\n');
        }
        crate::print(&text)
    }

    async fn find(&self) -> Result<Vec<(Kind, Found)>, Failure> {
        let store = self.place.open().await?;
        let scheduler = Scheduler::builder(store.clone()).build()?;
        let mut all = Vec::new();
        loop {
            let found = page(
                &scheduler,
                &*store,
                all.last().map(|(kind, _)| kind),
                PAGE,
                &every,
            )
            .await?;
            let is_last = found.len() < PAGE;
            all.extend(found);
            if is_last {
                return Ok(all);
            }
        }
    }
}

/// In words, for a terminal.
fn told(paused: &Paused) -> String {
    let mut text = format!("paused since {}", paused.since);
    if let Some(until) = paused.until {
        text.push_str(&format!(" until {until}"));
    }
    if let Some(actor) = &paused.actor {
        text.push_str(&format!(" by {}", actor.escape_debug()));
    }
    if !paused.reason.is_empty() {
        text.push_str(&format!(": {}", paused.reason.escape_debug()));
    }
    text
}

impl Pause {
    fn run(self) -> Result<(), Failure> {
        crate::reserved::check(&self.kind)?;
        let paused = crate::in_runtime(async {
            let scheduler = self.place.scheduler().await?;
            Ok::<_, Failure>(scheduler.pause(self.kind, self.until, &self.reason).await?)
        })??;
        crate::print(&format!("{} is {}\n", paused.kind, told(&paused)))
    }
}

impl Resume {
    fn run(self) -> Result<(), Failure> {
        let was_paused = crate::in_runtime(async {
            let scheduler = self.place.scheduler().await?;
            Ok::<_, Failure>(scheduler.resume(self.kind).await?)
        })??;
        crate::print(match was_paused {
            true => "resumed\n",
            false => "it was not paused\n",
        })
    }
}

/// Of which kinds a caller may know.
pub(crate) type Known<'a> = dyn Fn(&Kind) -> bool + Sync + 'a;

/// Every kind.
pub(crate) fn every(_: &Kind) -> bool {
    true
}

/// The kinds after one, by name, of which there are tasks in a state, other than the rows that are pauses: of those that are
/// known.
pub(crate) async fn of_tasks(
    store: &dyn Store,
    state: State,
    after: Option<&Kind>,
    limit: usize,
    known: &Known<'_>,
) -> Result<Vec<Kind>, Error> {
    let mut kinds = Vec::new();
    let mut after = after.cloned();
    loop {
        let found = store.kinds(state, after.as_ref(), limit + 1).await?;
        let is_last = found.len() <= limit;
        after = found.last().cloned();
        let found = found.into_iter();
        kinds.extend(found.filter(|kind| kind.as_str() != Paused::KIND && known(kind)));
        if is_last || kinds.len() >= limit {
            kinds.truncate(limit);
            return Ok(kinds);
        }
    }
}

/// What there is of a kind.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// In which there are tasks of it.
    pub(crate) states: Vec<State>,
    pub(crate) paused: Option<Paused>,
}

/// The kinds after one, by name, of those that are known: those of which there are tasks, and those that are paused.
pub(crate) async fn page(
    scheduler: &Scheduler,
    store: &dyn Store,
    after: Option<&Kind>,
    limit: usize,
    known: &Known<'_>,
) -> Result<Vec<(Kind, Found)>, Error> {
    let mut kinds: BTreeMap<Kind, Found> = BTreeMap::new();
    for state in State::ALL {
        for kind in of_tasks(store, state, after, limit, known).await? {
            kinds.entry(kind).or_default().states.push(state);
        }
    }
    for paused in scheduler.paused().await? {
        if known(&paused.kind) && after.is_none_or(|after| *after < paused.kind) {
            let found = kinds.entry(paused.kind.clone()).or_default();
            found.paused = Some(paused);
        }
    }
    // What is among the first of all is among the first of each state.
    Ok(kinds.into_iter().take(limit).collect())
}
