//! Another number of slots, while everybody works.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::sleep;

use super::RedisBackend;
use super::grouped::grouped;
use super::keys::Keys;
use super::member::{self, KindNumber};
use super::taking::FOREIGN_KEPT;
use super::taking::SET_ASIDE;
use crate::redis::{Call, Layout, Layouts, Lua, check_slots, lua};
use crate::{Error, defaults};

/// How often a slot is looked at whose last wake-ups are leased to somebody.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

static BEGIN: Lua = lua!("reshard_begin.lua");
static DRAIN: Lua = lua!("reshard_drain.lua");
static END: Lua = lua!("reshard_end.lua");

/// How far a change of the number of slots has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resharding {
    /// How many wake-ups, or rows of tasks, were moved so far.
    pub moved: u64,
    /// How many are left in slots that were looked at, wake-ups that are leased to receivers included.
    pub left: u64,
}

/// What is in a slot that is being emptied.
struct Rest {
    due: u64,
    leased: u64,
    /// The first of those that are held, each with how long it is to be held from now.
    first: Vec<(Vec<u8>, u64)>,
}

impl RedisBackend {
    /// Changes the number of slots to `slots`, 1 to 1024, while processes send and receive; tells from time to time how
    /// far it has come.
    ///
    /// A new epoch begins, with slots of its own: from then on wake-ups are sent there, and receivers watch both. Those of
    /// the epoch before are moved, each with what was left of its delay. It waits for wake-ups that are leased, so it takes
    /// a lease longer if a receiver died. If it ends early, nothing is lost: both epochs are watched until it is called
    /// again, which first ends what was begun.
    pub async fn reshard(
        &self,
        slots: u16,
        mut told: impl FnMut(Resharding) + std::marker::Send,
    ) -> Result<(), Error> {
        check_slots(slots)?;
        let mut done = Resharding::default();
        loop {
            let layouts = self.parts().carrier.spread.ask(&self.link).await?;
            if let Some(former) = layouts.former {
                self.empty(layouts, former, &mut done, &mut told).await?;
            } else if layouts.current.slots == slots {
                return Ok(());
            } else {
                self.call_layout(&BEGIN, layouts.current, slots).await?;
            }
        }
    }

    /// Calls a script about the layout, for the epoch that is known; whether it still was so, the next look tells.
    async fn call_layout(&self, script: &'static Lua, known: Layout, slots: u16) -> Result<(), Error> {
        let names = &self.parts().carrier.names;
        let mut call = Call::script(script, &[&names.layout]);
        call.arg(known.epoch).arg(slots).arg(&names.hints);
        self.link.call(defaults::SEND_TIMEOUT, &call).await
    }

    async fn empty(
        &self,
        layouts: Layouts,
        former: Layout,
        done: &mut Resharding,
        told: &mut (impl FnMut(Resharding) + std::marker::Send),
    ) -> Result<(), Error> {
        // First all of them, so that nobody who has not heard of it yet sends into one that was emptied.
        for slot in former.all() {
            let mut command = redis::cmd("HSET");
            command
                .arg(&self.parts().carrier.names.slot(slot).kinds)
                .arg("closed")
                .arg(1);
            let call = Call::command(command);
            self.link.call::<()>(defaults::SEND_TIMEOUT, &call).await?;
        }
        for slot in former.all() {
            let keys = self.parts().carrier.names.slot(slot);
            loop {
                let rest = self.rest(&keys).await?;
                let Some(moved) = self.carry(&keys, layouts.current, &rest).await? else {
                    // Somebody has begun anew: the next look tells.
                    return Ok(());
                };
                done.moved += moved;
                done.left = rest.due + rest.leased - rest.first.len() as u64;
                told(*done);
                if rest.due + rest.leased == 0 {
                    break;
                }
                if rest.first.is_empty() {
                    sleep(LOOK_AGAIN).await;
                }
            }
        }
        self.call_layout(&END, layouts.current, former.slots).await
    }

    async fn rest(&self, keys: &Keys) -> Result<Rest, Error> {
        let mut call = Call::script(&DRAIN, &[&keys.due, &keys.leased]);
        call.arg(defaults::BATCH);
        let (due, leased, first): (u64, u64, Vec<(Vec<u8>, u64)>) =
            self.link.call(defaults::SEND_TIMEOUT, &call).await?;
        Ok(Rest { due, leased, first })
    }

    /// Sends what was found into the slots of another layout, and then takes it away. In this order it may be there twice
    /// for a moment, but never not at all. Says how many were moved; none if that layout is past.
    async fn carry(&self, keys: &Keys, to: Layout, rest: &Rest) -> Result<Option<u64>, Error> {
        if rest.first.is_empty() {
            return Ok(Some(0));
        }
        let call = Call::command({
            let mut command = redis::cmd("HGETALL");
            command.arg(&keys.kinds);
            command
        });
        // What somebody else wrote there is no name.
        let names: HashMap<Vec<u8>, Vec<u8>> = self.link.call(defaults::SEND_TIMEOUT, &call).await?;
        let name = |number: KindNumber| std::str::from_utf8(names.get(&number[..])?).ok();

        let mut moving = Vec::new();
        let mut foreign = Vec::new();
        for (member, delay) in &rest.first {
            match member::decode(member).and_then(|(id, number, _)| Some((id, (number, name(number)?)))) {
                Some((id, kind)) => moving.push((id, kind, *delay, member)),
                None => foreign.push(member.as_slice()),
            }
        }
        for (slot, part) in grouped(&moving, to, |(id, ..)| *id) {
            let kinds: BTreeSet<_> = part.iter().map(|(_, kind, ..)| *kind).collect();
            let held = part.iter().map(|(_, _, delay, member)| (*delay, member));
            if !self.parts().carrier.hold(slot, kinds.into_iter(), held).await? {
                return Ok(None);
            }
        }
        if !foreign.is_empty() {
            let mut call = Call::script(&SET_ASIDE, &[&keys.due, &keys.foreign]);
            call.arg(FOREIGN_KEPT).arg(&foreign);
            self.link.call::<()>(defaults::SEND_TIMEOUT, &call).await?;
        }
        let mut command = redis::cmd("ZREM");
        command.arg(&keys.due);
        for (member, _) in &rest.first {
            command.arg(member);
        }
        let call = Call::command(command);
        self.link.call::<()>(defaults::SEND_TIMEOUT, &call).await?;
        Ok(Some(moving.len() as u64))
    }
}
