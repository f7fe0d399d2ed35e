//! New rows.

use std::collections::BTreeSet;

use super::loaded::Loaded;
use super::obstacle::Why;
use super::session::Session;
use crate::store::{NewRow, Stamped, row};
use crate::{Scheduled, TaskId, Timestamp};

/// The answers for new rows of a batch, as far as there are any, and the others, each with its place.
pub(in crate::store) struct Insert<E> {
    pub(in crate::store) now: Timestamp,
    pub(in crate::store) answers: Vec<Option<Result<Scheduled, E>>>,
    pub(in crate::store) left: Vec<(usize, NewRow)>,
}

impl<E> Insert<E> {
    /// What is known once those were written of which neither id nor live key was there: nearly always all, so nothing
    /// is looked up before.
    pub(in crate::store) fn of(new: Vec<NewRow>, added: Stamped<BTreeSet<TaskId>>) -> Self {
        let Stamped { now, mut found } = added;
        let mut answers = Vec::with_capacity(new.len());
        let mut left = Vec::new();
        for (place, new) in new.into_iter().enumerate() {
            // Of twins the first was written.
            if found.remove(&new.id) {
                answers.push(Some(Ok(Scheduled::New(row::new(new, now)))));
            } else {
                answers.push(None);
                left.push((place, new));
            }
        }
        Self { now, answers, left }
    }

    /// Takes the answers for those that were left.
    pub(in crate::store) fn answer(&mut self, answers: impl IntoIterator<Item = Result<Scheduled, E>>) {
        for ((place, _), answer) in std::mem::take(&mut self.left).into_iter().zip(answers) {
            self.answers[place] = Some(answer);
        }
    }

    /// All answers. None must be left.
    pub(in crate::store) fn stamped(self) -> Stamped<Vec<Result<Scheduled, E>>> {
        Stamped {
            now: self.now,
            found: self.answers.into_iter().flatten().collect(),
        }
    }
}

/// How often rows are decided upon anew because others wrote the same ids or keys in between. Then a later call may have
/// better luck.
const TRIES: usize = 10;

/// Writes rows of which some may be there, and answers for each, as [`Store::insert`](crate::store::Store::insert) says,
/// within a transaction.
pub(in crate::store) async fn insert(
    session: &mut impl Session,
    new: Vec<NewRow>,
) -> Result<Stamped<Vec<Result<Scheduled, Why>>>, sqlx::Error> {
    let now = session.now().await?;
    let mut answers: Vec<_> = new.iter().map(|_| Err(Why::Locked)).collect();
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
        let keys = left
            .iter()
            .filter_map(|(_, new)| Some((new.kind.clone(), new.key.clone()?)));
        loaded
            .ids(session, left.iter().map(|(_, new)| new.id).collect())
            .await?;
        loaded.keys(session, keys.collect()).await?;
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
