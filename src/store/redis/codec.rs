//! How rows are kept: the head of a row, and its payload with the headers.

use std::collections::BTreeMap;

use crate::store::NewRow;
use crate::{Key, Kind, State, Task, TaskId, Timestamp};

/// The layout of heads that this release writes, and reads.
const FORMAT: u8 = 1;
/// What stands for a text that is missing, and a time that is.
const NO_SHORT: u16 = u16::MAX;
const NO_LONG: u32 = u32::MAX;
const NO_TIME: i64 = i64::MIN;
/// Where a head has the state.
const STATE: usize = 17;

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
    let place = STATES.iter().position(|one| *one == state);
    place.unwrap_or(STATES.len())
}

/// The name of a lane: the rows of one state and kind.
pub(super) fn lane(state: State, kind: &Kind) -> String {
    format!("{}:{kind}", digit(state))
}

/// The name of a key.
pub(super) fn name(kind: &Kind, key: &Key) -> Vec<u8> {
    [kind.as_str().as_bytes(), key.as_str().as_bytes()].join(&0)
}

/// The entry of a row that is not live among those of its key: in their order the last is the newest.
pub(super) fn entry(row: &Task) -> Vec<u8> {
    let Some(key) = &row.key else {
        return Vec::new();
    };
    let mut entry = name(&row.kind, key);
    entry.push(0);
    let ordered = row.created_at.as_millis().cast_unsigned() ^ (1 << 63);
    entry.extend(ordered.to_be_bytes());
    entry.extend(row.id.as_bytes());
    entry
}

/// How long an owner may be: owners are for people.
pub(super) fn owner(owner: &str) -> &str {
    &owner[..owner.floor_char_boundary(usize::from(NO_SHORT) - 1)]
}

/// What the head of a row has to begin with to be of a version, and of a `wake_at` where that matters.
pub(super) fn guard(version: u64, wake_at: Option<Option<Timestamp>>) -> Vec<u8> {
    let mut guard = vec![FORMAT];
    guard.extend(version.to_le_bytes());
    if let Some(wake_at) = wake_at {
        guard.extend(perhaps(wake_at).to_le_bytes());
    }
    guard
}

/// A version as heads have it.
pub(super) fn version(version: u64) -> [u8; 8] {
    version.to_le_bytes()
}

fn perhaps(time: Option<Timestamp>) -> i64 {
    time.map_or(NO_TIME, Timestamp::as_millis)
}

/// The head of a row in three parts, of which the second belongs to its payload, which has so many bytes when it is packed.
pub(super) fn head(row: &Task, packed: usize) -> [Vec<u8>; 3] {
    let mut start = guard(row.version, Some(row.wake_at));
    start.push(u8::try_from(digit(row.state)).unwrap_or(u8::MAX));
    start.extend(row.due_at.as_millis().to_le_bytes());
    let mut end = row.attempt.to_le_bytes().to_vec();
    for time in [row.updated_at, row.created_at, row.planned_at] {
        end.extend(time.as_millis().to_le_bytes());
    }
    rest(&mut end, row);
    [start, middle(row, packed), end]
}

/// The parts of the head of a new row that do not depend on when it is written.
pub(super) fn parts(new: &NewRow, packed: usize) -> [Vec<u8>; 2] {
    let (row, _) = new.row(Timestamp::default());
    let (mut start, mut end) = (middle(&row, packed), Vec::new());
    start.extend(row.attempt.to_le_bytes());
    rest(&mut end, &row);
    [start, end]
}

fn middle(row: &Task, packed: usize) -> Vec<u8> {
    let long = |number| u32::try_from(number).unwrap_or(u32::MAX);
    let mut part = vec![u8::from(row.max_attempts.is_some())];
    let numbers = [
        row.max_attempts.unwrap_or(0),
        long(row.payload.len()),
        long(packed),
    ];
    part.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    part
}

fn rest(head: &mut Vec<u8>, row: &Task) {
    head.extend(perhaps(row.finished_at).to_le_bytes());
    head.extend(
        [row.stalls, row.hop]
            .iter()
            .flat_map(|number| number.to_le_bytes()),
    );
    head.push(u8::from(row.started));
    let owner = row.owner.as_deref().map(owner);
    let (key, error) = (row.key.as_ref().map(Key::as_str), row.last_error.as_deref());
    let short =
        |text: Option<&str>| text.map_or(NO_SHORT, |text| u16::try_from(text.len()).unwrap_or(NO_SHORT));
    head.extend(short(Some(row.kind.as_str())).to_le_bytes());
    head.extend(short(key).to_le_bytes());
    let long = error.map_or(NO_LONG, |text| u32::try_from(text.len()).unwrap_or(NO_LONG));
    head.extend(long.to_le_bytes());
    head.extend(short(owner).to_le_bytes());
    let texts = [Some(row.kind.as_str()), key, error, owner];
    head.extend(texts.iter().flatten().flat_map(|text| text.bytes()));
}

