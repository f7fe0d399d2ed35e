//! Verbs on a server where others have rows locked: each row of a batch gets an answer of its own.
//!
//! Nobody waits here for a row that somebody else keeps locked, but who asked for that very row. So each batch is tried
//! on what is free first; what is not is tried again apart, for a short time, and on connections that nobody else needs.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::batches::{STATEMENT, batches, size};
use super::connections::Away;
use super::obstacle::Why;
use super::parts::by_parts;
use crate::clock::Clock;
use crate::store::merging::{self, AnswersAtOnce, AtOnce, Batched};
use crate::store::{Change, NewRow, Stamped, row};
use crate::{Answer, Error, Scheduled, TaskId, Timestamp, defaults};

/// For how many seconds a verb waits for a lock when it is its turn.
pub(in crate::store) const LOCK_WAIT: u64 = 3;
/// For how many it waits for its turn, before it tries again without.
pub(in crate::store) const TURN_WAIT: u64 = 8;
/// After which time a verb waits no longer, whoever has its rows locked.
const PATIENCE: Duration = Duration::from_secs(9);
/// For how long it leaves alone what is locked, and tries again, before it waits.
const GRACE: Duration = Duration::from_millis(60);
/// For how many milliseconds, at the most, it pauses between two tries.
const PAUSE: u64 = 25;
/// On how many connections verbs wait, at the most.
pub(in crate::store) const WAITING: usize = 4;

/// What a verb does about a row that somebody else has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Locked {
    /// It says so.
    Leave,
    /// It waits, on a connection for those who do, when its turn comes: until then all are locked.
    Await,
}

/// What each row of a batch was answered.
pub(in crate::store) type Answers<A> = Vec<Result<A, Why>>;

/// A server, as verbs use it. Each call is a transaction of its own.
#[async_trait]
pub(in crate::store) trait Verbs: Send + Sync + 'static {
    /// Whose errors they are.
    const NAME: &'static str;

    fn clock(&self) -> &Clock;

    /// What is told of a row that a call failed of; none where it was not for a row's sake.
    fn blame(error: &sqlx::Error) -> Option<Why>;

    /// The store's error for what the driver said. If it means that connections are of no use, they are closed.
    fn failed(&self, error: sqlx::Error) -> Error;

    /// What a call gives, or an error after [`defaults::STORE_TIMEOUT`]; then what it spoke through is closed.
    fn bounded<T: Send>(
        &self,
        call: impl Future<Output = Result<T, sqlx::Error>> + Send,
    ) -> impl Future<Output = Result<T, Error>> + Send {
        async move {
            let limit = defaults::STORE_TIMEOUT;
            let ended = self.clock().timeout(limit, call).await;
            ended
                .unwrap_or_else(|| Err(Away(limit).into()))
                .map_err(|error| self.failed(error))
        }
    }

    /// Why no such server can keep a row, if so.
    fn refuses(row: &NewRow) -> Option<Why>;

    /// The time by the server's clock.
    async fn now(&self) -> Result<Timestamp, sqlx::Error>;

    /// What a batch is answered whose turn has not come.
    async fn all_locked<A: Send>(&self, count: usize) -> Result<Stamped<Answers<A>>, sqlx::Error> {
        let now = self.now().await?;
        let found = std::iter::repeat_with(|| Err(Why::Locked(None))).take(count);
        Ok(Stamped {
            now,
            found: found.collect(),
        })
    }

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

#[async_trait]
impl<V: Verbs> Batched for V {
    fn name(&self) -> &'static str {
        V::NAME
    }

    fn clock(&self) -> &Clock {
        Verbs::clock(self)
    }

    async fn insert_alone(&self, rows: Vec<NewRow>) -> Result<merging::Answers<Scheduled>, Error> {
        self.bounded(insert_each(self, rows)).await
    }

    async fn change_alone(
        &self,
        changes: Vec<Change>,
        history: Duration,
    ) -> Result<merging::Answers<Answer>, Error> {
        self.bounded(change_each(self, changes, history)).await
    }

    async fn insert_at_once(&self, rows: Vec<NewRow>) -> Result<AnswersAtOnce<NewRow, Scheduled>, Error> {
        self.bounded(insert_each_at_once(self, rows)).await
    }

    async fn change_at_once(
        &self,
        changes: Vec<Change>,
        history: Duration,
    ) -> Result<AnswersAtOnce<Change, Answer>, Error> {
        self.bounded(change_each_at_once(self, changes, history)).await
    }
}

