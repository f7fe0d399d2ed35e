//! Whether all is well with what is kept.

use std::time::Duration;

use serde::Serialize;

use super::RedisBackend;
use super::crew;
use crate::redis::{Call, Layouts, Lua, Node, lua};
use crate::{Error, defaults};

static CHECKUP: Lua = lua!("checkup.lua");

/// What is kept for a [`RedisBackend`], and where. For people; it asks a few commands of every slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RedisCheckup {
    /// The server, or every master.
    pub nodes: Vec<Node>,
    /// The epoch, which is one more with every change of the number of slots; 0 where nothing was ever sent.
    pub epoch: u64,
    /// How many slots there are; 0 where nothing was ever sent.
    pub slots: u16,
    /// How many slots of the epoch before are being emptied, if any are.
    pub former_slots: Option<u16>,
    /// How many processes receive.
    pub receivers: u64,
    /// What is in each slot, those of the epoch before included.
    pub contents: Vec<SlotCheckup>,
}

/// What is in one slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SlotCheckup {
    /// The key of the wake-ups that are held.
    pub key: String,
    /// How many are held.
    pub held: u64,
    /// For how many ms the first of them is due; 0 if none is.
    pub due_for_ms: u64,
    /// How many were received and not acknowledged yet.
    pub leased: u64,
    /// Of how many of these the lease has ended, and nobody has given them to others.
    pub ended: u64,
    /// For how many ms the first of these leases has ended; 0 if none has.
    pub ended_for_ms: u64,
    /// How many members were found that are no wake-ups, and set aside.
    pub foreign: u64,
    /// The memory that the wake-ups take, in bytes, as the server estimates it; 0 where it may not be asked.
    pub bytes: u64,
}

impl RedisBackend {
    /// Looks at the servers and at what is kept there, and changes nothing.
    pub async fn checkup(&self) -> Result<RedisCheckup, Error> {
        let nodes = Node::all(&self.link).await?;
        let carrier = &self.parts().carrier;
        let layouts = carrier.spread.kept(&self.link).await?;
        let mut contents = Vec::new();
        for slot in layouts.into_iter().flat_map(Layouts::slots) {
            let keys = carrier.names.slot(slot);
            let call = Call::script(&CHECKUP, &[&keys.due, &keys.leased, &keys.foreign]);
            let (held, due_for_ms, leased, ended, ended_for_ms, foreign, held_bytes, leased_bytes): (
                u64,
                u64,
                u64,
                u64,
                u64,
                u64,
                u64,
                u64,
            ) = self.link.call(defaults::SEND_TIMEOUT, &call).await?;
            contents.push(SlotCheckup {
                key: keys.due,
                held,
                due_for_ms,
                leased,
                ended,
                ended_for_ms,
                foreign,
                bytes: held_bytes + leased_bytes,
            });
        }
        Ok(RedisCheckup {
            nodes,
            epoch: layouts.map_or(0, |layouts| layouts.current.epoch),
            slots: layouts.map_or(0, |layouts| layouts.current.slots),
            former_slots: layouts.and_then(|layouts| Some(layouts.former?.slots)),
            receivers: crew::count(&carrier.names, &self.link).await?,
            contents,
        })
    }

    /// For how long a wake-up that is due, or whose lease has ended, may stay where it is while all is well.
    pub const PATIENCE: Duration = Duration::from_secs(2);
}
