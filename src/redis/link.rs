//! Shares one connection for everything but receiving.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{FromRedisValue, RedisError, RedisResult};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::address::Address;
use super::call::{Call, NOT_THERE, REFUSED};
use super::connection::Connection;
use super::failure::{Role, is_connection_spent};
use crate::Error;

/// After how long without any answer the connections to a Cluster are replaced, from the nodes that the URL names. The
/// client mends connections to single nodes by itself, and the others still work meanwhile.
const CLUSTER_SILENCE: Duration = Duration::from_secs(5);
/// How long connecting may take, beside the time for one node's answer. Longer than a call: in a Cluster every node is
/// tried, also those that hang.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long a connection may take for an answer on which a caller has given up.
const ASKED_FOR: Duration = Duration::from_secs(5);

/// One connection, shared by all callers, made when it is first needed and replaced when it was lost.
///
/// Not the client's own connection manager: that answers with a past failure after the server has come back, and for
/// ever if the failure was not of the network (a server that was still loading its data, for example).
#[derive(Debug)]
pub(crate) struct Link {
    shared: Arc<Shared>,
}

/// State that is shared with the tasks that make connections: these go on when a caller does not wait that long.
#[derive(Debug)]
struct Shared {
    address: Address,
    role: Role,
    answer_within: Duration,
    state: Mutex<State>,
    /// Held while connecting, so that waiting callers do not each open a connection to a returning server.
    connecting: Arc<tokio::sync::Mutex<()>>,
    /// Held while it is asked whether a connection still answers.
    asking: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Numbered>,
    /// The number of the next connection.
    next: u64,
    /// Time of the last answer, or when the connection was made.
    answered: Option<Instant>,
    closed: bool,
}

/// A connection with a number, so that a caller drops the one that failed, and not its successor.
#[derive(Clone, Debug)]
struct Numbered {
    number: u64,
    connection: Connection,
}

impl Link {
    /// Makes a link; each node of a Cluster has `answer_within` for an answer: not longer, as it may hang while its replica
    /// has taken its place.
    pub(crate) fn new(address: Address, role: Role, answer_within: Duration) -> Self {
        let shared = Shared {
            address,
            role,
            answer_within,
            state: Mutex::default(),
            connecting: Arc::default(),
            asking: Arc::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.shared.address
    }

    pub(crate) fn role(&self) -> Role {
        self.shared.role
    }

    /// Returns the answer to `call`, or an error within `limit`.
    ///
    /// If the connection turns out to be lost, the call is repeated on a new one, though it may have been done: every
    /// call of this crate may be repeated, except those that are to be made [once](Call::once).
    pub(crate) async fn call<T: FromRedisValue>(&self, limit: Duration, call: &Call) -> Result<T, Error> {
        let mut waiting = Waiting {
            shared: &self.shared,
            call,
            on: None,
        };
        let answer = tokio::time::timeout(limit, self.attempts(call, &mut waiting.on)).await;
        let used = waiting.on.take();
        match answer {
            Ok(answer) => answer,
            Err(_) => {
                // The connection may be dead, which TCP notices only after many minutes.
                if let Some(number) = used {
                    self.shared.unanswered(number, call.probe());
                }
                Err(self.role().timed_out(limit))
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
                    self.shared.answered();
                    return Ok(answer);
                }
                // Not repeated: it may have been done; and a node that hangs does so for the next call as well.
                Err(error) if error.is_timeout() && self.address().is_clustered() => {
                    self.shared.unanswered(number, call.probe());
                    return Err(self.shared.failure(error));
                }
                Err(error) if is_connection_spent(&error) => {
                    self.shared.forget(number);
                    // A server that gives a reason has not done it.
                    let may_be_done =
                        call.is_once() && (error.is_io_error() || error.is_unrecoverable_error());
                    if is_new || retried || may_be_done {
                        return Err(self.shared.failure(error));
                    }
                    retried = true;
                }
                Err(error) => return Err(self.shared.failure(error)),
            }
        }
    }

    /// Returns the connection, and whether it was made just now.
    async fn connection(&self) -> Result<(Numbered, bool), Error> {
        if let Some(connection) = self.shared.current()? {
            return Ok((connection, false));
        }
        let connecting = self.shared.connecting.clone().lock_owned().await;
        // Another caller may have made it meanwhile.
        if let Some(connection) = self.shared.current()? {
            return Ok((connection, false));
        }
        let shared = self.shared.clone();
        let making = tokio::spawn(async move {
            let connection = shared.connect().await?;
            let made = shared.take(connection);
            drop(connecting);
            made
        });
        let made = making.await.map_err(|error| self.role().error(true, error))?;
        Ok((made?, true))
    }

