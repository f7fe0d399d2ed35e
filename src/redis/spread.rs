//! How many slots there are now, as the servers say.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::address::Topology;
use super::call::{Call, Lua, lua};
use super::layout::{Layout, Slot};
use super::link::Link;
use crate::{Error, defaults};

/// How old may be what is known: so long may a process that was told nothing go by a number of slots that is past.
const KNOWN_FOR: Duration = Duration::from_secs(10);
/// How many slots there are on one server, unless somebody chose otherwise.
const SLOTS_SINGLE: u16 = 1;
/// The same in a Cluster: enough for a few masters to share them evenly.
const SLOTS_CLUSTER: u16 = 16;

static SPREAD: Lua = lua!("layout.lua", "spread.lua");

/// The layout in use, and the one before it while its slots are being emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layouts {
    pub(crate) current: Layout,
    pub(crate) former: Option<Layout>,
}

impl Layouts {
    /// As a script gives them, the numbers of slots of both with the epoch of the first.
    pub(crate) fn of((epoch, slots, former): (u64, u16, u16)) -> Self {
        let former = Layout {
            epoch: epoch.saturating_sub(1),
            slots: former,
        };
        Self {
            current: Layout { epoch, slots },
            former: Some(former).filter(|former| former.slots > 0),
        }
    }

    /// Every slot there is.
    pub(crate) fn slots(self) -> impl Iterator<Item = Slot> {
        self.current
            .all()
            .chain(self.former.into_iter().flat_map(Layout::all))
    }
}

/// Knows how tasks are spread over slots, and looks again from time to time.
#[derive(Debug)]
pub(crate) struct Spread {
    key: String,
    /// What holds where nothing is kept yet.
    first: Layout,
    known: Mutex<Option<Known>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    layouts: Layouts,
    at: Instant,
}

impl Spread {
    /// By what is kept under `key`; where nothing is, `slots` are made, or as many as suit the topology.
    pub(crate) fn new(key: String, slots: Option<u16>, topology: &Topology) -> Self {
        let suited = match topology {
            Topology::Cluster => SLOTS_CLUSTER,
            Topology::Single | Topology::Sentinel(_) => SLOTS_SINGLE,
        };
        Self {
            key,
            first: Layout {
                epoch: 1,
                slots: slots.unwrap_or(suited),
            },
            known: Mutex::default(),
        }
    }

    /// What is kept, as far as is known; asks when that is not known or long ago.
    pub(crate) async fn layouts(&self, link: &Link) -> Result<Layouts, Error> {
        let known = *self.known();
        match known {
            Some(Known { layouts, at }) if at.elapsed() < KNOWN_FOR => Ok(layouts),
            _ => self.ask(link).await,
        }
    }

    /// Asks what is kept now.
    pub(crate) async fn ask(&self, link: &Link) -> Result<Layouts, Error> {
        let Layout { epoch, slots } = self.assumed();
        let former = self.known().and_then(|known| known.layouts.former);
        let mut call = Call::script(&SPREAD, &[&self.key]);
        call.arg(epoch)
            .arg(slots)
            .arg(former.map_or(0, |former| former.slots));
        let layouts = Layouts::of(link.call(defaults::SEND_TIMEOUT, &call).await?);
        self.heard(layouts);
        Ok(layouts)
    }

    /// The key under which it is kept.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// What is kept, if anything is; makes nothing.
    pub(crate) async fn kept(&self, link: &Link) -> Result<Option<Layouts>, Error> {
        let mut command = redis::cmd("HMGET");
        command.arg(&self.key).arg(&["epoch", "slots", "former"]);
        let call = Call::command(command);
        let (epoch, slots, former): (Option<u64>, Option<u16>, Option<u16>) =
            link.call(defaults::SEND_TIMEOUT, &call).await?;
        let kept = epoch.zip(slots);
        Ok(kept.map(|(epoch, slots)| Layouts::of((epoch, slots, former.unwrap_or(0)))))
    }

    /// The servers have said so in another answer.
    pub(crate) fn heard(&self, layouts: Layouts) {
        let at = Instant::now();
        *self.known() = Some(Known { layouts, at });
    }

    /// What is kept as far as is known, or would be made.
    pub(crate) fn assumed(&self) -> Layout {
        self.known().map_or(self.first, |known| known.layouts.current)
    }

    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
