//! `delayline kinds`: which kinds of tasks there are.

use std::collections::BTreeMap;

use delayline::store::Store;
use delayline::{Kind, State};

use crate::Failure;
use crate::database::Place;

/// See which kinds of tasks there are.
#[derive(Debug, clap::Args)]
pub(crate) struct Kinds {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(List),
}

/// List the kinds of which there are tasks, and in which states.
#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How many are asked for at once.
const PAGE: usize = 500;

const STATES: [State; 5] = [
    State::Scheduled,
    State::Running,
    State::Done,
    State::Dead,
    State::Cancelled,
];

impl Kinds {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Command::List(list) = self.command;
        list.run()
    }
}

impl List {
    fn run(self) -> Result<(), Failure> {
        let kinds = crate::in_runtime(self.find())??;
        let mut text = String::new();
        for (kind, states) in &kinds {
            let line = match self.json {
                true => crate::json(&serde_json::json!({"kind": kind.as_str(), "states": states}))?,
                false => {
                    let states: Vec<_> = states
                        .iter()
                        .map(|state| format!("{state:?}").to_lowercase())
                        .collect();
                    format!("{kind}  {}", states.join(", "))
                }
            };
            text.push_str(&line);
            text.push('\n');
        }
        crate::print(&text)
    }

    async fn find(&self) -> Result<Vec<Found>, Failure> {
        let store = self.place.open().await?;
        let mut all = Vec::new();
        loop {
            let found = page(&*store, all.last().map(|(kind, _)| kind), PAGE).await?;
            let is_last = found.len() < PAGE;
            all.extend(found);
            if is_last {
                return Ok(all);
            }
        }
    }
}

/// A kind, and the states in which there are tasks of it.
pub(crate) type Found = (Kind, Vec<State>);

/// The kinds after one, by name, and the states in which there are tasks of each.
pub(crate) async fn page(
    store: &dyn Store,
    after: Option<&Kind>,
    limit: usize,
) -> Result<Vec<Found>, delayline::Error> {
    let mut kinds: BTreeMap<Kind, Vec<State>> = BTreeMap::new();
    for state in STATES {
        for kind in store.kinds(state, after, limit).await? {
            kinds.entry(kind).or_default().push(state);
        }
    }
    // What is among the first of all is among the first of each state.
    Ok(kinds.into_iter().take(limit).collect())
}