    /// Drops the connection for ever.
    pub(crate) fn close(&self) {
        let mut state = self.shared.state();
        state.closed = true;
        state.connection = None;
    }
}

/// A caller that waits for an answer, and the number of the connection that is to bring it.
///
/// One that is dropped meanwhile, by a limit of its caller's own, has learnt nothing of the connection. Where all callers give up
/// sooner than the limits here, a dead connection would never be noticed: so it is asked after.
struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    call: &'a Call,
    on: Option<u64>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Without a runtime there is no task that could ask.
        if let Some(number) = self.on
            && let Some(probe) = self.call.probe()
            && let Ok(runtime) = Handle::try_current()
        {
            self.shared.ask_after(number, probe, &runtime);
        }
    }
}

/// Whether a server answers a probe on this connection: one that refuses to has answered, too.
async fn is_answered(probe: &Call, connection: &mut Connection) -> bool {
    let answer = probe.on::<()>(connection).await;
    answer.is_err_and(|error| matches!(error.kind(), NOT_THERE | REFUSED))
}

impl Shared {
    async fn connect(&self) -> Result<Connection, Error> {
        let limit = self.connect_limit();
        match tokio::time::timeout(limit, self.address.connect(self.answer_within)).await {
            Ok(connection) => connection.map_err(|error| self.failure(error)),
            Err(_) => Err(self.role.timed_out(limit)),
        }
    }

    fn connect_limit(&self) -> Duration {
        CONNECT_LIMIT.saturating_add(self.answer_within)
    }

    /// Records that a call on a connection was not answered in time.
    fn unanswered(self: &Arc<Self>, number: u64, probe: Option<Call>) {
        self.forget(number);
        if let Some(probe) = probe.filter(|_| self.address.is_clustered()) {
            self.look_for_another(number, probe);
        }
    }

    /// Reconnects in the background to a Cluster of which a node does not answer and others do. If another node answers
    /// for the slot, its replica for example, that connection is used from then on.
    ///
    /// The client learns of other masters by redirections, and by connections that end. A node that hangs causes
    /// neither.
    fn look_for_another(self: &Arc<Self>, number: u64, probe: Call) {
        // Another task connects already.
        let Ok(connecting) = self.connecting.clone().try_lock_owned() else {
            return;
        };
        if !self.is_current(number) {
            return;
        }
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let looking = async {
                let mut connection = shared.connect().await?;
                if is_answered(&probe, &mut connection).await && shared.is_current(number) {
                    shared.take(connection)?;
                }
                Ok::<(), Error>(())
            };
            if let Ok(Err(error)) = tokio::time::timeout(shared.connect_limit(), looking).await {
                tracing::debug!(%error, "found no other way to a node that does not answer");
            }
            drop(connecting);
        });
    }

    /// Finds out in the background whether a connection still answers, on which a caller has not waited for its answer.
    fn ask_after(self: &Arc<Self>, number: u64, probe: Call, runtime: &Handle) {
        // One at a time: while callers give up, there will be another.
        let Ok(asking) = self.asking.clone().try_lock_owned() else {
            return;
        };
        let Some(mut connection) = self.numbered(number) else {
            return;
        };
        let shared = Arc::clone(self);
        runtime.spawn(async move {
            let answer = is_answered(&probe, &mut connection);
            if tokio::time::timeout(ASKED_FOR, answer).await != Ok(true) {
                match shared.address.is_clustered() {
                    // Those to other nodes may be as good as ever.
                    true => shared.look_for_another(number, probe),
                    false => shared.forget(number),
                }
            }
            drop(asking);
        });
    }

    /// Makes a connection the current one for all callers.
    fn take(&self, connection: Connection) -> Result<Numbered, Error> {
        let mut state = self.state();
        if state.closed {
            return Err(self.role.closed());
        }
        let number = state.next;
        state.next += 1;
        state.answered = Some(Instant::now());
        let connection = Numbered { number, connection };
        state.connection = Some(connection.clone());
        Ok(connection)
    }

    fn current(&self) -> Result<Option<Numbered>, Error> {
        let state = self.state();
        if state.closed {
            return Err(self.role.closed());
        }
        Ok(state.connection.clone())
    }

    /// The connection of this number, if it is still the current one.
    fn numbered(&self, number: u64) -> Option<Connection> {
        let state = self.state();
        let current = state.connection.as_ref();
        current
            .filter(|current| current.number == number)
            .map(|current| current.connection.clone())
    }

    fn is_current(&self, number: u64) -> bool {
        self.numbered(number).is_some()
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

    fn failure(&self, error: RedisError) -> Error {
        self.role.failure(&self.address, error)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
