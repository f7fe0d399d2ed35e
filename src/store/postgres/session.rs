//! One connection, as the shared steps use it.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::connections::{Database, fetch};
use super::read::Query;
use super::sql::hold::{HELD, SEEN};
use super::{codec, read};
use crate::store::sql::{Changed, Held, Lock, Locked, Obstacle, STATEMENT, Session, Why, batches, size};
use crate::store::{NewRow, Noted, Stamped, When, row};
use crate::timestamp::millis;
use crate::{Key, Kind, State, Task, TaskId, Timestamp, defaults};

/// Whose transaction a connection is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// The store's, or none.
    Own(Locked),
    /// The service's, which may see leases as they were when it began, and keeps its locks until it ends.
    Services,
}

/// A connection, and what is known of its transaction.
pub(super) struct PostgresSession<'a> {
    connection: &'a mut PgConnection,
    database: &'a Database,
    whose: Whose,
}

impl<'a> PostgresSession<'a> {
    pub(super) fn new(connection: &'a mut PgConnection, database: &'a Database, whose: Whose) -> Self {
        Self {
            connection,
            database,
            whose,
        }
    }

    /// Tells the listeners, when the transaction commits, if one of these rows is due soon.
    pub(super) async fn notify<'t>(
        &mut self,
        now: Timestamp,
        mut scheduled: impl Iterator<Item = &'t Task>,
    ) -> Result<(), sqlx::Error> {
        let Some(channel) = &self.database.channel else {
            return Ok(());
        };
        let soon = now.after(defaults::LOOK_AHEAD);
        if scheduled.any(|task| task.due_at <= soon) {
            let statements = &self.database.statements;
            let notify = statements.query(&statements.notify).bind(channel);
            notify.execute(&mut *self.connection).await?;
        }
        Ok(())
    }

    /// Rows of a statement that holds them but for those that it is told to except. `keys` are those that it asks for, if
    /// it does.
    async fn hold(
        &mut self,
        ask: impl Fn(&BTreeSet<TaskId>) -> Query<'static>,
        keys: &[(Kind, Key)],
    ) -> Result<Held, sqlx::Error> {
        let mut renewed = BTreeMap::new();
        let mut is_first = true;
        loop {
            self.mark("SAVEPOINT delayline").await?;
            let except = renewed.keys().copied().collect();
            let rows = ask(&except).fetch_all(&mut *self.connection).await?;
            let mut held = Held::default();
            let mut missed = 0;
            for row in &rows {
                let id = codec::id(row, 2)?;
                let why = match (row.try_get(0)?, codec::task(row, 2)) {
                    (HELD, Ok(task)) => {
                        held.locked.push(task);
                        continue;
                    }
                    (SEEN, Ok(task)) => {
                        held.seen.push(renewed.remove(&task.id).unwrap_or(task));
                        continue;
                    }
                    (HELD | SEEN, Err(error)) => match row.try_get(5) {
                        Ok(0_i16 | 1) | Err(_) => Why::Garbled(error.to_string()),
                        Ok(_) => Why::GarbledPast(error.to_string()),
                    },
                    (_, task) => {
                        missed += 1;
                        Why::Locked(task.ok().map(|task| task.version))
                    }
                };
                let place = usize::try_from(row.try_get::<i64, _>(1)?).unwrap_or_default();
                let key = place.checked_sub(1).and_then(|place| keys.get(place)).cloned();
                held.obstacles.push(Obstacle { id, key, why });
            }
            // Either somebody has them locked, or has just changed them: then they may be another's to lock.
            let is_changed = missed > 0 && (is_first || self.whose != Whose::Own(Locked::Leave));
            is_first = false;
            if !is_changed && self.sort_out(&mut held, &mut renewed).await? {
                self.mark("RELEASE SAVEPOINT delayline").await?;
                return Ok(held);
            }
            self.mark("ROLLBACK TO SAVEPOINT delayline; RELEASE SAVEPOINT delayline")
                .await?;
        }
    }

    /// Of the rows that are locked because their lease has ended, sorts out those that were renewed before they were
    /// locked: the statement that has locked them may have looked before, and nobody renews them now. Says whether there
    /// is none that must not stay locked.
    async fn sort_out(
        &mut self,
        held: &mut Held,
        renewed: &mut BTreeMap<TaskId, Task>,
    ) -> Result<bool, sqlx::Error> {
        let (running, locked): (Vec<_>, Vec<_>) = std::mem::take(&mut held.locked)
            .into_iter()
            .partition(|row| row.state == State::Running);
        held.locked = locked;
        if running.is_empty() {
            return Ok(true);
        }
        let ids = running.iter().map(|row| row.id);
        let statements = &self.database.statements;
        let query = read::by_ids(statements.query(&statements.by_ids), ids);
        let (rows, now) = match self.whose {
            Whose::Own(_) => (query.fetch_all(&mut *self.connection).await?, self.now().await?),
            Whose::Services => (
                fetch(&self.database.workers, query).await?,
                read::now(self.database).await?,
            ),
        };
        let mut is_fine = true;
        for row in &rows {
            let row = codec::task(row, 0)?;
            if row::lease_has_ended(&row, now) {
                held.locked.push(row);
            } else if self.whose == Whose::Services {
                renewed.insert(row.id, row);
                is_fine = false;
            } else {
                // The transaction ends at once.
                held.seen.push(row);
            }
        }
        Ok(is_fine)
    }

    /// Marks a place in a service's transaction, so that what must not stay locked can be let go.
    async fn mark(&mut self, mark: &'static str) -> Result<(), sqlx::Error> {
        if self.whose == Whose::Services {
            sqlx::raw_sql(mark).execute(&mut *self.connection).await?;
        }
        Ok(())
    }

    async fn add_sorted(
        &mut self,
        rows: &[&NewRow],
        now: Option<Timestamp>,
    ) -> Result<Stamped<BTreeSet<TaskId>>, sqlx::Error> {
        let mut columns = Columns::default();
        for row in rows {
            columns.push(row)?;
        }
        let row = self
            .database
            .statements
            .query(&self.database.statements.add)
            .bind(now.map(Timestamp::as_millis))
            .bind(&self.database.channel)
            .bind(millis(defaults::LOOK_AHEAD))
            .bind(columns.ids)
            .bind(columns.kinds)
            .bind(columns.keys)
            .bind(columns.due_in)
            .bind(columns.due_at)
            .bind(columns.look_in)
            .bind(columns.max_attempts)
            .bind(columns.headers)
            .bind(columns.payloads)
            .bind(columns.notes)
            .bind(columns.sent)
            .fetch_one(&mut *self.connection)
            .await?;
        let now = Timestamp::from_millis(row.try_get(0)?);
        let found = match row.try_get::<Option<Vec<Uuid>>, _>(1)? {
            Some(some) => some.into_iter().map(TaskId::from).collect(),
            None => rows.iter().map(|row| row.id).collect(),
        };
        Ok(Stamped { now, found })
    }
}

