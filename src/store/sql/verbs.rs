//! Verbs on a server where others have rows locked: each row of a batch gets an answer of its own.
//!
//! Nobody waits here for a row that somebody else keeps locked, but who asked for that very row. So each batch is tried
//! on what is free first; what is not is tried again apart, each by itself, for a short time, and on connections that
//! nobody else needs.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;

use super::batches::{STATEMENT, batches};
use super::obstacle::Why;
use super::parts::by_parts;
use crate::store::{Change, NewRow, Stamped, row};
use crate::{Answer, Clock, Error, Scheduled, TaskId, Timestamp};

/// For how long a verb waits for rows that somebody else keeps locked.
pub(in crate::store) const PATIENCE: Duration = Duration::from_secs(9);
/// For how long of this it waits for all of them together.
const TOGETHER: Duration = Duration::from_secs(8);
/// For how many milliseconds at the most, each time, it leaves alone what is locked before it waits for it.
const PAUSES: [u64; 3] = [5, 20, 50];
/// On how many connections verbs wait, at the most.
pub(in crate::store) const WAITING: usize = 4;

/// What a verb does about a row that somebody else has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Locked {
    /// It says so.
    Leave,
    /// It waits, on a connection for those who do.
    Await,
}

/// What each row of a batch was answered.
pub(in crate::store) type Answers<A> = Vec<Result<A, Why>>;

/// A server, as verbs use it. Each call is a transaction of its own.
#[async_trait]
pub(in crate::store) trait Verbs: Sync {
    /// Whose errors they are.
    const NAME: &'static str;

    fn clock(&self) -> &Clock;

    /// What is told of a row that a call failed of; none where it was not for a row's sake.
    fn blame(error: &sqlx::Error) -> Option<Why>;

    /// Why no such server can keep a row, if so.
    fn refuses(row: &NewRow) -> Option<Why>;

    /// The time by the server's clock.
    async fn now(&self) -> Result<Timestamp, sqlx::Error>;

    /// Writes those of which neither id nor live key is there: nearly always all. Says which, and the time.
    async fn add(&self, rows: &[NewRow]) -> Result<Stamped<BTreeSet<TaskId>>, sqlx::Error>;

    /// As [`insert`](super::insert::insert).
    async fn insert(
        &self,
        rows: Vec<NewRow>,
        locked: Locked,
    ) -> Result<Stamped<Answers<Scheduled>>, sqlx::Error>;

    /// As [`change`](super::change::change).
    async fn change(
        &self,
        changes: &[Change],
        history: Duration,
        locked: Locked,
    ) -> Result<Stamped<Answers<Answer>>, sqlx::Error>;
}

/// Writes new rows as [`Store::insert`](crate::store::Store::insert) says.
pub(in crate::store) async fn insert_each<V: Verbs>(
    server: &V,
    rows: Vec<NewRow>,
) -> Result<Stamped<Vec<Result<Scheduled, Error>>>, sqlx::Error> {
    let now = OnceLock::new();
    let refusals = rows.iter().map(|row| V::refuses(row).map(Err));
    let mut batch = Batch {
        answers: refusals.collect(),
        rows,
    };

    let sound = batch.places(Option::is_none);
    let size = |place: &usize| size(&batch.rows[*place]);
    let apart = batches(&sound, usize::MAX, STATEMENT, size).map(<[usize]>::to_vec);
    let add = |places: Vec<usize>| add(server, batch.chosen(&places), &now);
    let added = by_parts(apart.collect(), V::blame, add).await?;
    batch.answer(&sound, added.into_iter().map(Result::transpose));

    let met = batch.places(Option::is_none);
    if !met.is_empty() {
        let meet = |places: Vec<usize>| meet(server, batch.chosen(&places), Locked::Leave, &now);
        let found = by_parts(vec![met.clone()], V::blame, meet).await?;
        batch.answer(&met, found.into_iter().map(Some));
    }

    let locked = batch.places(is_locked);
    let meet = |places: Vec<usize>, locked| meet(server, batch.chosen(&places), locked, &now);
    let found = patiently(server, &locked, meet).await?;
    batch.answer(&locked, found.into_iter().map(Some));
    let now = match now.into_inner() {
        Some(now) => now,
        None => server.now().await?,
    };
    Ok(batch.stamped(V::NAME, now))
}

/// Writes what can be written at once; no answer for the others.
async fn add<V: Verbs>(
    server: &V,
    rows: Vec<NewRow>,
    first: &OnceLock<Timestamp>,
) -> Result<Answers<Option<Scheduled>>, sqlx::Error> {
    let Stamped { now, mut found } = server.add(&rows).await?;
    first.get_or_init(|| now);
    // Of twins the first was written.
    let answer = |new: NewRow| Ok(found.remove(&new.id).then(|| Scheduled::New(row::new(new, now))));
    Ok(rows.into_iter().map(answer).collect())
}

async fn meet<V: Verbs>(
    server: &V,
    rows: Vec<NewRow>,
    locked: Locked,
    first: &OnceLock<Timestamp>,
) -> Result<Answers<Scheduled>, sqlx::Error> {
    let Stamped { now, found } = server.insert(rows, locked).await?;
    first.get_or_init(|| now);
    Ok(found)
}

