//! New rows, and changes of rows, for their callers: each batch in a transaction of its own, unless some of its rows
//! are refused.

use std::time::Duration;

use super::File;
use super::apart::Apart;
use super::session::SqliteSession;
use crate::store::sql::{self, Insert, Session, Why};
use crate::store::{Change, NewRow, Stamped};
use crate::{Answer, Error, Scheduled};

pub(super) async fn insert(
    file: &File,
    new: Vec<NewRow>,
) -> Result<Stamped<Vec<Result<Scheduled, Error>>>, sqlx::Error> {
    let mut apart = Apart::new(new, &file.clock);
    while let Some(part) = apart.next() {
        let came = insert_part(file, part.clone()).await;
        apart.came(part, came)?;
    }
    Ok(apart.stamped())
}

async fn insert_part(
    file: &File,
    new: Vec<NewRow>,
) -> Result<Stamped<Vec<Result<Scheduled, Why>>>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    let answers = add(&mut SqliteSession::new(&mut writing, &file.clock), new).await?;
    writing.commit().await?;
    Ok(answers)
}

/// Writes rows within a transaction.
pub(super) async fn add(
    session: &mut SqliteSession<'_>,
    new: Vec<NewRow>,
) -> Result<Stamped<Vec<Result<Scheduled, Why>>>, sqlx::Error> {
    // Nearly always nothing is in the way, so nothing is looked up before.
    let added = session.add(&new, None).await?;
    let mut insert = Insert::of(new, added);
    if !insert.left.is_empty() {
        let left = insert.left.iter().map(|(_, new)| new.clone());
        let answers = sql::insert(session, left.collect()).await?;
        insert.answer(answers.found);
    }
    Ok(insert.stamped())
}

pub(super) async fn change(
    file: &File,
    changes: Vec<Change>,
    history: Duration,
) -> Result<Stamped<Vec<Result<Answer, Error>>>, sqlx::Error> {
    let mut apart = Apart::new(changes, &file.clock);
    while let Some(part) = apart.next() {
        let came = change_part(file, &part, history).await;
        apart.came(part, came)?;
    }
    Ok(apart.stamped())
}

async fn change_part(
    file: &File,
    changes: &[Change],
    history: Duration,
) -> Result<Stamped<Vec<Result<Answer, Why>>>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    let mut session = SqliteSession::new(&mut writing, &file.clock);
    let answers = sql::change(&mut session, changes, history).await?;
    writing.commit().await?;
    Ok(answers)
}
