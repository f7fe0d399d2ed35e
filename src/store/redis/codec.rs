//! How a row is packed, for scripts and for this crate.

use std::collections::BTreeMap;

use crate::store::Pending;
use crate::timestamp::millis;
use crate::{Key, Kind, State, Task, TaskId, Timestamp, Wake, When};

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
    let read = || {
        let mut bytes = Bytes(head);
        let head = Head::read(&mut bytes)?;
        let owner = bytes.text(head.owner)?;
        let last_error = bytes.text(head.fault)?;
        if !bytes.0.is_empty() {
            return None;
        }
        let (payload, headers) = unpacked_payload(payload)?;
        Some(Task {
            id,
            kind: head.kind,
            key: head.key,
            payload,
            headers,
            due_at: head.due_at,
            planned_at: head.planned_at,
            state: head.state,
            version: head.version,
            wake_at: Some(head.wake_at).filter(|_| head.state != State::Dead),
            attempt: head.attempt,
            started: head.flags & STARTED != 0,
            stalls: head.stalls,
            max_attempts: Some(head.max_attempts).filter(|_| head.flags & HAS_MAX != 0),
            hop: head.hop,
            owner: Some(owner).filter(|_| head.flags & HAS_OWNER != 0),
            last_error: Some(last_error).filter(|_| head.flags & HAS_ERROR != 0),
            created_at: head.created_at,
            updated_at: head.updated_at,
            finished_at: Some(head.finished_at).filter(|time| time.as_millis() > 0),
        })
    };
    read().ok_or(Garbled(id))
}

fn unpacked_payload(packed: &[u8]) -> Option<(Vec<u8>, BTreeMap<String, String>)> {
    let mut headers = BTreeMap::new();
    let mut bytes = Bytes(packed);
    if !packed.is_empty() {
        for _ in 0..bytes.number(4)? {
            let mut text = || {
                let length = bytes.number(4)?;
                bytes.text(usize::try_from(length).ok()?)
            };
            headers.insert(text()?, text()?);
        }
    }
    Some((bytes.0.to_vec(), headers))
}

/// What the first bytes of a row say, up to its key.
#[derive(Clone, Debug)]
pub(super) struct Brief {
    pub(super) state: State,
    pub(super) wake_at: Timestamp,
    /// How many bytes its payload has.
    pub(super) size: usize,
    pub(super) pending: Pending,
}

pub(super) fn brief(id: TaskId, value: &[u8]) -> Result<Brief, Garbled> {
    let head = Head::read(&mut Bytes(value)).ok_or(Garbled(id))?;
    Ok(Brief {
        state: head.state,
        wake_at: head.wake_at,
        size: head.size,
        pending: Pending {
            wake: Wake {
                id,
                kind: head.kind,
                version: head.version,
            },
            key: head.key,
            due_at: head.due_at,
            planned_at: head.planned_at,
        },
    })
}

/// The state as rows and lanes have it.
pub(super) const fn digit(state: State) -> u8 {
    match state {
        State::Scheduled => 0,
        State::Running => 1,
        State::Done => 2,
        State::Dead => 3,
        State::Cancelled => 4,
    }
}

fn state_of(digit: u8) -> Option<State> {
    Some(match digit {
        0 => State::Scheduled,
        1 => State::Running,
        2 => State::Done,
        3 => State::Dead,
        4 => State::Cancelled,
        _ => return None,
    })
}

/// The name of a lane.
pub(super) fn lane(state: State, kind: &Kind) -> String {
    format!("{}:{kind}", digit(state))
}

/// The head of a row, its kind and its key, as `row.lua` packs them.
struct Head {
    state: State,
    flags: u8,
    version: u64,
    due_at: Timestamp,
    planned_at: Timestamp,
    wake_at: Timestamp,
    attempt: u32,
    stalls: u32,
    max_attempts: u32,
    hop: u32,
    created_at: Timestamp,
    updated_at: Timestamp,
    finished_at: Timestamp,
    size: usize,
    owner: usize,
    fault: usize,
    kind: Kind,
    key: Option<Key>,
}

impl Head {
    fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let state = state_of(u8::try_from(bytes.number(1)?).ok()?)?;
        let flags = u8::try_from(bytes.number(1)?).ok()?;
        if flags >= 2 * STARTED {
            return None;
        }
        let version = bytes.number(6)?;
        let mut signed = || Some(Timestamp::from_millis(bytes.number(8)?.cast_signed()));
        let (due_at, planned_at) = (signed()?, signed()?);
        let wake_at = bytes.time()?;
        let mut small = || u32::try_from(bytes.number(4)?).ok();
        let (attempt, stalls, max_attempts, hop) = (small()?, small()?, small()?, small()?);
        let (created_at, updated_at, finished_at) = (bytes.time()?, bytes.time()?, bytes.time()?);
        let mut length = |size| usize::try_from(bytes.number(size)?).ok();
        let size = length(4)?;
        let _weight = length(4)?;
        let _try = length(6)?;
        let (kind, key, owner, fault) = (length(1)?, length(1)?, length(2)?, length(4)?);
        let kind = Kind::from(bytes.text(kind)?);
        let key = Some(bytes.text(key)?)
            .filter(|key| !key.is_empty())
            .map(Key::from);
        Some(Self {
            state,
            flags,
            version,
            due_at,
            planned_at,
            wake_at,
            attempt,
            stalls,
            max_attempts,
            hop,
            created_at,
            updated_at,
            finished_at,
            size,
            owner,
            fault,
            kind,
            key,
        })
    }
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
pub(super) fn maybe(number: Option<u32>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}
