//! New rows.

use std::collections::BTreeSet;
use std::io;

use super::loaded::Loaded;
use super::session::Session;
use crate::store::{NewRow, Stamped, row};
use crate::{Scheduled, Timestamp};

/// How often rows are decided upon anew because others wrote the same ids or keys in between.
const TRIES: usize = 10;

/// Others wrote and finished rows of the same keys again and again while these were being written.
#[derive(Debug, thiserror::Error)]
#[error("{0} rows met others of their ids or keys that came and went {TRIES} times")]
struct Crossed(usize);

/// A batch of new rows, of which those that nothing was in the way of have been written.
pub(in crate::store) struct Insert {
    now: Timestamp,
    answers: Vec<Option<Scheduled>>,
    /// The others, each with its place in the batch.
    left: Vec<(usize, NewRow)>,
}

impl Insert {
    /// Writes those of which neither id nor live key is there: nearly always all, so nothing is looked up before. It is
    /// one statement, which needs no transaction around it.
    pub(in crate::store) async fn add(
        session: &mut impl Session,
        new: Vec<NewRow>,
    ) -> Result<Self, sqlx::Error> {
        let Stamped { now, mut found } = session.add(&new, None).await?;
        let mut answers = Vec::with_capacity(new.len());
        let mut left = Vec::new();
        for (place, new) in new.into_iter().enumerate() {
            if found.remove(&new.id) {
                answers.push(Some(Scheduled::New(row::new(new, now))));
            } else {
                answers.push(None);
                left.push((place, new));
            }
        }
        Ok(Self { now, answers, left })
    }

    /// Whether all were written.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(in crate::store) fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    /// Answers for all, and for the others as [`Store::insert`](crate::store::Store::insert) says, within a
    /// transaction. It can be repeated after an error.
    pub(in crate::store) async fn rest(
        &self,
        session: &mut impl Session,
    ) -> Result<Stamped<Vec<Scheduled>>, sqlx::Error> {
        let mut answers = self.answers.clone();
        let mut left = self.left.clone();
        let mut tries = 0;
        while !left.is_empty() {
            if tries == TRIES {
                // A later call may have better luck.
                return Err(sqlx::Error::Io(io::Error::other(Crossed(left.len()))));
            }
            tries += 1;
            left = among(session, left, &mut answers).await?;
        }
        Ok(Stamped {
            now: self.now,
            found: answers.into_iter().flatten().collect(),
        })
    }
}

/// Answers for rows of which some are there; gives those that it cannot answer for yet.
async fn among(
    session: &mut impl Session,
    left: Vec<(usize, NewRow)>,
    answers: &mut [Option<Scheduled>],
) -> Result<Vec<(usize, NewRow)>, sqlx::Error> {
    let ids = left.iter().map(|(_, new)| new.id).collect();
    let keys = left
        .iter()
        .filter_map(|(_, new)| Some((new.kind.clone(), new.key.clone()?)));
    let mut loaded = Loaded::default();
    loaded.ids(session, ids).await?;
    loaded.keys(session, keys.collect()).await?;

    let now = session.now().await?;
    let decided: Vec<_> = left
        .iter()
        .map(|(_, new)| loaded.rows.insert(new.clone(), now))
        .collect();
    let to_add: Vec<_> = left
        .iter()
        .zip(&decided)
        .filter(|(_, answer)| matches!(answer, Scheduled::New(_)))
        .map(|((_, new), _)| new.clone())
        .collect();
    let to_be_new: BTreeSet<_> = to_add.iter().map(|new| new.id).collect();
    let mut is_new = BTreeSet::new();
    if !to_add.is_empty() {
        is_new = session.add(&to_add, Some(now)).await?.found;
    }
    let touched = decided.iter().map(|answer| answer.task().id);
    for (_, row) in loaded.write(session, touched).await? {
        session.refill(&row).await?;
    }

    let mut again = Vec::new();
    for ((place, new), answer) in left.into_iter().zip(decided) {
        let id = answer.task().id;
        let is_settled = match answer {
            // Else somebody has written that row, or one of its key, since the look.
            Scheduled::New(_) => is_new.contains(&id),
            // What comes after a new row of its id or key in the same batch meets it in the next round.
            _ => !to_be_new.contains(&id),
        };
        if is_settled {
            answers[place] = Some(answer);
        } else {
            again.push((place, new));
        }
    }
    Ok(again)
}
