//! The names of the kinds that members name by a number.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::keys::Keys;
use super::member::{KindNumber, number};
use crate::redis::{Call, Link};
use crate::{Error, Kind, defaults};

/// Knows the names of kinds by their numbers. A name that was read once stays: the number is a hash of it.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    known: Mutex<HashMap<KindNumber, Kind>>,
}

impl Kinds {
    /// Reads the names that are not known yet from a slot in which wake-ups with these numbers are.
    pub(super) async fn learn(
        &self,
        numbers: impl Iterator<Item = KindNumber>,
        keys: &Keys,
        link: &Link,
    ) -> Result<(), Error> {
        let unknown: Vec<_> = {
            let known = self.known();
            let numbers: BTreeSet<_> = numbers.filter(|number| !known.contains_key(number)).collect();
            numbers.into_iter().collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let mut command = redis::cmd("HMGET");
        command.arg(&keys.kinds);
        for number in &unknown {
            command.arg(number);
        }
        let call = Call::command(command);
        let names: Vec<Option<Vec<u8>>> = link.call(defaults::SEND_TIMEOUT, &call).await?;
        let mut known = self.known();
        for (asked, name) in unknown.into_iter().zip(names) {
            let name = name.and_then(|name| String::from_utf8(name).ok());
            // What somebody else wrote there is no name.
            let kind = name.map(Kind::from);
            if let Some(kind) = kind.filter(|kind| kind.check().is_ok() && number(kind) == asked) {
                known.insert(asked, kind);
            }
        }
        Ok(())
    }

    pub(super) fn name(&self, number: KindNumber) -> Option<Kind> {
        self.known().get(&number).cloned()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<KindNumber, Kind>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
