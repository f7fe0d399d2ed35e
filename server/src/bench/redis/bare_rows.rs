//! A packed value, an index of keys and a ZSET, written in one script: the least that keeps rows.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Script, ScriptInvocation};

use super::super::Error;
use super::super::ledger::{Ledger, ServerClock};
use super::super::side::{Item, PAYLOAD, Pending, Side, Verb, key};
use super::bare::{LEASE, PAUSE, id, number, pending};
use super::scripts::{ADD_ROWS, MOVE_ROWS, REMOVE_ROWS, TAKE_ROWS};
use super::taking::{self, Taking};

/// The head of a row beside its payload: times, state, version and the like.
const HEAD: usize = 60;
const VALUE: [u8; HEAD + PAYLOAD.len()] = [b'x'; HEAD + PAYLOAD.len()];
const MOVED: [u8; HEAD + PAYLOAD.len()] = [b'y'; HEAD + PAYLOAD.len()];

#[derive(Clone)]
pub(crate) struct BareRows {
    connection: MultiplexedConnection,
    names: Arc<Names>,
    add: Script,
    remove: Script,
    move_to: Script,
    take: Script,
}

struct Names {
    due: String,
    leased: String,
    rows: String,
    keys: String,
}

impl BareRows {
    pub(super) fn new(connection: MultiplexedConnection, prefix: &str) -> Self {
        let names = Names {
            due: format!("{prefix}:due"),
            leased: format!("{prefix}:leased"),
            rows: format!("{prefix}:rows"),
            keys: format!("{prefix}:keys"),
        };
        Self {
            connection,
            names: Arc::new(names),
            add: Script::new(ADD_ROWS),
            remove: Script::new(REMOVE_ROWS),
            move_to: Script::new(MOVE_ROWS),
            take: Script::new(TAKE_ROWS),
        }
    }

    /// A call of a script with all keys, the ZSET first that it is about.
    fn call<'a>(&self, script: &'a Script, first: &str, second: &str) -> ScriptInvocation<'a> {
        let mut call = script.key(first);
        call.key(second).key(&self.names.rows).key(&self.names.keys);
        call
    }
}

impl Side for BareRows {
    async fn apply(&self, verb: Verb, items: &[Item]) -> Result<usize, Error> {
        let script = match verb {
            Verb::Add => &self.add,
            Verb::Cancel => &self.remove,
            Verb::Move => &self.move_to,
        };
        let mut call = self.call(script, &self.names.due, &self.names.leased);
        for item in items {
            call.arg(&id(item.number)[..]);
            match verb {
                Verb::Add => call.arg(item.due).arg(item.key()).arg(&VALUE[..]),
                Verb::Cancel => call.arg(item.key()),
                Verb::Move => call.arg(item.due).arg(&MOVED[..]),
            };
        }
        Ok(call.invoke_async(&mut self.connection.clone()).await?)
    }

    async fn drain(&self, ledger: &Arc<Ledger>) -> Result<usize, Error> {
        taking::drain(self, ledger).await
    }

    async fn pending(&self) -> Result<Pending, Error> {
        pending(&self.connection, &self.names.due).await
    }

    async fn clock(&self) -> Result<ServerClock, Error> {
        super::clock(&self.connection).await
    }

    async fn close(self) -> Result<(), Error> {
        Ok(())
    }
}

impl Taking for BareRows {
    type Taken = usize;

    async fn take(&self) -> Result<Vec<(usize, usize)>, Error> {
        let mut call = self.call(&self.take, &self.names.due, &self.names.leased);
        let (ids, _rows): (Vec<Vec<u8>>, Vec<Vec<u8>>) =
            call.arg(LEASE).invoke_async(&mut self.connection.clone()).await?;
        if !ids.is_empty() {
            let numbers = ids.iter().filter_map(|id| number(id));
            return Ok(numbers.map(|number| (number, number)).collect());
        }
        tokio::time::sleep(PAUSE).await;
        Ok(Vec::new())
    }

    async fn finish(&self, taken: Vec<usize>) -> Result<(), Error> {
        let mut call = self.call(&self.remove, &self.names.leased, &self.names.due);
        for number in taken {
            call.arg(&id(number)[..]).arg(key(number));
        }
        let _: usize = call.invoke_async(&mut self.connection.clone()).await?;
        Ok(())
    }
}