/// Changes rows as [`Store::change`](crate::store::Store::change) says.
pub(in crate::store) async fn change_each<V: Verbs>(
    server: &V,
    changes: Vec<Change>,
    history: Duration,
) -> Result<Stamped<Vec<Result<Answer, Error>>>, sqlx::Error> {
    let now = OnceLock::new();
    let mut batch = Batch {
        answers: changes.iter().map(|_| None).collect(),
        rows: changes,
    };
    let all = batch.places(Option::is_none);
    let change = |places: Vec<usize>, locked| {
        let (changes, now) = (batch.chosen(&places), &now);
        async move {
            let answers = server.change(&changes, history, locked).await?;
            now.get_or_init(|| answers.now);
            Ok(answers.found)
        }
    };
    let found = by_parts(vec![all.clone()], V::blame, |places| {
        change(places, Locked::Leave)
    })
    .await?;
    batch.answer(&all, found.into_iter().map(Some));

    let locked = batch.places(is_locked);
    let change = |places: Vec<usize>, locked| {
        let (changes, now) = (batch.chosen(&places), &now);
        async move {
            let answers = server.change(&changes, history, locked).await?;
            now.get_or_init(|| answers.now);
            Ok(answers.found)
        }
    };
    let found = patiently(server, &locked, change).await?;
    batch.answer(&locked, found.into_iter().map(Some));
    let now = match now.into_inner() {
        Some(now) => now,
        None => server.now().await?,
    };
    Ok(batch.stamped(V::NAME, now))
}

/// A batch, and the answers that there are.
struct Batch<T, A> {
    rows: Vec<T>,
    answers: Vec<Option<Result<A, Why>>>,
}

impl<T: Clone, A> Batch<T, A> {
    /// The places of those whose answer is so.
    fn places(&self, is: impl Fn(&Option<Result<A, Why>>) -> bool) -> Vec<usize> {
        (0..self.answers.len())
            .filter(|&place| is(&self.answers[place]))
            .collect()
    }

    fn chosen(&self, places: &[usize]) -> Vec<T> {
        places.iter().map(|&place| self.rows[place].clone()).collect()
    }

    fn answer(&mut self, places: &[usize], answers: impl IntoIterator<Item = Option<Result<A, Why>>>) {
        for (&place, answer) in places.iter().zip(answers) {
            self.answers[place] = answer;
        }
    }

    fn stamped(self, store: &'static str, now: Timestamp) -> Stamped<Vec<Result<A, Error>>> {
        let answers = self.answers.into_iter().flatten();
        let found = answers.map(|answer| answer.map_err(|why| why.error(store)));
        Stamped {
            now,
            found: found.collect(),
        }
    }
}

fn is_locked<A>(answer: &Option<Result<A, Why>>) -> bool {
    matches!(answer, Some(Err(Why::Locked)))
}

/// What each is answered of whose rows some were locked, all in [`PATIENCE`].
///
/// Most are locked for a moment only, as by other verbs, and are free soon. Then each waits for itself, one after the
/// other. A wait that is given up, also by a caller who goes away, ends at the server too.
async fn patiently<V: Verbs, A, F>(
    server: &V,
    places: &[usize],
    call: impl Fn(Vec<usize>, Locked) -> F,
) -> Result<Answers<A>, sqlx::Error>
where
    F: Future<Output = Result<Answers<A>, sqlx::Error>>,
{
    let mut answers: BTreeMap<usize, Result<A, Why>> = BTreeMap::new();
    let mut left = places.to_vec();
    let each = async {
        for pause in PAUSES {
            if left.is_empty() {
                return Ok(());
            }
            let millis = 1 + server.clock().random_below(pause);
            server.clock().sleep(Duration::from_millis(millis)).await;
            let again = |places| call(places, Locked::Leave);
            let found = by_parts(vec![left.clone()], V::blame, again).await?;
            for (place, answer) in std::mem::take(&mut left).into_iter().zip(found) {
                match answer {
                    Err(Why::Locked) => left.push(place),
                    answer => drop(answers.insert(place, answer)),
                }
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        // In the order of ids, as all do: those that other verbs want as well are had in turn. It is a stranger who does
        // not give a row free.
        let together = async {
            while !left.is_empty() {
                match call(left.clone(), Locked::Await).await {
                    Ok(found) => {
                        for (place, answer) in std::mem::take(&mut left).into_iter().zip(found) {
                            match answer {
                                Err(Why::Locked) => left.push(place),
                                answer => drop(answers.insert(place, answer)),
                            }
                        }
                    }
                    // As the victim of a deadlock.
                    Err(error) if V::blame(&error).is_some() => {}
                    Err(error) => return Err(error),
                }
                let millis = server.clock().random_below(PAUSES[2]);
                server.clock().sleep(Duration::from_millis(millis)).await;
            }
            Ok(())
        };
        server
            .clock()
            .timeout(TOGETHER, together)
            .await
            .unwrap_or(Ok(()))?;
        for place in left {
            let found = by_parts(vec![vec![place]], V::blame, |places| call(places, Locked::Await)).await?;
            answers.extend(found.into_iter().map(|answer| (place, answer)));
        }
        Ok::<_, sqlx::Error>(())
    };
    let ended = server.clock().timeout(PATIENCE, each).await;
    ended.unwrap_or(Ok(()))?;
    let mut answer = |place| answers.remove(place).unwrap_or(Err(Why::Locked));
    Ok(places.iter().map(&mut answer).collect())
}

fn size(row: &NewRow) -> usize {
    // Each `"` of a header, and each control character, is longer in JSON; six times is the most.
    let headers = row
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.len() + 6);
    row.payload.len() + 6 * headers.sum::<usize>()
}
