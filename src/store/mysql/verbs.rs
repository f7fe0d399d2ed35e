//! New rows, and changes of rows, for their callers: each batch in a transaction of its own.

use std::time::Duration;

use sqlx::MySqlConnection;

use super::Server;
use super::session::{MySqlSession, Within};
use crate::store::sql::{self, Insert};
use crate::store::{Change, NewRow, Stamped};
use crate::{Answer, Scheduled};

pub(super) async fn insert(
    server: &Server,
    new: Vec<NewRow>,
) -> Result<Stamped<Vec<Scheduled>>, sqlx::Error> {
    let mut lent = server.connections.lend().await?;
    let mut session = session(server, &mut lent, Within::Nothing);
    let insert = Insert::add(&mut session, new).await?;
    if insert.is_done() {
        let answers = insert.rest(&mut session).await?;
        drop(session);
        lent.give_back();
        return Ok(answers);
    }
    drop(session);
    lent.give_back();
    let mut tries = 0;
    loop {
        match rest(server, &insert).await {
            Err(error) => server.connections.pause_after(error, &mut tries).await?,
            answers => return answers,
        }
    }
}

async fn rest(server: &Server, insert: &Insert) -> Result<Stamped<Vec<Scheduled>>, sqlx::Error> {
    let mut writing = server.connections.begin().await?;
    let answers = insert
        .rest(&mut session(server, &mut writing, Within::Own))
        .await?;
    writing.commit().await?;
    Ok(answers)
}

pub(super) async fn change(
    server: &Server,
    changes: &[Change],
    history: Duration,
) -> Result<Stamped<Vec<Answer>>, sqlx::Error> {
    let mut tries = 0;
    loop {
        match change_once(server, changes, history).await {
            Err(error) => server.connections.pause_after(error, &mut tries).await?,
            answers => return answers,
        }
    }
}

async fn change_once(
    server: &Server,
    changes: &[Change],
    history: Duration,
) -> Result<Stamped<Vec<Answer>>, sqlx::Error> {
    let mut writing = server.connections.begin().await?;
    let answers = sql::change(&mut session(server, &mut writing, Within::Own), changes, history).await?;
    writing.commit().await?;
    Ok(answers)
}

fn session<'a>(
    server: &'a Server,
    connection: &'a mut MySqlConnection,
    within: Within<'a>,
) -> MySqlSession<'a> {
    MySqlSession {
        connection,
        server,
        within,
    }
}
