//! Caches the names of the kinds that members name by a number.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::keys::Keys;
use super::member::{KindNumber, number};
use crate::redis::{Call, Link};
use crate::{Error, Kind, defaults};

/// How many names are kept: more than there are kinds, and fewer than another client with access could write there.
const MOST: usize = 50_000;

/// Knows the names of kinds by their numbers. A name that was read once stays: the number is a hash of it.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    known: Mutex<HashMap<KindNumber, Kind>>,
}

impl Kinds {
    /// Returns the names of these numbers, as far as there are any; unknown ones are read from a shard that has
    /// wake-ups with these numbers.
    pub(super) async fn names(
        &self,
        numbers: BTreeSet<KindNumber>,
        keys: &Keys,
        link: &Link,
    ) -> Result<BTreeMap<KindNumber, Kind>, Error> {
        let mut names = BTreeMap::new();
        let mut unknown = Vec::new();
        {
            let known = self.known();
            for number in numbers {
                match known.get(&number) {
                    Some(kind) => drop(names.insert(number, kind.clone())),
                    None => unknown.push(number),
                }
            }
        }
        if unknown.is_empty() {
            return Ok(names);
        }
        let mut command = redis::cmd("HMGET");
        command.arg(&keys.kinds);
        for number in &unknown {
            command.arg(number);
        }
        let call = Call::command(command);
        let read: Vec<Option<Vec<u8>>> = link.call(defaults::SEND_TIMEOUT, &call).await?;
        let mut known = self.known();
        for (asked, name) in unknown.into_iter().zip(read) {
            let name = name.and_then(|name| String::from_utf8(name).ok());
            // Another client may have written something that is no name.
            let kind = name.map(Kind::from);
            if let Some(kind) = kind.filter(|kind| kind.check().is_ok() && number(kind) == asked) {
                if known.len() >= MOST {
                    // They are read again.
                    known.clear();
                }
                known.insert(asked, kind.clone());
                names.insert(asked, kind);
            }
        }
        Ok(names)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<KindNumber, Kind>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
