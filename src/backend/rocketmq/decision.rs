//! Decides what to do about a master, by its state and the last health check: pure functions.
//!
//! `health_check.rs` and `producer.rs` observe and act.

use crate::defaults;

/// Whether messages are sent to a master: a circuit breaker for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Circuit {
    /// Messages are sent; so many batches in a row have failed.
    Closed { failures: u32 },
    /// Messages are sent on trial: one more failure opens the circuit.
    HalfOpen,
    /// It takes no messages, so none are sent until a probe succeeds.
    Open,
    /// It does not answer at all, so none are sent, and connections to it may be dead.
    Unreachable,
}

impl Circuit {
    pub(super) const CLOSED: Self = Self::Closed { failures: 0 };

    pub(super) fn is_sent_to(self) -> bool {
        matches!(self, Self::Closed { .. } | Self::HalfOpen)
    }

    /// Records a batch of which the master took something.
    pub(super) fn after_success(self) -> Self {
        match self {
            Self::Closed { .. } | Self::HalfOpen => Self::CLOSED,
            open => open,
        }
    }

    /// Records a batch of which the master took nothing. A master that is late once is not left out: the failed
    /// messages went elsewhere anyhow.
    pub(super) fn after_failure(self) -> Self {
        match self {
            Self::Closed { failures } if failures + 1 < defaults::UNWELL_AFTER => Self::Closed {
                failures: failures + 1,
            },
            other => other.opened(),
        }
    }

    /// Records that the master takes no messages.
    pub(super) fn opened(self) -> Self {
        match self {
            Self::Unreachable => Self::Unreachable,
            _ => Self::Open,
        }
    }
}

/// The state of a master when a health check has its answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    pub(super) circuit: Circuit,
    /// Whether the last health check had no answer.
    pub(super) was_silent: bool,
    /// Whether the pause after the last failure is over.
    pub(super) probe_is_due: bool,
}

/// What a health check has seen of a master.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    pub(super) reply: Reply,
    /// Whether the nameservers list it; if they do not answer, as before.
    pub(super) is_listed: bool,
    /// Whether it is new, was restarted, or supports other delays than before.
    pub(super) is_restarted: bool,
    /// Whether the consumer group exists, as far as it says.
    pub(super) has_group: bool,
    /// Whether it has a queue of the topic that may be written to.
    pub(super) has_queue: bool,
}

/// How a master replies to a request for its runtime statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Given,
    /// It is there, and refuses: by its access rules, for one.
    Refused,
    /// It may or may not be there.
    Silent,
}

/// The action for a master after a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Leave it as it is.
    Keep,
    /// It is gone: forget it.
    Forget,
    /// Stop sending to it. A warning was logged when the reason was found.
    Open,
    /// Stop sending to it, and warn that it does not answer.
    Unreachable,
    /// Probe whether it can be sent to.
    Probe,
}

/// Decides by a health check.
pub(super) fn decide(before: Before, seen: Evidence) -> Decision {
    match (seen.reply, before.circuit) {
        (Reply::Silent, _) if !seen.is_listed => Decision::Forget,
        (Reply::Silent, Circuit::Unreachable) => Decision::Keep,
        // One answer that does not come in time may be due to a busy machine.
        (Reply::Silent, circuit) if circuit.is_sent_to() && !before.was_silent => Decision::Keep,
        (Reply::Silent, _) => Decision::Unreachable,
        _ if !seen.has_group => Decision::Open,
        _ if !seen.has_queue => Decision::Keep,
        _ if seen.is_restarted => Decision::Probe,
        (_, Circuit::Closed { .. } | Circuit::HalfOpen) => Decision::Keep,
        (_, Circuit::Open) if !before.probe_is_due => Decision::Keep,
        (_, Circuit::Open | Circuit::Unreachable) => Decision::Probe,
    }
}

/// Says whether a probed master needs clients with fresh connections; `answered` is whether it answered those in use.
pub(super) fn needs_fresh_clients(circuit: Circuit, seen: Evidence, answered: bool) -> bool {
    // A master that does not report its start time may have been restarted.
    let may_be_restarted = circuit == Circuit::Unreachable && seen.reply == Reply::Refused;
    seen.is_restarted || !answered || may_be_restarted
}

/// Returns the circuit of a master that has answered a probe.
pub(super) fn after_probe(circuit: Circuit, seen: Evidence) -> Circuit {
    match circuit {
        // A master that answers does not necessarily take messages.
        Circuit::Open if !seen.is_restarted => Circuit::HalfOpen,
        _ => Circuit::CLOSED,
    }
}

#[cfg(test)]
mod tests {
    use super::Circuit::{HalfOpen, Open, Unreachable};
    use super::Reply::{Given, Refused, Silent};
    use super::*;

    const CLOSED: Circuit = Circuit::CLOSED;
    /// A healthy master that answers as always.
    const BEFORE: Before = Before {
        circuit: CLOSED,
        was_silent: false,
        probe_is_due: true,
    };
    const SEEN: Evidence = Evidence {
        reply: Given,
        is_listed: true,
        is_restarted: false,
        has_group: true,
        has_queue: true,
    };

