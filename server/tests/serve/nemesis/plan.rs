//! Says when what fails: a pure function of a seed.

use std::time::Duration;

use fastrand::Rng;

/// For how long all is well at first.
const QUIET: u64 = 2_000;

/// What may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A server is killed, and another one started in its place at the end.
    Killed(usize),
    /// A server's process is stopped.
    Stopped(usize),
    /// The broker is killed, and started again at the end.
    BrokerKilled,
    /// The database throws out all that are connected, once.
    SessionsEnded,
}

impl Fault {
    /// Two that touch the same do not come at the same time.
    fn touched(self) -> usize {
        match self {
            Self::Killed(server) | Self::Stopped(server) => server,
            Self::BrokerKilled => 2,
            Self::SessionsEnded => 3,
        }
    }
}

/// That a fault begins, or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) at: Duration,
    pub(super) fault: Fault,
    pub(super) begins: bool,
}

/// What happens within a span, in order.
pub(super) fn plan(seed: u64, span: Duration, has_sessions: bool) -> Vec<Planned> {
    let mut chance = Rng::with_seed(seed);
    let (mut now, mut free, mut planned) = (QUIET, [0; 4], Vec::new());
    while u128::from(now) < span.as_millis() {
        let fault = match chance.u8(..8) {
            0..3 => Fault::Killed(chance.usize(..2)),
            3..5 => Fault::Stopped(chance.usize(..2)),
            5..7 => Fault::BrokerKilled,
            _ if has_sessions => Fault::SessionsEnded,
            _ => Fault::Killed(chance.usize(..2)),
        };
        let ends = now + chance.u64(200..5_000);
        if now >= free[fault.touched()] {
            let at = Duration::from_millis;
            planned.push(Planned {
                at: at(now),
                fault,
                begins: true,
            });
            planned.push(Planned {
                at: at(ends),
                fault,
                begins: false,
            });
            free[fault.touched()] = ends + 500;
        }
        now += chance.u64(300..2_500);
    }
    planned.sort_by_key(|planned| planned.at);
    planned
}
