//! What requests are answered by until the configuration is read again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use delayline::Kind;
use delayline::claims::Claims;
use tokio::sync::watch;

use super::access::Caller;
use super::{App, Room};
use crate::serve::topics::Topics;

/// What the configuration says of kinds, as it is at this time.
#[derive(Debug)]
pub(crate) struct Current {
    /// Of kinds whose tasks wait to be claimed.
    pub(crate) claims: Claims,
    /// The same for each token by its name, while there are several; none holds more than half of the bytes.
    pub(crate) shares: BTreeMap<String, Claims>,
    /// Where the tasks of each kind go that the configuration names, for people.
    pub(crate) delivered: BTreeMap<Kind, String>,
    /// The kinds whose tasks this server or the gateway delivers, so that no worker may claim them.
    pub(crate) delivered_here: BTreeSet<Kind>,
    /// The kinds of messages, whose tasks only the gateway schedules.
    pub(crate) of_gateway: BTreeSet<Kind>,
    /// The topics that tasks are delivered to.
    pub(crate) topics: Arc<Topics>,
}

impl Current {
    /// What a caller claims by.
    pub(super) fn claims_of(&self, caller: &Caller) -> &Claims {
        self.shares.get(caller.name()).unwrap_or(&self.claims)
    }
}

impl App {
    /// The rooms that callers share.
    pub(crate) fn rooms(&self) -> [&Room; 4] {
        [
            &self.room,
            &self.room_for_uploads,
            &self.room_for_many,
            &self.room_for_waiting,
        ]
    }

    /// By what a request is answered that has come just now.
    pub(super) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.borrow())
    }

    /// Tells when another configuration holds than the one by which a caller was let in.
    pub(super) fn replaced_for(&self, caller: &Caller) -> watch::Receiver<Arc<Current>> {
        let mut replaced = self.current.subscribe();
        // Between the look at its token and this: its body may come late.
        if !self.access.still_lets_in(caller) {
            replaced.mark_changed();
        }
        replaced
    }
}
