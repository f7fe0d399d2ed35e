//! Keeps rows in a file or in PostgreSQL, and reads all of them with what has happened to them.

use std::fmt;
use std::sync::Arc;

use delayline::history::Entry;
use delayline::store::{Page, PostgresStore, SqliteStore, Store};
use delayline::{Scheduler, State, Task, Timestamp};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tempfile::TempDir;

use crate::database::Database;
use crate::stores::migrate;

/// The kinds of messages, of tasks that are claimed, and of those that are changed in bulk.
pub(super) const MESSAGE: &str = "message";
pub(super) const JOB: &str = "job";
pub(super) const BULK: &str = "bulk";

const THROW_ALL_OUT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                             WHERE datname = current_database() AND pid <> pg_backend_pid()";

/// Where the rows are.
pub(super) enum Kept {
    File(TempDir),
    Postgres(String),
}

impl Kept {
    pub(super) async fn by(seed: u64) -> Self {
        if seed.is_multiple_of(2) {
            let url = Database::Postgres.fresh().await;
            migrate("postgres", &url);
            return Self::Postgres(url);
        }
        Self::File(tempfile::tempdir().unwrap())
    }

    pub(super) fn url(&self) -> String {
        match self {
            Self::File(folder) => format!("sqlite:{}", folder.path().join("rows").display()),
            Self::Postgres(url) => url.clone(),
        }
    }

    pub(super) fn has_sessions(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Ends all sessions of the database.
    pub(super) async fn end_sessions(&self) {
        if let Self::Postgres(url) = self {
            let mut session = PgConnection::connect(url).await.unwrap();
            session.execute(THROW_ALL_OUT).await.unwrap();
        }
    }

    pub(super) async fn open(&self) -> Scheduler {
        let store: Arc<dyn Store> = match self {
            Self::File(folder) => Arc::new(SqliteStore::open(folder.path().join("rows")).await.unwrap()),
            Self::Postgres(url) => Arc::new(PostgresStore::connect(url).await.unwrap()),
        };
        Scheduler::builder(store).build().unwrap()
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.has_sessions() {
            "PostgreSQL"
        } else {
            "a file"
        })
    }
}

/// A task, and all that has happened to it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) task: Task,
    pub(super) history: Vec<Entry>,
}

impl Row {
    pub(super) fn events<'a>(&'a self, event: &'a str) -> impl DoubleEndedIterator<Item = &'a Entry> {
        self.history.iter().filter(move |entry| entry.event == event)
    }

    /// When it ended.
    pub(super) fn ended_at(&self) -> Option<Timestamp> {
        self.task.finished_at
    }

    /// When it was first claimed.
    pub(super) fn claimed_at(&self) -> Option<Timestamp> {
        Some(self.events("claimed").next()?.at)
    }

    pub(super) fn told(&self) -> String {
        let Task {
            id,
            key,
            state,
            version,
            due_at,
            planned_at,
            attempt,
            stalls,
            ..
        } = &self.task;
        let mut told = format!(
            "  {id} of {key:?}: {state:?}, version {version}, due at {due_at}, planned for {planned_at}, attempt {attempt}, \
             {stalls} stalls"
        );
        for Entry {
            version,
            at,
            event,
            actor,
            reason,
            due_before,
            due_at,
            ..
        } in &self.history
        {
            told += &format!(
                "\n    {version} at {at} {event} by {actor:?} because {reason:?}, due {due_before:?} -> {due_at}"
            );
        }
        told
    }
}

async fn list(scheduler: &Scheduler, kind: &str, state: State) -> Vec<Task> {
    let (mut page, mut tasks) = (Page::new(kind, state).limit(500), Vec::new());
    loop {
        let found = scheduler.list(&page).await.unwrap();
        let Some(last) = found.last() else { break };
        page.after = Some((last.due_at, last.id));
        // A cancel that came before what it cancels leaves one, which is no message.
        let is_mark = |task: &Task| task.headers.contains_key("DELAYLINE_OVERTAKEN");
        tasks.extend(found.into_iter().filter(|task| !is_mark(task)));
    }
    tasks
}

/// How many wait or run of those that come to an end.
pub(super) async fn live(scheduler: &Scheduler) -> usize {
    let mut live = 0;
    for kind in [MESSAGE, JOB] {
        for state in [State::Scheduled, State::Running] {
            live += list(scheduler, kind, state).await.len();
        }
    }
    live
}

/// All of a kind.
pub(super) async fn of(scheduler: &Scheduler, kind: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for state in State::ALL {
        for task in list(scheduler, kind, state).await {
            let (task, history) = scheduler.history(task.id).await.unwrap().unwrap();
            rows.push(Row { task, history });
        }
    }
    rows
}