#[async_trait]
impl Session for PostgresSession<'_> {
    async fn now(&mut self) -> Result<Timestamp, sqlx::Error> {
        read::time(self.connection, &self.database.statements).await
    }

    async fn rows_of_ids(&mut self, ids: BTreeSet<TaskId>, lock: Lock) -> Result<Held, sqlx::Error> {
        let statements = &self.database.statements;
        let statement = match self.whose {
            Whose::Own(Locked::Leave) => &statements.hold_ids,
            _ => &statements.await_ids,
        };
        let ask = |except: &BTreeSet<TaskId>| {
            read::by_ids(statements.query(statement), ids.iter().copied())
                .bind(codec::uuids(except.iter().copied()))
                .bind(lock == Lock::Changeable)
        };
        self.hold(ask, &[]).await
    }

    async fn rows_of_keys(&mut self, keys: BTreeSet<(Kind, Key)>, lock: Lock) -> Result<Held, sqlx::Error> {
        let statements = &self.database.statements;
        let statement = match self.whose {
            Whose::Own(Locked::Leave) => &statements.hold_keys,
            _ => &statements.await_keys,
        };
        let keys: Vec<_> = keys.into_iter().collect();
        let ask = |except: &BTreeSet<TaskId>| {
            let pairs = keys.iter().map(|(kind, key)| (kind, key));
            read::by_keys(statements.query(statement), pairs)
                .bind(codec::uuids(except.iter().copied()))
                .bind(lock == Lock::Changeable)
        };
        self.hold(ask, &keys).await
    }

    async fn add(
        &mut self,
        rows: &[NewRow],
        now: Option<Timestamp>,
    ) -> Result<Stamped<BTreeSet<TaskId>>, sqlx::Error> {
        let mut rows: Vec<_> = rows.iter().collect();
        let ids: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
        // In the order of their keys two batches that meet wait for one another, in any other they would end in a
        // deadlock. Of twins the first counts, so those of an id have to stay in their order.
        if ids.len() == rows.len() {
            rows.sort_by_key(|row| (&row.kind, &row.key));
        }
        let mut now = now;
        let mut added = BTreeSet::new();
        for rows in batches(&rows, usize::MAX, STATEMENT, |row| size(row)) {
            let Stamped { now: at, found } = self.add_sorted(rows, now).await?;
            // All are of one moment.
            now = Some(at);
            added.extend(found);
        }
        let now = match now {
            Some(now) => now,
            None => self.now().await?,
        };
        Ok(Stamped { now, found: added })
    }

    async fn write(&mut self, rows: &[Changed]) -> Result<u64, sqlx::Error> {
        fn column<T>(rows: &[Changed], of: impl Fn(&Task) -> T) -> Vec<T> {
            rows.iter().map(|(_, row)| of(row)).collect()
        }
        let read_at = rows
            .iter()
            .map(|(before, _)| codec::stored_version(before.version));
        let error = |row: &Task| row.last_error.as_deref().map(codec::text);
        let query = self
            .database
            .statements
            .query(&self.database.statements.write)
            .bind(column(rows, |row| codec::uuid(row.id)))
            .bind(read_at.collect::<Vec<_>>())
            .bind(column(rows, |row| codec::number(row.state)))
            .bind(column(rows, |row| codec::stored_version(row.version)))
            .bind(column(rows, |row| row.due_at.as_millis()))
            .bind(column(rows, |row| row.planned_at.as_millis()))
            .bind(column(rows, |row| i64::from(row.attempt)))
            .bind(column(rows, |row| i64::from(row.stalls)))
            .bind(column(rows, |row| i64::from(row.hop)))
            .bind(column(rows, |row| row.updated_at.as_millis()))
            .bind(column(rows, |row| row.wake_at.map(Timestamp::as_millis)))
            .bind(column(rows, |row| row.finished_at.map(Timestamp::as_millis)))
            .bind(column(rows, error));
        Ok(query.execute(&mut *self.connection).await?.rows_affected())
    }

    async fn note(&mut self, rows: &[(TaskId, Noted)]) -> Result<(), sqlx::Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let (histories, sent): (Vec<_>, Vec<_>) = rows
            .iter()
            .map(|(_, noted)| (noted.history.as_str(), noted.sent.as_deref()))
            .unzip();
        let query = self
            .database
            .statements
            .query(&self.database.statements.note)
            .bind(codec::uuids(rows.iter().map(|(id, _)| *id)))
            .bind(histories)
            .bind(sent);
        query.execute(&mut *self.connection).await?;
        Ok(())
    }

    async fn refill(&mut self, row: &Task) -> Result<(), sqlx::Error> {
        let query = self
            .database
            .statements
            .query(&self.database.statements.refill)
            .bind(codec::uuid(row.id))
            .bind(&row.payload)
            .bind(codec::headers(&row.headers)?)
            .bind(row.max_attempts.map(i64::from));
        query.execute(&mut *self.connection).await?;
        Ok(())
    }
}

