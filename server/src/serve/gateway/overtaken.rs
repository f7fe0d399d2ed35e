//! A cancel that comes before what it cancels.
//!
//! Two messages of one key in different queues may overtake each other. A cancel that finds nothing leaves a mark for ten
//! minutes: a task of the same kind and key, which is never published. What is then scheduled under that key meets the mark,
//! is answered "cancelled", and writes its own name on it: the same message that comes again is answered the same, and
//! another one is scheduled in the mark's place.

use std::time::Duration;

use delayline::{Key, Kind, NewTask, Task};

/// The header by which a mark is known; its value is the id of the message that has met it, if one has.
const MARK: &str = "DELAYLINE_OVERTAKEN";
/// The value before that.
const NOT_YET: &str = "-";
/// For how long a cancel is kept.
const KEPT: Duration = Duration::from_secs(600);

/// The mark of a cancel.
pub(super) fn mark(kind: &Kind, key: &Key) -> NewTask {
    NewTask::from_bytes(kind.clone(), *b"null")
        .key(key.clone())
        .after(KEPT)
        .header(MARK, NOT_YET)
}

/// The same mark, met by the message of this id.
pub(super) fn met(mark: &Task, key: &Key, message: &str) -> NewTask {
    NewTask::from_bytes(mark.kind.clone(), *b"null")
        .key(key.clone())
        .at(mark.due_at)
        .header(MARK, message)
        .replace()
}

pub(super) fn is_mark(task: &Task) -> bool {
    task.headers.contains_key(MARK)
}

/// Whether a mark is for the message of this id: nobody has met it, or this one has.
pub(super) fn is_for(task: &Task, message: &str) -> bool {
    task.headers
        .get(MARK)
        .is_some_and(|met_by| met_by == NOT_YET || met_by == message)
}
