//! A ZSET of ids and the bare commands: the least that a server must do for wake-ups.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Script};

use super::super::Error;
use super::super::ledger::{Ledger, ServerClock, now_micros};
use super::super::side::{Item, Pending, SOON, Side, Verb};
use super::scripts::TAKE;
use super::taking::{self, Taking};

/// How many are leased in one call.
pub(super) const LEASE: usize = 100;
/// How long who finds nothing waits before he looks again.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    due: Arc<str>,
    leased: Arc<str>,
    take: Script,
}

impl Bare {
    pub(super) fn new(connection: MultiplexedConnection, prefix: &str) -> Self {
        Self {
            connection,
            due: format!("{prefix}:due").into(),
            leased: format!("{prefix}:leased").into(),
            take: Script::new(TAKE),
        }
    }
}

/// As long as the id of a task.
pub(super) fn id(number: usize) -> [u8; 16] {
    (number as u128).to_be_bytes()
}

pub(super) fn number(id: &[u8]) -> Option<usize> {
    let id: [u8; 16] = id.try_into().ok()?;
    usize::try_from(u128::from_be_bytes(id)).ok()
}

impl Side for Bare {
    async fn apply(&self, verb: Verb, items: &[Item]) -> Result<usize, Error> {
        let mut command = match verb {
            Verb::Cancel => redis::cmd("ZREM"),
            Verb::Add | Verb::Move => redis::cmd("ZADD"),
        };
        command.arg(&*self.due);
        if verb == Verb::Move {
            command.arg("XX").arg("CH");
        }
        for item in items {
            if verb != Verb::Cancel {
                command.arg(item.due);
            }
            command.arg(&id(item.number));
        }
        Ok(command.query_async(&mut self.connection.clone()).await?)
    }

    async fn drain(&self, ledger: &Arc<Ledger>) -> Result<usize, Error> {
        taking::drain(self, ledger).await
    }

    async fn pending(&self) -> Result<Pending, Error> {
        pending(&self.connection, &self.due).await
    }

    async fn clock(&self) -> Result<ServerClock, Error> {
        super::clock(&self.connection).await
    }

    async fn close(self) -> Result<(), Error> {
        Ok(())
    }
}

/// What is in a ZSET by due times.
pub(super) async fn pending(connection: &MultiplexedConnection, due: &str) -> Result<Pending, Error> {
    let count = |to: String| {
        let mut command = Cmd::new();
        command.arg("ZCOUNT").arg(due).arg("-inf").arg(to);
        command
    };
    let soon = count((now_micros() / 1_000 + SOON).to_string());
    Ok(Pending {
        soon: soon.query_async(&mut connection.clone()).await?,
        all: count("+inf".to_owned())
            .query_async(&mut connection.clone())
            .await?,
    })
}

impl Taking for Bare {
    type Taken = Vec<u8>;

    async fn take(&self) -> Result<Vec<(usize, Vec<u8>)>, Error> {
        let mut call = self.take.key(&*self.due);
        let call = call.key(&*self.leased).arg(LEASE);
        let ids: Vec<Vec<u8>> = call.invoke_async(&mut self.connection.clone()).await?;
        if !ids.is_empty() {
            return Ok(ids
                .into_iter()
                .filter_map(|id| Some((number(&id)?, id)))
                .collect());
        }
        tokio::time::sleep(PAUSE).await;
        Ok(Vec::new())
    }

    async fn finish(&self, taken: Vec<Vec<u8>>) -> Result<(), Error> {
        let mut command = redis::cmd("ZREM");
        command.arg(&*self.leased).arg(taken);
        Ok(command.exec_async(&mut self.connection.clone()).await?)
    }
}