/// New rows, column by column.
#[derive(Default)]
struct Columns<'r> {
    ids: Vec<Uuid>,
    kinds: Vec<&'r str>,
    keys: Vec<Option<&'r str>>,
    due_in: Vec<Option<i64>>,
    due_at: Vec<Option<i64>>,
    look_in: Vec<i64>,
    max_attempts: Vec<Option<i64>>,
    headers: Vec<String>,
    payloads: Vec<&'r [u8]>,
    notes: Vec<Option<&'r str>>,
    sent: Vec<Option<&'r str>>,
}

impl<'r> Columns<'r> {
    fn push(&mut self, row: &'r NewRow) -> Result<(), sqlx::Error> {
        let (due_in, due_at) = match row.due {
            When::After(delay) => (Some(codec::span(delay)), None),
            When::At(time) => (None, Some(time.as_millis())),
        };
        self.ids.push(codec::uuid(row.id));
        self.kinds.push(row.kind.as_str());
        self.keys.push(row.key.as_ref().map(Key::as_str));
        self.due_in.push(due_in);
        self.due_at.push(due_at);
        self.look_in.push(codec::span(row.look_in));
        self.max_attempts.push(row.max_attempts.map(i64::from));
        self.headers.push(codec::headers(&row.headers)?);
        self.payloads.push(&row.payload);
        self.notes.push(row.note.event.as_deref());
        self.sent.push(row.note.sent.as_deref());
        Ok(())
    }
}
