//! New rows, and changes of rows, for their callers: each batch in a transaction of its own.

use std::time::Duration;

use super::File;
use super::session::SqliteSession;
use crate::store::sql::{self, Insert, Session, Why};
use crate::store::{Change, NewRow, Stamped};
use crate::{Answer, Scheduled};

pub(super) async fn insert(
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
    changes: &[Change],
    history: Duration,
) -> Result<Stamped<Vec<Result<Answer, Why>>>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    let mut session = SqliteSession::new(&mut writing, &file.clock);
    let answers = sql::change(&mut session, changes, history).await?;
    writing.commit().await?;
    Ok(answers)
}
