//! One connection, as the shared steps use it.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use sqlx::MySqlConnection;

use super::connections::Lent;
use super::write::Whose;
use super::{Server, errors, read, write};
use crate::store::sql::{Changed, Session};
use crate::store::{NewRow, Stamped};
use crate::{Key, Kind, State, Task, TaskId, Timestamp};

/// Whose transaction a step is in.
pub(super) enum Within<'a> {
    /// None: each statement is by itself.
    Nothing,
    /// The store's own, which sees what is committed when each statement begins.
    Own,
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

/// What is there of some ids.
#[derive(Default)]
struct There {
    running: Vec<Task>,
    others: BTreeSet<TaskId>,
}

impl MySqlSession<'_> {
    /// Which of these rows run, and which others there are; none is locked.
    ///
    /// A lock on a row that runs would keep its worker from renewing its lease until the transaction ends, and one on a
    /// row that is not there, at `REPEATABLE READ`, others from adding rows; in a service's transaction that may be
    /// long. What the transaction itself has done to a row counts: then it has the row locked already.
    async fn look(&mut self, ids: &BTreeSet<TaskId>) -> Result<There, sqlx::Error> {
        let sql = &self.server.sql;
        let look = read::look(self.outside(), &sql.look, ids.iter().copied()).await?;
        let mut there = There::default();
        let mut running = BTreeMap::new();
        for (id, (state, row)) in look.rows {
            if state == State::Running {
                running.insert(id, row.wake.version);
            } else {
                there.others.insert(id);
            }
        }
        if let Within::Services(_) = self.within {
            let inside = read::look(self.connection, &sql.look, ids.iter().copied()).await?;
            for (id, (_, row)) in inside.rows {
                match running.get(&id) {
                    Some(version) if row.wake.version <= *version => {}
                    _ => {
                        running.remove(&id);
                        there.others.insert(id);
                    }
                }
            }
        }
        if !running.is_empty() {
            let ids: Vec<_> = running.into_keys().collect();
            let read = read::by_ids(self.outside(), &sql.by_ids, ids).await?;
            for row in read.rows {
                if row.state == State::Running {
                    there.running.push(row);
                } else {
                    there.others.insert(row.id);
                }
            }
        }
        Ok(there)
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
            Within::Nothing | Within::Own => self.connection,
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

    async fn rows_of_ids(&mut self, ids: BTreeSet<TaskId>) -> Result<Vec<Task>, sqlx::Error> {
        let There { running, others } = self.look(&ids).await?;
        let mut rows = running;
        if !others.is_empty() {
            let locked = read::by_ids(self.connection, &self.server.sql.by_ids_locked, others).await?;
            rows.extend(locked.rows);
        }
        Ok(rows)
    }

    async fn rows_of_keys(&mut self, keys: BTreeSet<(Kind, Key)>) -> Result<Vec<Task>, sqlx::Error> {
        let ids = self.ids_of_keys(&keys).await?;
        self.rows_of_ids(ids.into_iter().flatten().flatten().collect())
            .await
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
            Within::Own | Within::Services(_) => errors::is_duplicate,
        };
        let whose = match self.within {
            Within::Nothing | Within::Own => Whose::Own,
            Within::Services(_) => Whose::Services,
        };
        let found = write::add(self.connection, self.server, rows, now, whose, is_pardoned).await?;
        Ok(Stamped { now, found })
    }

    async fn write(&mut self, rows: &[Changed]) -> Result<u64, sqlx::Error> {
        write::write(self.connection, &self.server.sql, rows).await
    }

    async fn refill(&mut self, row: &Task) -> Result<(), sqlx::Error> {
        write::refill(self.connection, &self.server.sql, row).await
    }
}
