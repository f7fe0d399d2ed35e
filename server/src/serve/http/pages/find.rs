//! Finds what a search means beside how keys begin: an id, a kind, or a very key.

use delayline::store::Target;
use delayline::{Key, Task, TaskId};

use super::super::problem::Problem;
use super::wanted::Wanted;
use crate::operations::{KINDS, Operations};

/// What else was meant by what was searched for: an id, or a kind.
pub(super) async fn elsewhere(operations: &Operations, wanted: &Wanted) -> Result<Option<String>, Problem> {
    let Some(q) = &wanted.q else {
        return Ok(None);
    };
    if let Ok(id) = q.parse::<TaskId>()
        && operations.found(Target::Id(id)).await?.is_some()
    {
        return Ok(Some(format!("/tasks/{id}")));
    }
    let kinds = operations.kinds(None, KINDS).await?;
    if wanted.kind.is_none() && kinds.iter().any(|kind| kind.kind == *q) {
        let of_kind = Wanted {
            q: None,
            kind: Some(q.clone()),
            ..wanted.clone()
        };
        return Ok(Some(format!("/tasks?{}", of_kind.search().finish())));
    }
    Ok(None)
}

/// Those of whatever state that have a key: of the kind that was chosen, or of all.
pub(super) async fn exact(operations: &Operations, wanted: &Wanted, key: &str) -> Result<Vec<Task>, Problem> {
    // What is too long to be a key may still begin no key.
    if Key::from(key).check().is_err() {
        return Ok(Vec::new());
    }
    let kinds = match &wanted.kind {
        Some(kind) => vec![kind.clone()],
        None => {
            let kinds = operations.kinds(None, KINDS).await?;
            kinds.into_iter().map(|kind| kind.kind).collect()
        }
    };
    let mut tasks = Vec::new();
    for kind in kinds {
        let target = Target::Key(kind.into(), key.into());
        if let Some(mut task) = operations.found(target).await? {
            // Of many kinds these would be many.
            task.payload = Vec::new();
            tasks.push(task);
        }
    }
    Ok(tasks)
}
