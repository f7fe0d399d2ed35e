//! Changes of rows, for their callers.

use std::collections::BTreeSet;
use std::time::Duration;

use super::loaded::Loaded;
use super::obstacle::Why;
use super::session::{Lock, Session};
use crate::store::{Change, Stamped, Target, Verb};
use crate::{Answer, TaskId, Timestamp};

/// Changes rows as [`Store::change`](crate::store::Store::change) says, within a transaction.
pub(in crate::store) async fn change(
    session: &mut impl Session,
    changes: &[Change],
    history: Duration,
) -> Result<Stamped<Vec<Result<Answer, Why>>>, sqlx::Error> {
    let (mut loaded, now) = loop {
        let (loaded, now) = load(session, changes).await?;
        if !loaded.is_past(now) {
            break (loaded, now);
        }
    };
    let mut touched = BTreeSet::new();
    let mut answer = |change: &Change| {
        if let Some(why) = obstacle(&loaded, change) {
            return Err(why.clone());
        }
        // The end of a lease stays, though the verb is refused.
        touched.extend(loaded.rows.find(&change.target).map(|row| row.id));
        Ok(loaded.rows.answer(change, now, history))
    };
    let found = changes.iter().map(&mut answer).collect();
    loaded.write(session, touched.into_iter()).await?;
    Ok(Stamped { now, found })
}

/// The rows that the changes may touch, and the time then.
async fn load(session: &mut impl Session, changes: &[Change]) -> Result<(Loaded, Timestamp), sqlx::Error> {
    let mut ids = BTreeSet::new();
    let mut keys = BTreeSet::new();
    let mut redriven = BTreeSet::new();
    for change in changes {
        match &change.target {
            Target::Id(id) => {
                ids.insert(*id);
                if is_redrive(change) {
                    redriven.insert(*id);
                }
            }
            Target::Key(kind, key) => {
                keys.insert((kind.clone(), key.clone()));
            }
        }
    }
    let mut loaded = Loaded::default();
    loaded.ids(session, ids, Lock::Changeable).await?;
    // A row to redrive may be in the way of another live row of its key.
    let redriven = redriven.into_iter().filter_map(|id| loaded.rows.get(id));
    keys.extend(redriven.filter_map(|row| Some((row.kind.clone(), row.key.clone()?))));
    loaded.keys(session, keys, Lock::Changeable).await?;
    let now = session.now().await?;
    Ok((loaded, now))
}

fn is_redrive(change: &Change) -> bool {
    matches!(change.verb, Verb::Redrive { .. })
}

fn obstacle<'l>(loaded: &'l Loaded, change: &Change) -> Option<&'l Why> {
    let of_key = |id: TaskId| {
        let row = loaded.rows.get(id)?;
        loaded.obstacle_of_live(&row.kind, row.key.as_ref()?)
    };
    loaded.obstacle(&change.target).or_else(|| match change.target {
        Target::Id(id) if is_redrive(change) => of_key(id),
        _ => None,
    })
}
