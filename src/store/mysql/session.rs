//! One connection, as the shared steps use it.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use sqlx::{MySqlConnection, Row};

use sqlx::mysql::MySqlRow;

use super::codec::{self, Hex};
use super::connections::Lent;
use super::write::Whose;
use super::{Server, errors, read, write};
use crate::store::sql::{Changed, Held, Lock, Locked, Obstacle, Session, Why};
use crate::store::{NewRow, Noted, Stamped, row};
use crate::{Key, Kind, State, Task, TaskId, Timestamp};

/// Whose transaction a step is in.
pub(super) enum Within<'a> {
    /// None: each statement is by itself.
    Nothing,
    /// The store's own, which sees what is committed when each statement begins.
    Own(Locked),
    /// The service's, which may see the rows as they were when it began; and a connection of the store's own, which
    /// sees them as they are.
    Services(Lent<'a>),
}

/// A connection, and what is known of its transaction.
pub(super) struct MySqlSession<'a> {
    pub(super) connection: &'a mut MySqlConnection,
    pub(super) server: &'a Server,
    pub(super) within: Within<'a>,
}

impl MySqlSession<'_> {
    /// The rows of these ids as they are committed; none is locked. Those that make no sense are obstacles.
    async fn seen(&mut self, ids: &BTreeSet<TaskId>, held: &mut Held) -> Result<Vec<Task>, sqlx::Error> {
        let query = read::query(&self.server.sql.by_ids).bind(codec::ids(ids.iter().copied())?);
        let found = query.fetch_all(self.outside()).await?;
        readable(&found, held)
    }

    /// Rows of ids, those locked that are to be.
    ///
    /// A lock on a row that runs would keep its worker from renewing its lease until the transaction ends, and one on a
    /// row that is not there, at `REPEATABLE READ`, others from adding rows; in a service's transaction that may be
    /// long. So rows are looked at before. What the transaction itself has done to a row counts: then it has the row
    /// locked already.
    async fn hold(&mut self, ids: BTreeSet<TaskId>, lock: Lock) -> Result<Held, sqlx::Error> {
        let mut held = Held::default();
        let rows = self.seen(&ids, &mut held).await?;
        let now = self.outside_now().await?;
        // Each with the version at which its lease has ended.
        let mut wanted: BTreeMap<TaskId, Option<u64>> = BTreeMap::new();
        let mut running = BTreeMap::new();
        for row in rows {
            if row::lease_has_ended(&row, now) {
                wanted.insert(row.id, Some(row.version));
            } else if is_changeable(&row) && (lock == Lock::Changeable || self.is_services()) {
                wanted.insert(row.id, None);
            } else {
                if row.state == State::Running {
                    running.insert(row.id, row.version);
                }
                held.seen.push(row);
            }
        }
        if self.is_services() {
            let sql = &self.server.sql.look;
            let inside = read::look(self.connection, sql, ids.iter().copied()).await?;
            for (id, (_, row, _)) in inside.rows {
                // What it sees of rows that run may be older.
                if running.get(&id).is_none_or(|version| row.wake.version > *version) {
                    wanted.entry(id).or_insert(None);
                    held.seen.retain(|seen| seen.id != id);
                }
            }
        }
        for obstacle in &held.obstacles {
            wanted.remove(&obstacle.id);
        }
        if !wanted.is_empty() {
            self.lock(wanted, &mut held).await?;
        }
        Ok(held)
    }

    /// Locks rows, and looks again at those that could not be.
    async fn lock(
        &mut self,
        wanted: BTreeMap<TaskId, Option<u64>>,
        held: &mut Held,
    ) -> Result<(), sqlx::Error> {
        let sql = &self.server.sql;
        let statement = match self.within {
            Within::Own(Locked::Leave) => &sql.held_unlocked,
            _ => &sql.held,
        };
        let values: Vec<_> = wanted.iter().map(|(&id, ended)| (Hex(id), ended)).collect();
        let query = read::query(statement).bind(codec::json(&values)?);
        let found = query.fetch_all(&mut *self.connection).await?;
        let mut rows = readable(&found, held)?;
        let mut missed: BTreeSet<_> = wanted.into_keys().collect();
        for row in &rows {
            missed.remove(&row.id);
        }
        for obstacle in &held.obstacles {
            missed.remove(&obstacle.id);
        }
        // Nobody renews them any more.
        read::add_leases(self.outside(), sql, &mut rows).await?;
        let now = self.outside_now().await?;
        for row in rows {
            if row.state == State::Running && !row::lease_has_ended(&row, now) {
                held.seen.push(row);
            } else {
                held.locked.push(row);
            }
        }
        if missed.is_empty() {
            return Ok(());
        }
        // Somebody has them locked, or has just changed them.
        let rows = self.seen(&missed, held).await?;
        let now = self.outside_now().await?;
        for row in rows {
            if is_changeable(&row) || row::lease_has_ended(&row, now) {
                held.obstacles.push(Obstacle {
                    id: row.id,
                    key: None,
                    why: Why::Locked(Some(row.version)),
                });
            } else {
                held.seen.push(row);
            }
        }
        Ok(())
    }

    async fn outside_now(&mut self) -> Result<Timestamp, sqlx::Error> {
        let sql = &self.server.sql;
        read::now(self.outside(), sql).await
    }

    fn is_services(&self) -> bool {
        matches!(self.within, Within::Services(_))
    }

    /// Ends it after success.
    pub(super) fn give_back(self) {
        if let Within::Services(outside) = self.within {
            outside.give_back();
        }
    }

    /// The connection that sees what is committed.
    fn outside(&mut self) -> &mut MySqlConnection {
        match &mut self.within {
            Within::Nothing | Within::Own(_) => self.connection,
            Within::Services(outside) => outside,
        }
    }

    /// The ids of the live and the newest rows of these kinds and keys, committed or the transaction's own.
    async fn ids_of_keys(
        &mut self,
        keys: &BTreeSet<(Kind, Key)>,
    ) -> Result<Vec<[Option<TaskId>; 2]>, sqlx::Error> {
        let sql = &self.server.sql;
        let mut ids = read::ids_of_keys(self.connection, sql, keys).await?;
        if let Within::Services(outside) = &mut self.within {
            ids.extend(read::ids_of_keys(outside, sql, keys).await?);
        }
        Ok(ids)
    }

    /// Whether any of these ids or live keys is there. In a service's transaction it is asked before, for an insert that
    /// fails leaves a lock on what was in its way.
    async fn is_any_there(&mut self, rows: &[NewRow]) -> Result<bool, sqlx::Error> {
        let ids = || rows.iter().map(|row| row.id);
        let keys = rows
            .iter()
            .filter_map(|row| Some((row.kind.clone(), row.key.clone()?)));
        let keys: BTreeSet<_> = keys.collect();
        let sql = &self.server.sql;
        let mut is_there = !read::look(self.connection, &sql.look, ids())
            .await?
            .rows
            .is_empty();
        is_there = is_there
            || !read::look(self.outside(), &sql.look, ids())
                .await?
                .rows
                .is_empty();
        if !is_there && !keys.is_empty() {
            is_there = self
                .ids_of_keys(&keys)
                .await?
                .iter()
                .any(|[live, _]| live.is_some());
        }
        Ok(is_there)
    }
}

