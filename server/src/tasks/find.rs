//! `delayline tasks find`: a key, whatever its kind.

use delayline::State;
use delayline::store::Target;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use super::Limit;
use super::show::{cell, first};
use crate::Failure;
use crate::client::Client;
use crate::operations::{Filter, Refusal, TaskView, state_name};
use crate::place::Place;
use crate::table::table;
use crate::terminal;

/// In how many kinds a key is looked for.
const KINDS: usize = 1_000;
/// How many kinds are looked into at once.
const AT_ONCE: usize = 8;

/// Find the tasks of a key in all kinds and states: of each kind the live one, else the one that was made last.
#[derive(Debug, clap::Args)]
pub(super) struct Find {
    /// The caller's own name for the tasks
    #[arg(
        value_name = "KEY",
        required_unless_present = "key_prefix",
        allow_negative_numbers = true
    )]
    key: Option<String>,
    /// In place of KEY, those with a key that begins so; of each state 10,000 tasks are looked at for it, the earliest
    /// due first
    #[arg(long, value_name = "TEXT", conflicts_with = "key", allow_hyphen_values = true)]
    key_prefix: Option<String>,
    #[command(flatten)]
    limit: Limit,
    #[command(flatten)]
    place: Place,
    /// Print JSON, a line for each task, with its payload
    #[arg(long)]
    json: bool,
}

/// Tasks, and what was not looked at.
type Found = (Vec<TaskView>, Option<String>);

impl Find {
    pub(super) fn run(self) -> Result<(), Failure> {
        let (tasks, left) = crate::in_runtime(async {
            let client = self.place.client().await?;
            match &self.key {
                Some(key) => self.by_key(key, &client).await,
                None => self.by_prefix(&client).await,
            }
        })??;
        if let Some(left) = left {
            crate::note(&left);
        }
        if tasks.is_empty() {
            return Err(Refusal::NoTask.into());
        }
        if self.json {
            return crate::print(&crate::json_lines(&tasks)?);
        }
        let header = ["KIND", "KEY", "STATE", "DUE", "ID", "LAST ERROR"];
        crate::show(&table(header, tasks.iter().map(row)))
    }

    /// By an index, a kind after the other.
    async fn by_key(&self, key: &str, client: &Client) -> Result<Found, Failure> {
        let kinds = client.kinds(KINDS + 1).await?;
        let mut left = (kinds.len() > KINDS).then(|| {
            format!("there are more than {KINDS} kinds, and the key was looked for in the first of them")
        });
        let look = async |kind: String| {
            let target = Target::Key(kind.into(), key.into());
            client.found(target).await
        };
        let kinds = kinds.into_iter().take(KINDS).map(|kind| kind.kind);
        let (kinds, unnamed): (Vec<_>, Vec<_>) = kinds.partition(|kind| client.names_tasks_of(kind));
        for kind in unnamed {
            crate::note(&format!(
                "the key was not looked for in the kind {kind:?}, for which a URL has no place: allowed is --store"
            ));
        }
        let found: Vec<_> = stream::iter(kinds.into_iter().map(look))
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        let Limit { limit } = self.limit;
        let mut tasks: Vec<_> = found.into_iter().flatten().collect();
        if tasks.len() > limit {
            tasks.truncate(limit);
            left = Some(first(limit));
        }
        Ok((tasks, left))
    }

    async fn by_prefix(&self, client: &Client) -> Result<Found, Failure> {
        let (mut tasks, mut left) = (Vec::new(), Vec::new());
        for state in State::ALL {
            let filter = Filter {
                kinds: Vec::new(),
                state,
                due_after: None,
                due_before: None,
                key_prefix: self.key_prefix.clone(),
                error: None,
            };
            let room = self.limit.limit - tasks.len();
            if room == 0 {
                left.push(state);
                continue;
            }
            let (found, more) = client.list(&filter, room, false).await?;
            tasks.extend(found);
            left.extend(more.then_some(state));
        }
        let left = (!left.is_empty()).then(|| {
            let names: Vec<_> = left.into_iter().map(state_name).collect();
            format!(
                "not all tasks were looked at that are {}: allowed is a higher --limit, or tasks list KIND --key-prefix, \
                 which looks at all of a kind",
                names.join(", ")
            )
        });
        Ok((tasks, left))
    }
}

fn row(task: &TaskView) -> [String; 6] {
    [
        cell(&task.kind),
        task.key.as_deref().map_or_else(|| "-".to_owned(), cell),
        terminal::state(task.state),
        terminal::short(task.due_at.0),
        cell(&task.id),
        task.last_error.as_deref().map_or_else(String::new, cell),
    ]
}
