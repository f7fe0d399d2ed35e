//! Looks at every kind for what is overdue and what comes up.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row};

use super::sql::part;
use super::{Server, codec, read};
use crate::backend::Wake;
use crate::store::{Ahead, Pending};
use crate::{Kind, Timestamp};

/// The latest due time that there is, and so the longest time to look ahead.
const LONGEST: i64 = Timestamp::MAX.as_millis();

/// The kinds that were there at the last look; only a guess for the next one, which finds those that it lacks.
#[derive(Default)]
pub(super) struct Known(Mutex<BTreeSet<Name>>);

/// A kind as the column has it, which may have been edited by hand into what is no text.
pub(super) type Name = Vec<u8>;

impl Known {
    pub(super) fn get(&self) -> BTreeSet<Name> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, kinds: BTreeSet<Name>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = kinds;
    }
}

/// What a look at every kind found, at a time.
pub(super) struct Lanes {
    /// When it began.
    pub(super) now: Timestamp,
    /// Rows whose `wake_at` has passed, of the first and of the second state, by kind and the longest ago first.
    /// Each with the length of its payload.
    pub(super) overdue: [Vec<(Pending, usize)>; 2],
    /// Scheduled rows that become due, the earliest first.
    pub(super) ahead: Vec<Pending>,
}

/// What to look for.
#[derive(Clone, Copy)]
pub(super) enum What {
    /// Overdue rows that are scheduled, and that run; and what comes up.
    Live(Option<Ahead>),
    /// History that is over: done, and cancelled.
    Past,
}

/// Looks at every kind, for up to `limit` overdue rows of each and of each state. It is one statement, unless a kind has
/// come to light, or there are very many.
///
/// `expected` are kinds that there may well be.
pub(super) async fn look<'k>(
    connection: &mut MySqlConnection,
    server: &Server,
    what: What,
    limit: usize,
    expected: impl IntoIterator<Item = &'k Kind>,
) -> Result<Lanes, sqlx::Error> {
    let known = match what {
        What::Live(_) => &server.live,
        What::Past => &server.past,
    };
    // Before every kind comes the one that is not there.
    let mut to_ask = known.get();
    to_ask.extend(expected.into_iter().map(|kind| kind.as_str().into()));
    to_ask.insert(Name::new());
    let (mut asked, mut there) = (BTreeSet::new(), BTreeSet::new());
    let mut found: Option<Lanes> = None;
    while !to_ask.is_empty() {
        let kinds: Vec<_> = to_ask.iter().cloned().collect();
        asked.append(&mut to_ask);
        let mut rest = &kinds[..];
        while !rest.is_empty() {
            let now = ask(connection, server, what, limit, &mut rest, &mut found).await?;
            there.extend(now);
        }
        to_ask.extend(there.difference(&asked).cloned());
    }
    known.set(there);
    let mut lanes = found.ok_or(sqlx::Error::RowNotFound)?;
    for overdue in &mut lanes.overdue {
        // Of each kind they are in the right order already.
        overdue.sort_by(|(one, _), (other, _)| one.wake.kind.cmp(&other.wake.kind));
    }
    if let What::Live(Some(ahead)) = what {
        lanes.ahead.sort_by_key(|row| (row.due_at, row.wake.id));
        lanes.ahead.truncate(ahead.limit);
    }
    Ok(lanes)
}

/// Asks by one statement for as many of the kinds as it takes; adds what it finds, and gives the kinds that are there.
async fn ask(
    connection: &mut MySqlConnection,
    server: &Server,
    what: What,
    limit: usize,
    kinds: &mut &[Name],
    found: &mut Option<Lanes>,
) -> Result<Vec<Name>, sqlx::Error> {
    let (sql, width) = match what {
        What::Live(_) => server.sql.live(kinds.len()),
        What::Past => server.sql.past(kinds.len()),
    };
    let (now, later) = kinds.split_at(width.min(kinds.len()));
    *kinds = later;
    let mut query = read::query(&sql);
    for place in 0..width {
        let kind = now.get(place).map_or(&[][..], Vec::as_slice);
        for _ in 0..2 {
            query = query
                .bind(kind.to_vec())
                .bind(kind.to_vec())
                .bind(codec::limit(limit));
        }
        if let What::Live(ahead) = what {
            let (within, limit) = ahead.map_or((0, 0), |ahead| {
                let within = crate::timestamp::millis(ahead.within).min(LONGEST);
                (within, codec::limit(ahead.limit))
            });
            query = query.bind(kind.to_vec()).bind(within).bind(limit);
        }
    }
    if let What::Live(_) = what {
        query = query.bind(codec::limit(limit));
    }
    let rows = query.fetch_all(connection).await?;
    let mut there = Vec::new();
    for row in &rows {
        match row.try_get(0)? {
            part::NOW => {
                let now = codec::time(row, 4)?;
                found.get_or_insert_with(|| Lanes {
                    now,
                    overdue: Default::default(),
                    ahead: Vec::new(),
                });
            }
            part::KIND => there.push(row.try_get(1)?),
            part => {
                let Some(lanes) = found.as_mut() else { continue };
                let pending = match pending(row) {
                    Ok(pending) => pending,
                    Err(error) => {
                        read::left_alone(row, 2, &error);
                        continue;
                    }
                };
                match part {
                    part::AHEAD => lanes.ahead.push(pending),
                    part if part == part::OVERDUE[0] => lanes.overdue[0].push((pending, size(row)?)),
                    _ => lanes.overdue[1].push((pending, size(row)?)),
                }
            }
        }
    }
    Ok(there)
}

fn size(row: &MySqlRow) -> Result<usize, sqlx::Error> {
    let size: i64 = row.try_get(7)?;
    Ok(usize::try_from(size).unwrap_or_default())
}

fn pending(row: &MySqlRow) -> Result<Pending, sqlx::Error> {
    let wake = Wake {
        id: codec::id(row, 2)?,
        kind: codec::kind(row, 1)?,
        version: row.try_get::<i64, _>(3)?.cast_unsigned(),
    };
    Ok(Pending {
        wake,
        key: codec::key(row, 5)?,
        due_at: codec::time(row, 4)?,
        planned_at: codec::time(row, 6)?,
    })
}
