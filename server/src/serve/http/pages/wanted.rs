//! Which tasks a list is of.

use std::time::Duration;

use delayline::{Kind, State as TaskState, Timestamp};
use url::form_urlencoded;

use super::super::problem::Problem;
use super::fields::Fields;
use crate::operations::{Filter, KINDS, Operations, Position, state_name};

/// Within which time tasks are due.
pub(super) const DUE: [(&str, &str, u64); 5] = [
    ("now", "now", 0),
    ("1m", "within 1 minute", 60),
    ("5m", "within 5 minutes", 300),
    ("1h", "within 1 hour", 3_600),
    ("24h", "within 1 day", 86_400),
];

/// What can be chosen.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) value: String,
    pub(super) text: String,
    pub(super) is_chosen: bool,
}

/// Which tasks are wanted.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// A key or how it begins.
    pub(super) q: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) state: Option<TaskState>,
    pub(super) due: Option<String>,
    pub(super) error: Option<String>,
}

impl Wanted {
    pub(super) fn of(fields: &Fields) -> Result<Self, Problem> {
        let text = |name| fields.one(name).map(str::to_owned);
        let state = |wanted: &str| {
            let state = TaskState::ALL
                .into_iter()
                .find(|state| state_name(*state) == wanted);
            let allowed = "allowed are scheduled, running, done, dead and cancelled";
            state.ok_or_else(|| Problem::invalid("state", wanted, allowed))
        };
        let due = |due: &str| match DUE.iter().any(|(value, ..)| *value == due) {
            true => Ok(due.to_owned()),
            false => Err(Problem::invalid(
                "due",
                due,
                "allowed are now, 1m, 5m, 1h and 24h",
            )),
        };
        Ok(Self {
            q: text("q"),
            kind: text("kind"),
            state: fields.one("state").map(state).transpose()?,
            due: fields.one("due").map(due).transpose()?,
            error: text("error"),
        })
    }

    pub(super) fn state(&self) -> TaskState {
        self.state.unwrap_or(TaskState::Scheduled)
    }

    /// Tells whether tasks of any state are wanted: a search for a key, unless it names one.
    pub(super) fn is_of_all_states(&self) -> bool {
        self.q.is_some() && self.state.is_none()
    }

    /// Wants the same of another state.
    pub(super) fn of_state(&self, state: Option<TaskState>) -> Self {
        Self {
            state,
            ..self.clone()
        }
    }

    /// Picks the kinds that are listed, of those that there are.
    pub(super) fn kinds_among(&self, all: &[Kind]) -> Vec<Kind> {
        match &self.kind {
            Some(kind) => vec![Kind::from(kind.as_str())],
            None => all.iter().take(KINDS).cloned().collect(),
        }
    }

    /// Tells whether some are left out of those of the state.
    pub(super) fn is_filtered(&self) -> bool {
        [&self.q, &self.kind, &self.due, &self.error]
            .into_iter()
            .any(Option::is_some)
    }

    /// Within how many seconds they are due, if that is wanted.
    pub(super) fn due_within(&self) -> Option<u64> {
        let due = DUE.iter().find(|(value, ..)| Some(*value) == self.due.as_deref());
        due.map(|(_, _, seconds)| *seconds)
    }

    pub(super) fn filter(&self, kinds: Vec<Kind>, now: Timestamp) -> Filter {
        let due = self.due_within();
        Filter {
            kinds,
            state: self.state(),
            due_after: None,
            due_before: due.map(|seconds| now.after(Duration::from_secs(seconds))),
            key_prefix: self.q.clone(),
            error: self.error.clone(),
        }
    }

    /// The same as a search.
    pub(super) fn search(&self) -> form_urlencoded::Serializer<'static, String> {
        let mut search = form_urlencoded::Serializer::new(String::new());
        let state = self.state.map(|state| state_name(state).to_owned());
        for (name, value) in [
            ("q", &self.q),
            ("kind", &self.kind),
            ("state", &state),
            ("due", &self.due),
            ("error", &self.error),
        ] {
            if let Some(value) = value {
                search.append_pair(name, value);
            }
        }
        search
    }
}

/// The kinds that a list may be of that names none, and one more if there are more.
pub(super) async fn kinds(operations: &Operations, state: TaskState) -> Result<Vec<Kind>, Problem> {
    Ok(operations.kinds_in(state, None, KINDS + 1).await?)
}

/// The place after which a page begins.
pub(super) fn cursor(fields: &Fields) -> Result<Option<Position>, Problem> {
    Ok(fields.one("cursor").map(str::parse).transpose()?)
}

/// The kinds to choose from, the chosen one among them.
pub(super) fn choices(kinds: &[Kind], chosen: Option<&str>) -> Vec<Choice> {
    let mut names: Vec<&str> = kinds.iter().map(Kind::as_str).collect();
    names.extend(chosen.filter(|chosen| !names.contains(chosen)).as_slice());
    let choice = |name: &str| Choice {
        value: name.to_owned(),
        text: name.to_owned(),
        is_chosen: chosen == Some(name),
    };
    names.into_iter().map(choice).collect()
}
