//! New rows.

use std::collections::BTreeSet;

use super::loaded::Loaded;
use super::obstacle::Why;
use super::session::{Lock, Session};
use crate::store::{NewRow, Stamped, row};
use crate::{Error, Scheduled};

/// How often rows are decided upon anew because others wrote the same ids or keys in between. Then a later call may have
/// better luck.
const TRIES: usize = 10;

/// As [`insert`], but first tries to write all of them: nearly always nothing is in the way of any.
pub(in crate::store) async fn insert_at_once(
    session: &mut impl Session,
    new: Vec<NewRow>,
) -> Result<Stamped<Vec<Result<Scheduled, Why>>>, sqlx::Error> {
    let Stamped { now, mut found } = session.add(&new, None).await?;
    let mut answers = Vec::with_capacity(new.len());
    let (mut places, mut left) = (Vec::new(), Vec::new());
    for (place, new) in new.into_iter().enumerate() {
        // Of twins the first was written.
        if found.remove(&new.id) {
            answers.push(Ok(Scheduled::New(row::new(new, now))));
        } else {
            answers.push(Err(Why::Locked(None)));
            places.push(place);
            left.push(new);
        }
    }
    if !left.is_empty() {
        let rest = insert(session, left).await?.found;
        for (place, answer) in places.into_iter().zip(rest) {
            answers[place] = answer;
        }
    }
    Ok(Stamped { now, found: answers })
}

/// What all rows of a batch were answered, or why one of them was not.
pub(in crate::store) fn all<A>(
    answers: Stamped<Vec<Result<A, Why>>>,
    store: &'static str,
) -> Result<Stamped<Vec<A>>, Error> {
    let Stamped { now, found } = answers;
    let found: Result<Vec<_>, Why> = found.into_iter().collect();
    let found = found.map_err(|why| why.error(store))?;
    Ok(Stamped { now, found })
}

/// Writes rows of which some may be there, and answers for each, as [`Store::insert`](crate::store::Store::insert) says,
/// within a transaction.
pub(in crate::store) async fn insert(
    session: &mut impl Session,
    new: Vec<NewRow>,
) -> Result<Stamped<Vec<Result<Scheduled, Why>>>, sqlx::Error> {
    let now = session.now().await?;
    let mut answers: Vec<_> = new.iter().map(|_| Err(Why::Locked(None))).collect();
    let mut left: Vec<_> = new.into_iter().enumerate().collect();
    for _ in 0..TRIES {
        if left.is_empty() {
            break;
        }
        left = among(session, left, &mut answers).await?;
    }
    Ok(Stamped { now, found: answers })
}

/// Answers for rows of which some are there; gives those that it cannot answer for yet.
async fn among(
    session: &mut impl Session,
    left: Vec<(usize, NewRow)>,
    answers: &mut [Result<Scheduled, Why>],
) -> Result<Vec<(usize, NewRow)>, sqlx::Error> {
    let (mut loaded, now) = loop {
        let mut loaded = Loaded::default();
        // Only what is to be replaced is locked, and that first: what is looked at later is not older.
        let keys = |replace| {
            let of = left.iter().filter(move |(_, new)| new.replace == replace);
            of.filter_map(|(_, new)| Some((new.kind.clone(), new.key.clone()?)))
        };
        let replacing: BTreeSet<_> = keys(true).collect();
        let others = keys(false).filter(|key| !replacing.contains(key)).collect();
        loaded.keys(session, replacing, Lock::Changeable).await?;
        loaded.keys(session, others, Lock::Ended).await?;
        let ids = left.iter().map(|(_, new)| new.id).collect();
        loaded.ids(session, ids, Lock::Ended).await?;
        let now = session.now().await?;
        if !loaded.is_past(now) {
            break (loaded, now);
        }
    };
    let (mut decided, mut to_add) = (Vec::new(), Vec::new());
    for (place, new) in left {
        let of_key = || loaded.obstacle_of_live(&new.kind, new.key.as_ref()?);
        if let Some(why) = loaded.obstacle_of_id(new.id).or_else(of_key) {
            answers[place] = Err(why.clone());
            continue;
        }
        let answer = loaded.rows.insert(new.clone(), now);
        if matches!(answer, Scheduled::New(_)) {
            to_add.push(new.clone());
        }
        decided.push((place, new, answer));
    }
    let to_be_new: BTreeSet<_> = to_add.iter().map(|new| new.id).collect();
    let mut is_new = BTreeSet::new();
    if !to_add.is_empty() {
        is_new = session.add(&to_add, Some(now)).await?.found;
    }
    let replaced: BTreeSet<_> = decided
        .iter()
        .filter(|(.., answer)| matches!(answer, Scheduled::Replaced(_)))
        .map(|(.., answer)| answer.task().id)
        .collect();
    let touched = decided.iter().map(|(.., answer)| answer.task().id);
    for (_, row) in loaded.write(session, touched).await? {
        if replaced.contains(&row.id) {
            session.refill(&row).await?;
        }
    }

    let mut again = Vec::new();
    for (place, new, answer) in decided {
        let id = answer.task().id;
        let is_settled = match answer {
            // Else somebody has written that row, or one of its key, since the look.
            Scheduled::New(_) => is_new.contains(&id),
            // What comes after a new row of its id or key in the same batch meets it in the next round.
            _ => !to_be_new.contains(&id),
        };
        if is_settled {
            answers[place] = Ok(answer);
        } else {
            again.push((place, new));
        }
    }
    Ok(again)
}
