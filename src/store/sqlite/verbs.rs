//! New rows, and changes of rows, for their callers: each batch in a transaction of its own.

use std::time::Duration;

use super::File;
use super::connections::Writing;
use super::session::SqliteSession;
use crate::store::sql::{self, Insert};
use crate::store::{Change, NewRow, Stamped};
use crate::{Answer, Scheduled};

pub(super) async fn insert(file: &File, new: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    let mut session = session(file, &mut writing);
    let insert = Insert::add(&mut session, new).await?;
    let answers = insert.rest(&mut session).await?;
    writing.commit().await?;
    Ok(answers)
}

pub(super) async fn change(
    file: &File,
    changes: &[Change],
    history: Duration,
) -> Result<Stamped<Vec<Answer>>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    let answers = sql::change(&mut session(file, &mut writing), changes, history).await?;
    writing.commit().await?;
    Ok(answers)
}

fn session<'a>(file: &'a File, writing: &'a mut Writing<'_>) -> SqliteSession<'a> {
    SqliteSession {
        connection: writing,
        clock: &file.clock,
    }
}
