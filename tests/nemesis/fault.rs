//! Lists the faults.

use crate::proxy::Network;
use crate::suspend::Still;

/// A fault, which lasts for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// The network of a line behaves like this.
    Network(Line, Network),
    /// All connections of a line are reset, once.
    Reset(Line),
    /// A worker's process is killed, and started again at the end.
    Killed(usize),
    /// A worker's process is stopped.
    Still(usize, Still),
    /// A fault of the server of the rows.
    Store(Harm),
    /// A fault of the Redis that carries wake-ups.
    Precise(Harm),
    /// A fault of the broker.
    Broker(Harm),
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    WorkersToStore,
    CallersToStore,
    ToPrecise,
    ToNameserver,
    ToBroker,
}

impl Line {
    pub(crate) fn is_to_store(self) -> bool {
        matches!(self, Self::WorkersToStore | Self::CallersToStore)
    }
}

/// A fault of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// Its process is killed, and started again at the end.
    Killed,
    /// Its process is stopped.
    Hung,
    /// It forgets everything, once.
    Emptied,
    /// The service's account may not use its tables or keys.
    Revoked,
    /// The service's account may not log in, and its connections are closed.
    LockedOut,
    /// It takes no writes, and connections are closed so that all clients learn it.
    ReadOnly,
    /// The table has another name.
    TableAway,
    /// There is no space left, on its disk or in its memory.
    Full,
    /// Another program's transaction has rows locked.
    RowsLocked,
}

/// The target of a fault: of faults at the same time each has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    Line(Line),
    Worker(usize),
    Store,
    Precise,
    Broker,
}

impl Fault {
    /// Whether this fault waits for locks that the other fault may keep a process from releasing, for as long as it lasts.
    pub(crate) fn waits_for(self, other: Self) -> bool {
        let waits = matches!(self, Self::Store(Harm::TableAway | Harm::RowsLocked));
        let keeps = match other {
            Self::Still(..) => true,
            Self::Network(line, _) => line.is_to_store(),
            Self::Reset(_) | Self::Killed(_) | Self::Store(_) | Self::Precise(_) | Self::Broker(_) => false,
        };
        waits && keeps
    }

    pub(crate) fn touched(self) -> Touched {
        match self {
            Self::Network(line, _) | Self::Reset(line) => Touched::Line(line),
            Self::Killed(worker) | Self::Still(worker, _) => Touched::Worker(worker),
            Self::Store(_) => Touched::Store,
            Self::Precise(_) => Touched::Precise,
            Self::Broker(_) => Touched::Broker,
        }
    }
}