    fn before(circuit: Circuit) -> Before {
        Before { circuit, ..BEFORE }
    }

    fn seen(reply: Reply) -> Evidence {
        Evidence { reply, ..SEEN }
    }

    #[test]
    fn what_follows_from_a_health_check() {
        let silent_before = |circuit| Before {
            was_silent: true,
            ..before(circuit)
        };
        let pausing = Before {
            probe_is_due: false,
            ..before(Open)
        };
        let restarted = |reply| Evidence {
            is_restarted: true,
            ..seen(reply)
        };
        let unlisted = |reply| Evidence {
            is_listed: false,
            ..seen(reply)
        };
        let without_group = Evidence {
            has_group: false,
            ..restarted(Given)
        };
        let without_topic = Evidence {
            has_queue: false,
            ..restarted(Given)
        };
        for (before, seen, decision) in [
            // It answers and messages are sent.
            (before(CLOSED), seen(Given), Decision::Keep),
            (before(CLOSED), seen(Refused), Decision::Keep),
            (before(HalfOpen), seen(Given), Decision::Keep),
            (silent_before(CLOSED), seen(Given), Decision::Keep),
            // The nameservers have lost it, and it still answers.
            (before(CLOSED), unlisted(Given), Decision::Keep),
            // It does not answer once, and then again.
            (before(CLOSED), seen(Silent), Decision::Keep),
            (before(HalfOpen), seen(Silent), Decision::Keep),
            (silent_before(CLOSED), seen(Silent), Decision::Unreachable),
            (silent_before(HalfOpen), seen(Silent), Decision::Unreachable),
            (before(Open), seen(Silent), Decision::Unreachable),
            (pausing, seen(Silent), Decision::Unreachable),
            // The warning comes once.
            (silent_before(Unreachable), seen(Silent), Decision::Keep),
            // Gone for good.
            (before(CLOSED), unlisted(Silent), Decision::Forget),
            (silent_before(Unreachable), unlisted(Silent), Decision::Forget),
            // It took nothing, and is tried again after a pause.
            (pausing, seen(Given), Decision::Keep),
            (before(Open), seen(Given), Decision::Probe),
            (before(Open), seen(Refused), Decision::Probe),
            // It is back.
            (silent_before(Unreachable), seen(Given), Decision::Probe),
            (silent_before(Unreachable), seen(Refused), Decision::Probe),
            // It was restarted, whatever its state was.
            (before(CLOSED), restarted(Given), Decision::Probe),
            (before(CLOSED), restarted(Refused), Decision::Probe),
            (pausing, restarted(Given), Decision::Probe),
            // It cannot be used without what it lacks.
            (before(CLOSED), without_group, Decision::Open),
            (before(Open), without_group, Decision::Open),
            (silent_before(Unreachable), without_group, Decision::Open),
            (before(CLOSED), without_topic, Decision::Keep),
            (silent_before(Unreachable), without_topic, Decision::Keep),
        ] {
            assert_eq!(decide(before, seen), decision, "{before:?}, {seen:?}");
        }
    }

    #[test]
    fn what_follows_from_a_probe() {
        let restarted = Evidence {
            is_restarted: true,
            ..SEEN
        };
        // Whether it answered clients in use; whether it needs fresh ones; and its circuit when it has answered either.
        for (circuit, seen, answered, fresh, after) in [
            (Open, seen(Given), true, false, HalfOpen),
            (Open, seen(Given), false, true, HalfOpen),
            (Open, seen(Refused), true, false, HalfOpen),
            (Open, restarted, true, true, CLOSED),
            (Unreachable, seen(Given), true, false, CLOSED),
            (Unreachable, seen(Given), false, true, CLOSED),
            (Unreachable, seen(Refused), true, true, CLOSED),
            (Unreachable, restarted, true, true, CLOSED),
            (Circuit::Closed { failures: 2 }, restarted, true, true, CLOSED),
            (HalfOpen, restarted, false, true, CLOSED),
        ] {
            let case = format!("{circuit:?}, {seen:?}, answered: {answered}");
            assert_eq!(needs_fresh_clients(circuit, seen, answered), fresh, "{case}");
            assert_eq!(after_probe(circuit, seen), after, "{case}");
        }
    }

    #[test]
    fn what_follows_from_a_batch() {
        let failed = |failures| Circuit::Closed { failures };
        let last = failed(defaults::UNWELL_AFTER - 1);
        for (circuit, after_success, after_failure) in [
            (CLOSED, CLOSED, failed(1)),
            (failed(1), CLOSED, failed(2)),
            (last, CLOSED, Open),
            (HalfOpen, CLOSED, Open),
            (Open, Open, Open),
            (Unreachable, Unreachable, Unreachable),
        ] {
            assert_eq!(circuit.after_success(), after_success, "{circuit:?}");
            assert_eq!(circuit.after_failure(), after_failure, "{circuit:?}");
            assert_eq!(circuit.is_sent_to(), circuit.opened() != circuit, "{circuit:?}");
        }
    }
}