#[async_trait]
impl Session for MySqlSession<'_> {
    async fn now(&mut self) -> Result<Timestamp, sqlx::Error> {
        read::now(self.connection, &self.server.sql).await
    }

    async fn rows_of_ids(&mut self, ids: BTreeSet<TaskId>, lock: Lock) -> Result<Held, sqlx::Error> {
        self.hold(ids, lock).await
    }

    async fn rows_of_keys(&mut self, keys: BTreeSet<(Kind, Key)>, lock: Lock) -> Result<Held, sqlx::Error> {
        let found = self.ids_of_keys(&keys).await?;
        // A service's transaction is asked twice.
        let of_key: BTreeMap<_, _> = keys
            .iter()
            .cycle()
            .zip(&found)
            .flat_map(|(key, ids)| ids.iter().flatten().map(move |id| (*id, key.clone())))
            .collect();
        let mut held = self.hold(of_key.keys().copied().collect(), lock).await?;
        for obstacle in &mut held.obstacles {
            obstacle.key = of_key.get(&obstacle.id).cloned();
        }
        Ok(held)
    }

    async fn add(
        &mut self,
        rows: &[NewRow],
        now: Option<Timestamp>,
    ) -> Result<Stamped<BTreeSet<TaskId>>, sqlx::Error> {
        // Later ones have been decided by rows that were looked at and locked.
        let is_first = now.is_none();
        let now = match now {
            Some(now) => now,
            None => self.now().await?,
        };
        if is_first
            && let Within::Services(_) = self.within
            && self.is_any_there(rows).await?
        {
            let found = BTreeSet::new();
            return Ok(Stamped { now, found });
        }
        // Outside of a transaction also a deadlock undoes the statement alone; and who was left out is looked at next.
        let is_pardoned: fn(&sqlx::Error) -> bool = match self.within {
            Within::Nothing => errors::is_crossed,
            Within::Own(_) | Within::Services(_) => errors::is_duplicate,
        };
        let whose = match self.within {
            Within::Nothing => Whose::Nobodys,
            Within::Own(_) => Whose::Own,
            Within::Services(_) => Whose::Services,
        };
        let found = write::add(self.connection, self.server, rows, now, whose, is_pardoned).await?;
        Ok(Stamped { now, found })
    }

    async fn write(&mut self, rows: &[Changed]) -> Result<u64, sqlx::Error> {
        write::write(self.connection, &self.server.sql, rows).await
    }

    async fn note(&mut self, rows: &[(TaskId, Noted)]) -> Result<(), sqlx::Error> {
        write::note(self.connection, &self.server.sql, rows).await
    }

    async fn refill(&mut self, row: &Task) -> Result<(), sqlx::Error> {
        write::refill(self.connection, &self.server.sql, row).await
    }
}

/// Whether a verb may change it.
fn is_changeable(row: &Task) -> bool {
    matches!(row.state, State::Scheduled | State::Dead)
}

/// The rows that make sense; the others are obstacles.
fn readable(found: &[MySqlRow], held: &mut Held) -> Result<Vec<Task>, sqlx::Error> {
    let mut rows = Vec::with_capacity(found.len());
    for row in found {
        match codec::task(row) {
            Ok(task) => rows.push(task),
            Err(error) => held.obstacles.push(Obstacle {
                id: codec::id(row, 0)?,
                key: None,
                why: match row.try_get(3) {
                    Ok(0_u8 | 1) | Err(_) => Why::Garbled(error.to_string()),
                    Ok(_) => Why::GarbledPast(error.to_string()),
                },
            }),
        }
    }
    Ok(rows)
}
