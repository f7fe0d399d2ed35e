//! The connection for everything but receiving.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{FromRedisValue, RedisResult};
use tokio::time::Instant;

use super::address::Address;
use super::call::Call;
use super::connection::Connection;
use super::failure::{Role, is_connection_spent};
use crate::Error;

/// After how long without any answer the connections to a Cluster are made anew, from the nodes that the URL names. The
/// client mends those to single nodes by itself, and the others still work meanwhile.
const CLUSTER_SILENCE: Duration = Duration::from_secs(5);

/// One connection, shared by all callers, made when it is first needed and made anew when it was lost.
///
/// Not the client's own connection manager: that one answers with a past failure after the server has come back, and
/// for ever if the failure was not of the network (a server that was still loading its data, say).
#[derive(Debug)]
pub(crate) struct Link {
    address: Address,
    role: Role,
    state: Mutex<State>,
    /// Held while connecting, so that a returning server is not met by a connection for every waiting caller.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Numbered>,
    /// The number of the next connection.
    next: u64,
    /// When something was answered last, or the connection was made.
    answered: Option<Instant>,
    closed: bool,
}

/// A connection with a number, so that a caller drops the one that failed it, and not the one after.
#[derive(Clone, Debug)]
struct Numbered {
    number: u64,
    connection: Connection,
}

impl Link {
    pub(crate) fn new(address: Address, role: Role) -> Self {
        Self {
            address,
            role,
            state: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// The answer to `call`, or an error within `limit`.
    ///
    /// If the connection turns out to be lost, the call is made once more on a new one: every call of this crate
    /// may be repeated.
    pub(crate) async fn call<T: FromRedisValue>(&self, limit: Duration, call: &Call) -> Result<T, Error> {
        let mut used = None;
        let answer = tokio::time::timeout(limit, self.attempts(call, &mut used)).await;
        match answer {
            Ok(answer) => answer,
            Err(_) => {
                // It may lead to nowhere, which TCP notices only after many minutes.
                if let Some(number) = used {
                    self.forget(number);
                }
                Err(self.role.timed_out(limit))
            }
        }
    }

    async fn attempts<T: FromRedisValue>(&self, call: &Call, used: &mut Option<u64>) -> Result<T, Error> {
        let mut retried = false;
        loop {
            let (
                Numbered {
                    number,
                    mut connection,
                },
                is_new,
            ) = self.connection().await?;
            *used = Some(number);
            let answer: RedisResult<T> = call.on(&mut connection).await;
            match answer {
                Ok(answer) => {
                    self.answered();
                    return Ok(answer);
                }
                Err(error) if is_connection_spent(&error) => {
                    self.forget(number);
                    if is_new || retried {
                        return Err(self.role.failure(&self.address, error));
                    }
                    retried = true;
                }
                Err(error) => return Err(self.role.failure(&self.address, error)),
            }
        }
    }

    /// The connection, and whether it was made just now.
    async fn connection(&self) -> Result<(Numbered, bool), Error> {
        if let Some(connection) = self.current()? {
            return Ok((connection, false));
        }
        let _connecting = self.connecting.lock().await;
        // Another caller may have made it meanwhile.
        if let Some(connection) = self.current()? {
            return Ok((connection, false));
        }
        let connection = self.address.connect().await;
        let connection = connection.map_err(|error| self.role.failure(&self.address, error))?;
        let mut state = self.state();
        if state.closed {
            return Err(self.role.closed());
        }
        let number = state.next;
        state.next += 1;
        state.answered = Some(Instant::now());
        let connection = Numbered { number, connection };
        state.connection = Some(connection.clone());
        Ok((connection, true))
    }

    fn current(&self) -> Result<Option<Numbered>, Error> {
        let state = self.state();
        if state.closed {
            return Err(self.role.closed());
        }
        Ok(state.connection.clone())
    }

    fn forget(&self, number: u64) {
        let mut state = self.state();
        let Some(current) = state
            .connection
            .as_ref()
            .filter(|current| current.number == number)
        else {
            return;
        };
        let is_silent = state
            .answered
            .is_none_or(|answered| answered.elapsed() >= CLUSTER_SILENCE);
        if is_silent || matches!(current.connection, Connection::One(_)) {
            state.connection = None;
        }
    }

    fn answered(&self) {
        self.state().answered = Some(Instant::now());
    }

    /// Lets go of the connection for ever.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.connection = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
