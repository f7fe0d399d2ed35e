//! The connection for everything but receiving.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisResult};

use super::closed;
use super::endpoint::{Endpoint, is_connection_spent};
use super::script::Call;
use crate::Error;

/// One connection, shared by all callers, made when it is first needed and made anew when it was lost.
///
/// Not the client's own connection manager: that one answers with a past failure after the server has come back, and
/// for ever if the failure was not of the network (a server that was still loading its data, say).
#[derive(Debug)]
pub(super) struct Link {
    endpoint: Endpoint,
    state: Mutex<State>,
    /// Held while connecting, so that a returning server is not met by a connection for every waiting caller.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Numbered>,
    /// The number of the next connection.
    next: u64,
    closed: bool,
}

/// A connection with a number, so that a caller drops the one that failed it, and not the one after.
#[derive(Clone, Debug)]
struct Numbered {
    number: u64,
    connection: MultiplexedConnection,
}

impl Link {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            state: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The answer to `call`, or an error within `limit`.
    ///
    /// If the connection turns out to be lost, the call is made once more on a new one: every call of this backend
    /// may be repeated.
    pub(super) async fn call<T: FromRedisValue>(&self, limit: Duration, call: &Call) -> Result<T, Error> {
        let mut used = None;
        let answer = tokio::time::timeout(limit, self.attempts(call, &mut used)).await;
        match answer {
            Ok(answer) => answer,
            Err(_) => {
                // It may lead to nowhere, which TCP notices only after many minutes.
                if let Some(number) = used {
                    self.forget(number);
                }
                Err(Endpoint::timed_out(limit))
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
                Ok(answer) => return Ok(answer),
                Err(error) if is_connection_spent(&error) => {
                    self.forget(number);
                    if is_new || retried {
                        return Err(self.endpoint.error(error));
                    }
                    retried = true;
                }
                Err(error) => return Err(self.endpoint.error(error)),
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
        let connection = self
            .endpoint
            .connect()
            .await
            .map_err(|error| self.endpoint.error(error))?;
        let mut state = self.state();
        if state.closed {
            return Err(closed());
        }
        let number = state.next;
        state.next += 1;
        let connection = Numbered { number, connection };
        state.connection = Some(connection.clone());
        Ok((connection, true))
    }

    fn current(&self) -> Result<Option<Numbered>, Error> {
        let state = self.state();
        if state.closed {
            return Err(closed());
        }
        Ok(state.connection.clone())
    }

    fn forget(&self, number: u64) {
        let mut state = self.state();
        if state
            .connection
            .as_ref()
            .is_some_and(|current| current.number == number)
        {
            state.connection = None;
        }
    }

    /// Lets go of the connection for ever.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.connection = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
