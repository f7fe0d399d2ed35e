//! Keeps a cancel that comes before its message.
//!
//! Two messages in different queues may overtake each other. A cancel that finds nothing leaves a mark for ten minutes:
//! a task of the same kind and key, or of the same id, which is never published. It applies to all messages that were
//! sent before the cancel, however often they come: they are answered "cancelled". A message that was sent later takes
//! the mark's place.

use std::time::Duration;

use delayline::store::Target;
use delayline::{Kind, NewTask, Task};

use super::found_task::ORIGIN;
use super::origin::Origin;

/// The header that identifies a mark.
const MARK: &str = "DELAYLINE_OVERTAKEN";
/// How long it takes its place, so that nothing else can do so unseen.
const KEPT: Duration = Duration::from_secs(600);

/// Makes the mark of a cancel.
pub(super) fn mark(kind: &Kind, target: &Target, origin: &Origin) -> NewTask {
    let (kind, key, id) = match target {
        Target::Key(kind, key) => (kind, Some(key), None),
        Target::Id(id) => (kind, None, Some(id)),
    };
    let mut mark = NewTask::from_bytes(kind.clone(), *b"null")
        .after(KEPT)
        .header(MARK, "-")
        .header(ORIGIN, origin.to_string());
    if let Some(key) = key {
        mark = mark.key(key.clone());
    }
    if let Some(id) = id {
        mark = mark.id(*id);
    }
    mark
}

pub(super) fn is_mark(task: &Task) -> bool {
    task.headers.contains_key(MARK)
}
