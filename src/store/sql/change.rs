//! Changes of rows, for their callers.

use std::collections::BTreeSet;
use std::time::Duration;

use super::loaded::Loaded;
use super::session::Session;
use crate::store::{Change, Stamped, Verb};
use crate::{Answer, Target};

/// Changes rows as [`Store::change`](crate::store::Store::change) says, within a transaction.
pub(in crate::store) async fn change(
    session: &mut impl Session,
    changes: &[Change],
    history: Duration,
) -> Result<Stamped<Vec<Answer>>, sqlx::Error> {
    let mut ids = BTreeSet::new();
    let mut keys = BTreeSet::new();
    let mut redriven = BTreeSet::new();
    for change in changes {
        match &change.target {
            Target::Id(id) => {
                ids.insert(*id);
                if matches!(change.verb, Verb::Redrive { .. }) {
                    redriven.insert(*id);
                }
            }
            Target::Key(kind, key) => {
                keys.insert((kind.clone(), key.clone()));
            }
        }
    }

    let mut loaded = Loaded::default();
    loaded.ids(session, ids).await?;
    // A row to redrive may be in the way of another live row of its key.
    let redriven = redriven.into_iter().filter_map(|id| loaded.rows.get(id));
    keys.extend(redriven.filter_map(|row| Some((row.kind.clone(), row.key.clone()?))));
    loaded.keys(session, keys).await?;

    let now = session.now().await?;
    let answer = |change: &Change| loaded.rows.answer(change, now, history);
    let found: Vec<_> = changes.iter().map(answer).collect();
    let touched = found.iter().filter_map(|answer| Some(answer.task()?.id));
    loaded.write(session, touched).await?;
    Ok(Stamped { now, found })
}
