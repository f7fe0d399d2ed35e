//! New rows, and changes of rows, for their callers: each batch in a transaction of its own.

use std::time::Duration;

use sqlx::PgConnection;

use super::connections::Database;
use super::session::PostgresSession;
use crate::store::sql::{self, Insert};
use crate::store::{Change, NewRow, Stamped};
use crate::{Answer, Scheduled, State};

pub(super) async fn insert(
    database: &Database,
    new: Vec<NewRow>,
) -> Result<Stamped<Vec<Scheduled>>, sqlx::Error> {
    let mut connection = database.pool.acquire().await?;
    let mut alone = PostgresSession {
        connection: &mut connection,
        database,
        is_alone: true,
    };
    let insert = Insert::add(&mut alone, new).await?;
    if insert.is_done() {
        // The session is asked nothing then.
        return insert.rest(&mut alone).await;
    }
    drop(connection);
    let rest = || async {
        let mut transaction = database.pool.begin().await?;
        let answers = self::rest(&mut session(database, &mut transaction), &insert).await?;
        transaction.commit().await?;
        Ok(answers)
    };
    database.retried(rest).await
}

/// Answers for what a first step has not written, and tells of what was replaced.
pub(super) async fn rest(
    session: &mut PostgresSession<'_>,
    insert: &Insert,
) -> Result<Stamped<Vec<Scheduled>>, sqlx::Error> {
    let answers = insert.rest(session).await?;
    let replaced = answers.found.iter().filter_map(|answer| match answer {
        Scheduled::Replaced(task) => Some(task),
        _ => None,
    });
    session.notify(answers.now, replaced).await?;
    Ok(answers)
}

pub(super) async fn change(
    database: &Database,
    changes: &[Change],
    history: Duration,
) -> Result<Stamped<Vec<Answer>>, sqlx::Error> {
    let change = || async {
        let mut transaction = database.pool.begin().await?;
        let answers = self::within(&mut session(database, &mut transaction), changes, history).await?;
        transaction.commit().await?;
        Ok(answers)
    };
    database.retried(change).await
}

/// Changes rows within a transaction, and tells of what is scheduled then.
pub(super) async fn within(
    session: &mut PostgresSession<'_>,
    changes: &[Change],
    history: Duration,
) -> Result<Stamped<Vec<Answer>>, sqlx::Error> {
    let answers = sql::change(session, changes, history).await?;
    let scheduled = answers.found.iter().filter_map(|answer| match answer {
        Answer::Done(task) if task.state == State::Scheduled => Some(task),
        _ => None,
    });
    session.notify(answers.now, scheduled).await?;
    Ok(answers)
}

fn session<'a>(database: &'a Database, connection: &'a mut PgConnection) -> PostgresSession<'a> {
    PostgresSession {
        connection,
        database,
        is_alone: false,
    }
}
