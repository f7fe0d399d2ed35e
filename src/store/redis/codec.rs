//! How rows are kept: the head of a row, and its payload with the headers.

use std::collections::BTreeMap;

use crate::store::state_code;
use crate::{Key, Kind, State, Task, TaskId, Timestamp};

/// The layout of heads that this release writes, and reads.
const FORMAT: u8 = 2;
/// What stands for a text that is missing, and for a time or limit that is.
const NO_TEXT: u32 = u32::MAX;
const NONE: i64 = i64::MIN;
/// Where a head has the state.
const STATE: usize = 17;
/// The longest owner that is kept: owners are informational.
const OWNER: usize = u16::MAX as usize;

/// The name of what is kept of the rows of one state and kind.
pub(super) fn lane(state: State, kind: &Kind) -> String {
    format!("{}:{kind}", state_code::of(state))
}

/// The name of a key.
pub(super) fn name(kind: &Kind, key: &Key) -> Vec<u8> {
    [kind.as_str().as_bytes(), key.as_str().as_bytes()].join(&0)
}

/// The entry of a row that is not live among those of its key: in their order the last is the newest.
pub(super) fn entry(row: &Task, name: &[u8]) -> Vec<u8> {
    let ordered = row.created_at.as_millis().cast_unsigned() ^ (1 << 63);
    [name, &[0], &ordered.to_be_bytes(), row.id.as_bytes()].concat()
}

/// Cuts an owner to what is kept of it.
pub(super) fn owner(owner: &str) -> &str {
    &owner[..owner.floor_char_boundary(OWNER)]
}

/// What the head of a row has to begin with to be of a version, and of a `wake_at` where that matters.
pub(super) fn guard(version: u64, wake_at: Option<Option<Timestamp>>) -> Vec<u8> {
    let mut guard = vec![FORMAT];
    guard.extend(version.to_le_bytes());
    if let Some(wake_at) = wake_at {
        guard.extend(wake_at.map_or(NONE, Timestamp::as_millis).to_le_bytes());
    }
    guard
}

/// The head of a row, in the layout of `shard.lua`.
pub(super) fn head(row: &Task) -> Vec<u8> {
    let mut head = guard(row.version, Some(row.wake_at));
    let short = |number: usize| u32::try_from(number).unwrap_or(NO_TEXT);
    head.push(state_code::of(row.state));
    head.extend(row.due_at.as_millis().to_le_bytes());
    head.push(u8::from(row.started));
    head.extend(row.attempt.to_le_bytes());
    let times = [row.updated_at, row.created_at, row.planned_at].map(Timestamp::as_millis);
    let finished_at = row.finished_at.map_or(NONE, Timestamp::as_millis);
    let limit = row.max_attempts.map_or(NONE, i64::from);
    let numbers = times.into_iter().chain([finished_at, limit]);
    head.extend(numbers.flat_map(i64::to_le_bytes));
    let texts = [
        Some(row.kind.as_str()),
        row.key.as_ref().map(Key::as_str),
        row.last_error.as_deref(),
        row.owner.as_deref().map(owner),
    ];
    let lengths = texts.map(|text| text.map_or(NO_TEXT, |text| short(text.len())));
    let numbers = [short(row.payload.len()), row.stalls, row.hop].into_iter();
    head.extend(numbers.chain(lengths).flat_map(u32::to_le_bytes));
    head.extend(texts.into_iter().flatten().flat_map(str::bytes));
    head
}

/// A row that cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("the row of task {0} is not as this release writes it")]
pub(super) struct Corrupt(TaskId);

/// The row of an id without its payload, and how many bytes that has.
pub(super) fn lean(id: TaskId, head: &[u8]) -> Result<(Task, usize), Corrupt> {
    read(id, head).ok_or(Corrupt(id))
}

/// The row of an id, of its head and its packed payload.
pub(super) fn task(id: TaskId, head: &[u8], packed: &[u8]) -> Result<Task, Corrupt> {
    let (mut task, _) = lean(id, head)?;
    (task.payload, task.headers) = unpacked(packed).ok_or(Corrupt(id))?;
    Ok(task)
}

/// Whether a row waits or runs, unless its head says that it is over.
pub(super) fn is_live(head: &[u8]) -> bool {
    let state = head.get(STATE).and_then(|&code| state_code::state(code));
    state.is_none_or(State::is_live)
}

fn read(id: TaskId, head: &[u8]) -> Option<(Task, usize)> {
    let mut bytes = Bytes(head);
    let [format] = bytes.take()?;
    let version = u64::from_le_bytes(bytes.take()?);
    let wake_at = bytes.long()?;
    let [state] = bytes.take()?;
    let due_at = bytes.long()?;
    let [started] = bytes.take()?;
    let attempt = bytes.short()?;
    let [updated_at, created_at, planned_at] = [bytes.long()?, bytes.long()?, bytes.long()?];
    let [finished_at, limit] = [bytes.long()?, bytes.long()?];
    let [size, stalls, hop] = [bytes.short()?, bytes.short()?, bytes.short()?];
    let lengths = [bytes.short()?, bytes.short()?, bytes.short()?, bytes.short()?];
    let mut texts = lengths.iter().map(|&length| match length {
        NO_TEXT => Some(None),
        length => bytes.text(length).map(Some),
    });
    let [kind, key, last_error, owner] = [texts.next()??, texts.next()??, texts.next()??, texts.next()??];
    let at = Timestamp::from_millis;
    let some = |number: i64| Some(number).filter(|number| *number != NONE);
    let task = Task {
        id,
        kind: kind?.into(),
        key: key.map(Key::from),
        payload: Vec::new(),
        headers: BTreeMap::new(),
        due_at: at(due_at),
        planned_at: at(planned_at),
        state: state_code::state(state)?,
        version,
        wake_at: some(wake_at).map(at),
        attempt,
        started: started == 1,
        stalls,
        max_attempts: some(limit).map(u32::try_from).transpose().ok()?,
        hop,
        owner,
        last_error,
        created_at: at(created_at),
        updated_at: at(updated_at),
        finished_at: some(finished_at).map(at),
    };
    let is_sound = format == FORMAT && started <= 1 && bytes.0.is_empty();
    is_sound.then_some((task, usize::try_from(size).ok()?))
}

/// Headers and payload, which scripts do not look into: how long the headers are, these as JSON, and the payload. Nothing if
/// there are none.
pub(super) fn packed(payload: &[u8], headers: &BTreeMap<String, String>) -> Vec<u8> {
    if payload.is_empty() && headers.is_empty() {
        return Vec::new();
    }
    let headers = match headers.is_empty() {
        true => Vec::new(),
        false => serde_json::to_vec(headers).unwrap_or_default(),
    };
    let length = u32::try_from(headers.len()).unwrap_or(NO_TEXT);
    [&length.to_le_bytes(), &*headers, payload].concat()
}

fn unpacked(packed: &[u8]) -> Option<(Vec<u8>, BTreeMap<String, String>)> {
    let mut bytes = Bytes(packed);
    let length = if packed.is_empty() { 0 } else { bytes.short()? };
    let headers = match bytes.text(length)? {
        none if none.is_empty() => BTreeMap::new(),
        headers => serde_json::from_str(&headers).ok()?,
    };
    Some((bytes.0.to_vec(), headers))
}

/// What is still to be read.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn short(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    fn text(&mut self, length: u32) -> Option<String> {
        let (text, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}
