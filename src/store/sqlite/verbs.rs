//! New rows, and changes of rows, for their callers: each batch in a transaction of its own, unless some of its rows
//! are refused.

use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;

use super::connections::refusal;
use super::session::SqliteSession;
use super::sql::MOST;
use super::transitions::change_scheduled;
use super::{File, write};
use crate::clock::Clock;
use crate::store::merging::{self, Batched};
use crate::store::sql::{self, Why, by_parts};
use crate::store::{Change, NewRow, Stamped, row};
use crate::{Answer, Error, Scheduled, Timestamp};

/// What each row of a batch was answered.
type Answers<A> = Vec<Result<A, Why>>;

#[async_trait]
impl Batched for File {
    fn name(&self) -> &'static str {
        super::NAME
    }

    /// A file has one writer: who comes while it writes is better off with all the others in the next call.
    fn calls(&self) -> usize {
        1
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn insert_alone(&self, rows: Vec<NewRow>) -> Result<merging::Answers<Scheduled>, Error> {
        self.within(insert(self, rows)).await
    }

    async fn change_alone(
        &self,
        changes: Vec<Change>,
        history: Duration,
    ) -> Result<merging::Answers<Answer>, Error> {
        self.within(change(self, changes, history)).await
    }
}

async fn insert(file: &File, new: Vec<NewRow>) -> Result<merging::Answers<Scheduled>, sqlx::Error> {
    let now = OnceLock::new();
    let found = by_parts(vec![new], refusal, |rows| insert_part(file, rows, &now)).await?;
    Ok(told(file, now, found))
}

async fn insert_part(
    file: &File,
    rows: Vec<NewRow>,
    first: &OnceLock<Timestamp>,
) -> Result<Answers<Scheduled>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    // Nearly always all of them are new.
    let now = writing.now;
    if (1..=MOST).contains(&rows.len()) && write::add_and_commit(&mut writing, &rows, now).await? {
        writing.end()?;
        first.get_or_init(|| now);
        return Ok(rows
            .into_iter()
            .map(|new| Ok(Scheduled::New(row::new(new, now))))
            .collect());
    }
    let mut session = SqliteSession::new(&mut writing, &file.clock);
    let Stamped { now, found } = sql::insert_at_once(&mut session, rows).await?;
    writing.commit().await?;
    first.get_or_init(|| now);
    Ok(found)
}

async fn change(
    file: &File,
    changes: Vec<Change>,
    history: Duration,
) -> Result<merging::Answers<Answer>, sqlx::Error> {
    let now = OnceLock::new();
    let part = |changes| change_part(file, changes, history, &now);
    let found = by_parts(vec![changes], refusal, part).await?;
    Ok(told(file, now, found))
}

async fn change_part(
    file: &File,
    changes: Vec<Change>,
    history: Duration,
    first: &OnceLock<Timestamp>,
) -> Result<Answers<Answer>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    let now = writing.now;
    first.get_or_init(|| now);
    let made = match changes.iter().all(sql::of_scheduled) {
        true => change_scheduled(&mut writing, &changes, now, history).await?,
        false => vec![None; changes.len()],
    };
    let left = sql::left(&changes, &made);
    let mut rest = Vec::new();
    if !left.is_empty() {
        let mut session = SqliteSession::new(&mut writing, &file.clock);
        rest = sql::change(&mut session, &left, history).await?.found;
    }
    writing.commit().await?;
    Ok(sql::with_rest(made, rest))
}

/// What the callers are told, as of the first look at any of the rows.
fn told<A>(file: &File, first: OnceLock<Timestamp>, found: Answers<A>) -> merging::Answers<A> {
    let told = |answer: Result<A, Why>| answer.map_err(|why| why.error(super::NAME));
    Stamped {
        now: first.into_inner().unwrap_or_else(|| file.clock.now()),
        found: found.into_iter().map(told).collect(),
    }
}