/// Writes new rows as [`Store::insert`](crate::store::Store::insert) says.
async fn insert_each<V: Verbs>(
    server: &V,
    rows: Vec<NewRow>,
) -> Result<merging::Answers<Scheduled>, sqlx::Error> {
    let now = OnceLock::new();
    let mut batch = at_once(server, rows, &now).await?;
    let meet = |rows, locked| meet(server, rows, locked, &now);
    batch.patiently(server, meet).await?;
    let now = known(server, now).await?;
    Ok(batch.stamped(V::NAME, now))
}

/// The same, but gives back what somebody has locked.
async fn insert_each_at_once<V: Verbs>(
    server: &V,
    rows: Vec<NewRow>,
) -> Result<AnswersAtOnce<NewRow, Scheduled>, sqlx::Error> {
    let now = OnceLock::new();
    let batch = at_once(server, rows, &now).await?;
    let now = known(server, now).await?;
    Ok(batch.stamped_at_once(V::NAME, now))
}

/// Writes new rows, and waits for nobody.
async fn at_once<V: Verbs>(
    server: &V,
    rows: Vec<NewRow>,
    now: &OnceLock<Timestamp>,
) -> Result<Batch<NewRow, Scheduled>, sqlx::Error> {
    let refusals = rows.iter().map(|row| V::refuses(row).map(Err));
    let mut batch = Batch {
        began: server.clock().instant(),
        answers: refusals.collect(),
        rows,
    };

    let sound = batch.places(Option::is_none);
    let size = |place: &usize| size(&batch.rows[*place]);
    let apart = batches(&sound, usize::MAX, STATEMENT, size).map(<[usize]>::to_vec);
    let add = |places: Vec<usize>| add(server, batch.chosen(&places), now);
    let added = by_parts(apart.collect(), V::blame, add).await?;
    batch.answer(&sound, added.into_iter().map(Result::transpose));

    let met = batch.places(Option::is_none);
    if !met.is_empty() {
        let meet = |places: Vec<usize>| meet(server, batch.chosen(&places), Locked::Leave, now);
        let found = by_parts(vec![met.clone()], V::blame, meet).await?;
        batch.answer(&met, found.into_iter().map(Some));
    }
    Ok(batch)
}

