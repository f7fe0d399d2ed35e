//! Batches in parts, each of one shard, and what comes back of each row.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use redis::Value;

use super::answer::Items;
use super::database::{Database, Request};
use super::shards::Shard;
use crate::redis::Role;
use crate::{Error, Timestamp};

/// How many rows go into one call, and how many bytes: bounds on how long it keeps the server from others.
pub(super) const ROWS: usize = 50;
const BYTES: usize = 256 << 10;
/// How scripts say of a row that it was not looked at, as they have given enough already.
const LATER: Value = Value::Int(8);
/// How often a row is looked for in the shard that an id points to. More would be a circle that somebody else has made.
const TRIES: usize = 3;

/// What was said of rows, each by itself.
type Rows<A> = Vec<Result<A, Error>>;

/// What came of each row of a batch, in the order given.
pub(super) struct Found<A> {
    /// The earliest time that a server said; none if none of those that were asked has answered.
    pub(super) now: Option<Timestamp>,
    pub(super) rows: Rows<A>,
}

impl<A> Found<A> {
    pub(super) fn none() -> Self {
        Self {
            now: None,
            rows: Vec::new(),
        }
    }

    /// What came of further rows.
    pub(super) fn add(&mut self, other: Self) {
        self.now = [self.now, other.now].into_iter().flatten().min();
        self.rows.extend(other.rows);
    }

    /// An error if no server has answered.
    pub(super) fn answered(self) -> Result<(Option<Timestamp>, Rows<A>), Error> {
        let Self { now, mut rows } = self;
        if now.is_none() && rows.first().is_some_and(Result::is_err) {
            rows.swap_remove(0)?;
        }
        Ok((now, rows))
    }
}

/// Rows of one shard that were asked about: what was said of each, or why not.
struct Told<A> {
    now: Option<Timestamp>,
    answers: Vec<(usize, Result<A, Error>)>,
    /// Those whose rows are elsewhere, and where.
    elsewhere: Vec<(usize, Shard)>,
}

/// Reads what is said of a row.
type Reading<T, A> = dyn Fn(&T, Shard, Value, Timestamp) -> Result<A, Error> + Sync;

/// A script that says something of each row that it is given: how it is called, and how its answers are read.
pub(super) struct Asking<'a, T, A> {
    pub(super) database: &'a Database,
    /// A call on a shard about some rows.
    pub(super) call: &'a (dyn Fn(Shard, &[&T]) -> Request + Sync),
    /// Whether it changes nothing, so that no replica need confirm it.
    pub(super) reads: bool,
    /// How many bytes a row takes in the call.
    pub(super) size: fn(&T) -> usize,
    /// What is said of a row, in which shard, at what time.
    pub(super) read: &'a Reading<T, A>,
}

impl<T: Sync, A: Send> Asking<'_, T, A> {
    /// Asks about each row in its shard, or where that says it is. Those of one shard are asked about in the order given,
    /// and shards side by side: one that cannot be reached is the error of its own rows.
    pub(super) async fn ask(&self, rows: &[T], shard_of: impl Fn(&T) -> Shard) -> Found<A> {
        let mut left = BTreeMap::<Shard, Vec<usize>>::new();
        for (place, row) in rows.iter().enumerate() {
            left.entry(shard_of(row)).or_default().push(place);
        }
        let mut now = None;
        let mut found: Vec<Option<Result<A, Error>>> = rows.iter().map(|_| None).collect();
        for _ in 0..TRIES {
            let calls = left
                .iter()
                .map(|(shard, places)| self.in_shard(*shard, rows, places));
            let told = join_all(calls).await;
            left = BTreeMap::new();
            for told in told {
                now = [now, told.now].into_iter().flatten().min();
                for (place, answer) in told.answers {
                    found[place] = Some(answer);
                }
                for (place, shard) in told.elsewhere {
                    left.entry(shard).or_default().push(place);
                }
            }
            if left.is_empty() {
                break;
            }
        }
        let lost = || Role::Store.error(false, "the id of a row points from shard to shard");
        let rows = found
            .into_iter()
            .map(|found| found.unwrap_or_else(|| Err(lost())));
        Found {
            now,
            rows: rows.collect(),
        }
    }

    async fn in_shard(&self, shard: Shard, rows: &[T], places: &[usize]) -> Told<A> {
        let mut told = Told {
            now: None,
            answers: Vec::with_capacity(places.len()),
            elsewhere: Vec::new(),
        };
        let mut left = places;
        while !left.is_empty() {
            let part = self.first_of(rows, left);
            match self.of_part(shard, rows, part, &mut told).await {
                Ok(count) => left = &left[count..],
                Err(error) => {
                    // What is left would fail the same way.
                    let failed = left.iter().map(|&place| (place, Err(error.once_more())));
                    told.answers.extend(failed);
                    break;
                }
            }
        }
        told
    }

    /// As many as go into one call.
    fn first_of<'p>(&self, rows: &[T], places: &'p [usize]) -> &'p [usize] {
        let mut bytes = 0;
        let fits = |place: &&usize| {
            let fits = bytes < BYTES;
            bytes += (self.size)(&rows[**place]);
            fits
        };
        &places[..places.iter().take(ROWS).take_while(fits).count()]
    }

    /// Asks about one part; says of how many something was said.
    async fn of_part(
        &self,
        shard: Shard,
        rows: &[T],
        part: &[usize],
        told: &mut Told<A>,
    ) -> Result<usize, Error> {
        let meant: Vec<_> = part.iter().map(|&place| &rows[place]).collect();
        let call = (self.call)(shard, &meant);
        let answer = match self.reads {
            true => self.database.read(call).await?,
            false => self.database.write(call).await?,
        };
        told.now = [told.now, Some(answer.now)].into_iter().flatten().min();
        let mut items = Items::of(answer.found)?;
        let mut count = 0;
        for &place in part {
            match items.value()? {
                LATER => break,
                Value::Int(number) if number < 0 => {
                    let shard = Shard::try_from(-1 - number).unwrap_or(Shard::MAX);
                    told.elsewhere.push((place, shard));
                }
                said => {
                    let answer = (self.read)(&rows[place], shard, said, answer.now);
                    told.answers.push((place, answer));
                }
            }
            count += 1;
        }
        match count {
            0 => Err(Role::Store.error(false, "a script answered nothing")),
            count => Ok(count),
        }
    }
}

/// What calls have given where one that failed must not spoil the others: an error only if all have failed.
pub(super) fn those_that_succeeded<T>(results: Vec<Result<T, Error>>) -> Result<Vec<T>, Error> {
    let has_success = results.iter().any(Result::is_ok);
    let mut given = Vec::with_capacity(results.len());
    for result in results {
        match result {
            Ok(one) => given.push(one),
            Err(error) if has_success => {
                tracing::warn!(
                    %error,
                    "a part of the tasks is on a Redis server that does not answer; they wait until it does, and \
                     the others go on"
                )
            }
            Err(error) => return Err(error),
        }
    }
    Ok(given)
}