/// A row of which no sense can be made: not as this release knows it.
#[derive(Debug, thiserror::Error)]
#[error("the row of task {0} is not as this release writes it")]
pub(super) struct Garbled(TaskId);

/// The row of an id without its payload, and how many bytes that has.
pub(super) fn lean(id: TaskId, head: &[u8]) -> Result<(Task, usize), Garbled> {
    read(id, head).ok_or(Garbled(id))
}

/// The row of an id, of its head and its packed payload.
pub(super) fn task(id: TaskId, head: &[u8], payload: &[u8]) -> Result<Task, Garbled> {
    let (mut task, _) = lean(id, head)?;
    (task.payload, task.headers) = unpacked(payload).ok_or(Garbled(id))?;
    Ok(task)
}

/// Whether a row waits or runs, unless its head says that it is over.
pub(super) fn is_live(head: &[u8]) -> bool {
    head.get(STATE).is_none_or(|state| !(2..=4).contains(state))
}

fn read(id: TaskId, head: &[u8]) -> Option<(Task, usize)> {
    let mut bytes = Bytes(head);
    let [format] = bytes.take()?;
    let version = u64::from_le_bytes(bytes.take()?);
    let wake_at = bytes.perhaps_time()?;
    let [state] = bytes.take()?;
    let state = *STATES.get(usize::from(state))?;
    let due_at = bytes.time()?;
    let has_max = bytes.flag()?;
    let max_attempts = Some(bytes.long()?).filter(|_| has_max);
    let size = usize::try_from(bytes.long()?).ok()?;
    let (_, attempt) = (bytes.long()?, bytes.long()?);
    let (updated_at, created_at, planned_at) = (bytes.time()?, bytes.time()?, bytes.time()?);
    let finished_at = bytes.perhaps_time()?;
    let (stalls, hop) = (bytes.long()?, bytes.long()?);
    let started = bytes.flag()?;
    let (kind, key, error, owner) = (bytes.short()?, bytes.short()?, bytes.long()?, bytes.short()?);
    let kind = Kind::from(bytes.text(usize::from(kind))?);
    let mut text = |length: Option<usize>| match length {
        Some(length) => bytes.text(length).map(Some),
        None => Some(None),
    };
    let short = |length: u16| (length != NO_SHORT).then_some(usize::from(length));
    let long = |length: u32| usize::try_from(length).ok().filter(|_| length != NO_LONG);
    let (key, last_error, owner) = (text(short(key))?, text(long(error))?, text(short(owner))?);
    let task = Task {
        id,
        kind,
        key: key.map(Key::from),
        payload: Vec::new(),
        headers: BTreeMap::new(),
        due_at,
        planned_at,
        state,
        version,
        wake_at,
        attempt,
        started,
        stalls,
        max_attempts,
        hop,
        owner,
        last_error,
        created_at,
        updated_at,
        finished_at,
    };
    (format == FORMAT && bytes.0.is_empty()).then_some((task, size))
}

/// Payload and headers, which scripts do not look into; nothing if there are none.
pub(super) fn packed(payload: &[u8], headers: &BTreeMap<String, String>) -> Vec<u8> {
    if payload.is_empty() && headers.is_empty() {
        return Vec::new();
    }
    let mut packed = Vec::with_capacity(payload.len() + 4);
    let number = |packed: &mut Vec<u8>, number: usize| {
        packed.extend(u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
    };
    number(&mut packed, headers.len());
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        number(&mut packed, text.len());
        packed.extend(text.as_bytes());
    }
    packed.extend(payload);
    packed
}

fn unpacked(packed: &[u8]) -> Option<(Vec<u8>, BTreeMap<String, String>)> {
    let mut headers = BTreeMap::new();
    let mut bytes = Bytes(packed);
    if !packed.is_empty() {
        for _ in 0..bytes.long()? {
            let mut text = || {
                let length = usize::try_from(bytes.long()?).ok()?;
                bytes.text(length)
            };
            headers.insert(text()?, text()?);
        }
    }
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

    fn flag(&mut self) -> Option<bool> {
        let [flag] = self.take()?;
        (flag <= 1).then_some(flag == 1)
    }

    fn short(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn long(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn time(&mut self) -> Option<Timestamp> {
        self.take()
            .map(|bytes| Timestamp::from_millis(i64::from_le_bytes(bytes)))
    }

    fn perhaps_time(&mut self) -> Option<Option<Timestamp>> {
        let time = self.time()?;
        Some(Some(time).filter(|time| time.as_millis() != NO_TIME))
    }

    fn text(&mut self, length: usize) -> Option<String> {
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}
