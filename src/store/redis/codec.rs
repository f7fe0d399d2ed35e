//! How a row is packed, for scripts and for this crate.

use std::collections::BTreeMap;

use crate::store::When;
use crate::timestamp::millis;
use crate::{Key, Kind, State, Task, TaskId, Timestamp};

const HAS_MAX: u8 = 1;
const HAS_OWNER: u8 = 2;
const HAS_ERROR: u8 = 4;
const STARTED: u8 = 8;
/// The earliest time that a double can tell from its neighbours, apart from the very first.
const EARLIEST: i64 = -(1 << 53);

/// A row that is not as any release has written it.
#[derive(Debug, thiserror::Error)]
#[error("the row of task {0} cannot be read")]
pub(super) struct Garbled(pub(super) TaskId);

/// A time as it is kept: scripts reckon in doubles, which have room for every time that a task can be due at. What is
/// before these is as good as the very first.
pub(super) fn stored(time: Timestamp) -> i64 {
    match time.as_millis() {
        millis if millis < EARLIEST => Timestamp::MIN.as_millis(),
        millis => millis.min(Timestamp::MAX.as_millis()),
    }
}

/// Payload and headers, which scripts do not look into; nothing if there are none.
pub(super) fn packed_payload(payload: &[u8], headers: &BTreeMap<String, String>) -> Vec<u8> {
    if payload.is_empty() && headers.is_empty() {
        return Vec::new();
    }
    let mut rest = Vec::with_capacity(payload.len() + 4);
    let number = |rest: &mut Vec<u8>, number: usize| {
        rest.extend(u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
    };
    number(&mut rest, headers.len());
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        number(&mut rest, text.len());
        rest.extend(text.as_bytes());
    }
    rest.extend(payload);
    rest
}

/// The row of an id, of its head and its payload.
pub(super) fn task(id: TaskId, head: &[u8], payload: &[u8]) -> Result<Task, Garbled> {
    let Brief { mut task, .. } = brief(id, head)?;
    (task.payload, task.headers) = unpacked_payload(payload).ok_or(Garbled(id))?;
    Ok(task)
}

fn unpacked_payload(packed: &[u8]) -> Option<(Vec<u8>, BTreeMap<String, String>)> {
    let mut headers = BTreeMap::new();
    let mut bytes = Bytes(packed);
    if !packed.is_empty() {
        for _ in 0..bytes.number(4)? {
            let mut text = || {
                let length = bytes.small(4)?;
                bytes.text(length)
            };
            headers.insert(text()?, text()?);
        }
    }
    Some((bytes.0.to_vec(), headers))
}

/// A row without its payload.
#[derive(Clone, Debug)]
pub(super) struct Brief {
    pub(super) task: Task,
    /// How many bytes its payload has.
    pub(super) size: usize,
    /// By which try its id points to it; 0 where the id itself says where it is.
    pub(super) tried: u64,
}

impl Brief {
    pub(super) fn by_due(&self) -> (Timestamp, TaskId) {
        (self.task.due_at, self.task.id)
    }
}

/// The head of a row, as `row.lua` packs it.
pub(super) fn brief(id: TaskId, head: &[u8]) -> Result<Brief, Garbled> {
    let read = || {
        let mut bytes = Bytes(head);
        let state = state_of(bytes.small(1)?)?;
        let flags: u8 = bytes.small(1)?;
        let version = bytes.number(6)?;
        let mut signed = || Some(Timestamp::from_millis(bytes.number(8)?.cast_signed()));
        let (due_at, planned_at) = (signed()?, signed()?);
        let wake_at = Some(bytes.time()?).filter(|_| state != State::Dead);
        let (attempt, stalls) = (bytes.small(4)?, bytes.small(4)?);
        let max_attempts = Some(bytes.small(4)?).filter(|_| flags & HAS_MAX != 0);
        let hop = bytes.small(4)?;
        let (created_at, updated_at) = (bytes.time()?, bytes.time()?);
        let finished_at = Some(bytes.time()?).filter(|time| time.as_millis() > 0);
        let size = bytes.small(4)?;
        // How many bytes it has with its headers, and which change was the last, matter to scripts only.
        bytes.take(4)?;
        let tried = bytes.number(6)?;
        bytes.take(6)?;
        let [kind, key, owner, last_error] =
            [bytes.small(1)?, bytes.small(1)?, bytes.small(2)?, bytes.small(4)?];
        let kind = Kind::from(bytes.text(kind)?);
        let key = Some(bytes.text(key)?)
            .filter(|key| !key.is_empty())
            .map(Key::from);
        let owner = Some(bytes.text(owner)?).filter(|_| flags & HAS_OWNER != 0);
        let last_error = Some(bytes.text(last_error)?).filter(|_| flags & HAS_ERROR != 0);
        let is_all = bytes.0.is_empty() && flags < 2 * STARTED;
        let task = Task {
            id,
            kind,
            key,
            payload: Vec::new(),
            headers: BTreeMap::new(),
            due_at,
            planned_at,
            state,
            version,
            wake_at,
            attempt,
            started: flags & STARTED != 0,
            stalls,
            max_attempts,
            hop,
            owner,
            last_error,
            created_at,
            updated_at,
            finished_at,
        };
        is_all.then_some(Brief { task, size, tried })
    };
    read().ok_or(Garbled(id))
}

/// The states, each at the place of the digit that rows and lanes have for it.
pub(super) const STATES: [State; 5] = [
    State::Scheduled,
    State::Running,
    State::Done,
    State::Dead,
    State::Cancelled,
];

/// The state as rows and lanes have it.
pub(super) fn digit(state: State) -> usize {
    STATES
        .iter()
        .position(|one| *one == state)
        .unwrap_or(STATES.len())
}

fn state_of(digit: usize) -> Option<State> {
    STATES.get(digit).copied()
}

/// The name of a lane.
pub(super) fn lane(state: State, kind: &Kind) -> String {
    format!("{}:{kind}", digit(state))
}

/// What is still to be read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of so many bytes, at most 8, the least first.
    fn number(&mut self, size: usize) -> Option<u64> {
        let bytes = self.take(size)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |number, &byte| number << 8 | u64::from(byte)),
        )
    }

    /// The same where that is known to be enough for it.
    fn small<T: TryFrom<u64>>(&mut self, size: usize) -> Option<T> {
        T::try_from(self.number(size)?).ok()
    }

    fn time(&mut self) -> Option<Timestamp> {
        Some(Timestamp::from_millis(i64::try_from(self.number(6)?).ok()?))
    }

    fn text(&mut self, length: usize) -> Option<String> {
        String::from_utf8(self.take(length)?.to_vec()).ok()
    }
}

/// A due time as scripts take it: in how many ms, or else when.
pub(super) fn due(when: When) -> (String, String) {
    match when {
        When::After(delay) => (millis(delay).to_string(), String::new()),
        When::At(time) => (String::new(), stored(time).to_string()),
    }
}

/// A number as scripts take it, which may be missing.
pub(super) fn maybe(number: Option<impl ToString>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}