/// The time of the first look, or now, if there was none.
async fn known<V: Verbs>(server: &V, first: OnceLock<Timestamp>) -> Result<Timestamp, sqlx::Error> {
    match first.into_inner() {
        Some(now) => Ok(now),
        None => server.now().await,
    }
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
async fn change_each<V: Verbs>(
    server: &V,
    changes: Vec<Change>,
    history: Duration,
) -> Result<merging::Answers<Answer>, sqlx::Error> {
    let now = OnceLock::new();
    let mut batch = changed_at_once(server, changes, history, &now).await?;
    let change = |changes, locked| change(server, changes, history, locked, &now);
    batch.patiently(server, change).await?;
    let now = known(server, now).await?;
    Ok(batch.stamped(V::NAME, now))
}

/// The same, but gives back what somebody has locked.
async fn change_each_at_once<V: Verbs>(
    server: &V,
    changes: Vec<Change>,
    history: Duration,
) -> Result<AnswersAtOnce<Change, Answer>, sqlx::Error> {
    let now = OnceLock::new();
    let batch = changed_at_once(server, changes, history, &now).await?;
    let now = known(server, now).await?;
    Ok(batch.stamped_at_once(V::NAME, now))
}

/// Changes rows, and waits for nobody.
async fn changed_at_once<V: Verbs>(
    server: &V,
    changes: Vec<Change>,
    history: Duration,
    now: &OnceLock<Timestamp>,
) -> Result<Batch<Change, Answer>, sqlx::Error> {
    let mut batch = Batch {
        began: server.clock().instant(),
        answers: changes.iter().map(|_| None).collect(),
        rows: changes,
    };
    let all = batch.places(Option::is_none);
    let change = |places: Vec<usize>| change(server, batch.chosen(&places), history, Locked::Leave, now);
    let found = by_parts(vec![all.clone()], V::blame, change).await?;
    batch.answer(&all, found.into_iter().map(Some));
    Ok(batch)
}

async fn change<V: Verbs>(
    server: &V,
    changes: Vec<Change>,
    history: Duration,
    locked: Locked,
    first: &OnceLock<Timestamp>,
) -> Result<Answers<Answer>, sqlx::Error> {
    let Stamped { now, found } = server.change(&changes, history, locked).await?;
    first.get_or_init(|| now);
    Ok(found)
}

/// A batch, and the answers that there are.
struct Batch<T, A> {
    began: Instant,
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

    /// Asks again for those whose rows were locked, until [`PATIENCE`] has passed.
    ///
    /// Most are locked for a moment only, as by other verbs, and are free soon. Then it waits for them, when its turn
    /// comes: so of all verbs only one waits for rows while it has others, and a row that is not to be had for
    /// [`LOCK_WAIT`], and has not changed, is kept by a stranger. A wait that is given up, also by a caller who goes away,
    /// ends at the server too.
    async fn patiently<V: Verbs, F>(
        &mut self,
        server: &V,
        call: impl Fn(Vec<T>, Locked) -> F,
    ) -> Result<(), sqlx::Error>
    where
        F: Future<Output = Result<Answers<A>, sqlx::Error>>,
    {
        let clock = server.clock();
        let until = self.began + PATIENCE;
        let mut left = self.places(is_locked);
        let asked = async {
            while !left.is_empty() {
                let millis = 1 + clock.random_below(PAUSE);
                clock.sleep(Duration::from_millis(millis)).await;
                let mut has_waited = false;
                if clock.instant() - self.began >= GRACE {
                    match call(self.chosen(&left), Locked::Await).await {
                        Ok(found) => {
                            self.answer(&left, found.into_iter().map(Some));
                            left.retain(|&place| is_locked(&self.answers[place]));
                            continue;
                        }
                        Err(error) => match V::blame(&error) {
                            None => return Err(error),
                            Some(why) => has_waited = matches!(why, Why::Locked(_)),
                        },
                    }
                }
                let before = self.locked_at();
                let leave = |places: Vec<usize>| call(self.chosen(&places), Locked::Leave);
                let found = by_parts(vec![left.clone()], V::blame, leave).await?;
                self.answer(&left, found.into_iter().map(Some));
                let after = self.locked_at();
                left.retain(|place| {
                    let is_a_strangers = has_waited && before.get(place) == after.get(place);
                    after.contains_key(place) && !is_a_strangers
                });
            }
            Ok(())
        };
        let patience = until.saturating_duration_since(clock.instant());
        clock.timeout(patience, asked).await.unwrap_or(Ok(()))
    }

    /// The places of rows that are locked, and the version that each has, where it is known.
    fn locked_at(&self) -> BTreeMap<usize, Option<u64>> {
        let locked = |(place, answer): (usize, &Option<Result<A, Why>>)| match answer {
            Some(Err(Why::Locked(version))) => Some((place, *version)),
            _ => None,
        };
        self.answers.iter().enumerate().filter_map(locked).collect()
    }

    fn stamped_at_once(self, store: &'static str, now: Timestamp) -> AnswersAtOnce<T, A> {
        let answers = self.rows.into_iter().zip(self.answers.into_iter().flatten());
        let found = answers.map(|(row, answer)| match answer {
            Err(Why::Locked(_)) => AtOnce::Locked(row),
            answer => AtOnce::Answered(answer.map_err(|why| why.error(store))),
        });
        Stamped {
            now,
            found: found.collect(),
        }
    }

    fn stamped(self, store: &'static str, now: Timestamp) -> merging::Answers<A> {
        let answers = self.answers.into_iter().flatten();
        let found = answers.map(|answer| answer.map_err(|why| why.error(store)));
        Stamped {
            now,
            found: found.collect(),
        }
    }
}

fn is_locked<A>(answer: &Option<Result<A, Why>>) -> bool {
    matches!(answer, Some(Err(Why::Locked(_))))
}
