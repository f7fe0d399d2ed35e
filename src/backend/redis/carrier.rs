//! Into the slots and out of them again.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;

use super::grouped::grouped;
use super::keys::Names;
use super::member::{self, KindNumber, Member};
use super::whole_millis;
use crate::backend::{Departure, SendError};
use crate::redis::{Call, Link, Lua, Role, Slot, Spread, lua};
use crate::{Error, Wake, defaults};

/// How often a batch is sent anew because the number of slots was changed meanwhile.
const SEND_TRIES: usize = 3;

static SEND: Lua = lua!("send.lua");

/// Has wake-ups held in their slots, and removes them from there.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) link: Arc<Link>,
    pub(super) names: Names,
    pub(super) spread: Arc<Spread>,
}

impl Carrier {
    pub(super) async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        let mut left: Vec<(usize, &Departure)> = batch.iter().enumerate().collect();
        let mut failed = Vec::new();
        let mut failure = None;
        for _ in 0..SEND_TRIES {
            let layouts = match self.spread.layouts(&self.link).await {
                Ok(layouts) => layouts,
                Err(cause) => {
                    failure = Some(cause);
                    break;
                }
            };
            let parts = grouped(left, layouts.current, |(_, departure)| departure.wake.id);
            // All at once: a caller waits for one time-out at the most.
            let sent = join_all(parts.iter().map(|(slot, part)| self.send_part(*slot, part))).await;
            left = Vec::new();
            for ((_, part), sent) in parts.into_iter().zip(sent) {
                match sent {
                    Ok(true) => {}
                    Ok(false) => left.extend(part),
                    Err(cause) => {
                        failed.extend(part.into_iter().map(|(at, _)| at));
                        failure.get_or_insert(cause);
                    }
                }
            }
            if left.is_empty() {
                break;
            }
            // There are other slots now.
            if let Err(cause) = self.spread.ask(&self.link).await {
                failure.get_or_insert(cause);
                break;
            }
        }
        failed.extend(left.into_iter().map(|(at, _)| at));
        if failed.is_empty() {
            return Ok(());
        }
        failed.sort_unstable();
        let cause =
            failure.unwrap_or_else(|| Role::Backend.error(true, "the slots were changed again and again"));
        Err(SendError { failed, cause })
    }

    /// Sends a part of one slot; says whether it was taken, and not refused because the slot is closed.
    async fn send_part(&self, slot: Slot, part: &[(usize, &Departure)]) -> Result<bool, Error> {
        let kinds: BTreeSet<_> = part.iter().map(|(_, departure)| &departure.wake.kind).collect();
        let kinds = kinds
            .into_iter()
            .map(|kind| (member::number(kind), kind.as_str()));
        let held = part
            .iter()
            .map(|(_, Departure { wake, delay })| (whole_millis(*delay), Member::of(wake)));
        self.hold(slot, kinds, held).await
    }

    /// Has members of the given kinds held in a slot for so many ms from now; says whether the slot was open.
    pub(super) async fn hold<'a>(
        &self,
        slot: Slot,
        kinds: impl ExactSizeIterator<Item = (KindNumber, &'a str)>,
        held: impl Iterator<Item = (u64, impl AsRef<[u8]>)> + Clone,
    ) -> Result<bool, Error> {
        let keys = self.names.slot(slot);
        let mut call = Call::script(&SEND, &[&keys.due, &keys.kinds]);
        call.arg(&self.names.hints)
            .arg(format!("{} {}", slot.epoch, slot.number))
            .arg(kinds.len());
        let mut delays = held.clone().map(|(delay, _)| delay);
        let first = delays.next();
        let delay_of_all = first.filter(|first| delays.all(|delay| delay == *first));
        match delay_of_all {
            Some(delay) => call.arg(delay),
            None => call.arg(""),
        };
        for (number, name) in kinds {
            call.arg(&number[..]).arg(name);
        }
        for (delay, member) in held {
            if delay_of_all.is_none() {
                call.arg(delay);
            }
            call.arg(member.as_ref());
        }
        self.link.call(defaults::SEND_TIMEOUT, &call).await
    }

    pub(super) async fn remove(&self, wakes: &[Wake]) -> Result<(), Error> {
        let layouts = self.spread.layouts(&self.link).await?;
        let layouts = [Some(layouts.current), layouts.former];
        let grouped = layouts
            .into_iter()
            .flatten()
            .flat_map(|layout| grouped(wakes, layout, |wake| wake.id));
        let removed = grouped.map(|(slot, wakes)| async move {
            let mut command = redis::cmd("ZREM");
            command.arg(self.names.slot(slot).due);
            for wake in wakes {
                command.arg(Member::of(wake).as_ref());
            }
            let call = Call::command(command);
            self.link.call::<()>(defaults::SEND_TIMEOUT, &call).await
        });
        join_all(removed).await.into_iter().collect()
    }
}
