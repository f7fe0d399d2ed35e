//! Batches of rows as statements take them: column by column.

use sqlx::SqlStr;
use uuid::Uuid;

use super::codec::{Query, span, text, uuid, version};
use super::connections::Database;
use crate::store::sql::{clip, codec};
use crate::store::table::Write;
use crate::store::{NewRow, When};
use crate::task::timestamp::millis;
use crate::{Key, State, Timestamp, defaults};

/// New rows.
pub(super) struct NewRows<'r> {
    ids: Vec<Uuid>,
    kinds: Vec<&'r str>,
    keys: Vec<Option<&'r str>>,
    due_in: Vec<Option<i64>>,
    due_at: Vec<Option<i64>>,
    look_in: Vec<i64>,
    max_attempts: Vec<Option<i64>>,
    headers: Vec<String>,
    payloads: Vec<&'r [u8]>,
    notes: Vec<Option<String>>,
    sent: Vec<Option<String>>,
}

impl<'r> NewRows<'r> {
    pub(super) fn of(rows: &[&'r NewRow]) -> Result<Self, sqlx::Error> {
        fn column<'r, T>(rows: &[&'r NewRow], of: impl Fn(&'r NewRow) -> T) -> Vec<T> {
            rows.iter().map(|row| of(row)).collect()
        }
        let headers = rows.iter().map(|row| codec::headers(&row.headers));
        Ok(Self {
            ids: column(rows, |row| uuid(row.id)),
            kinds: column(rows, |row| row.kind.as_str()),
            keys: column(rows, |row| row.key.as_ref().map(Key::as_str)),
            due_in: column(rows, |row| match row.due {
                When::After(delay) => Some(span(delay)),
                When::At(_) => None,
            }),
            due_at: column(rows, |row| match row.due {
                When::After(_) => None,
                When::At(time) => Some(time.as_millis()),
            }),
            look_in: column(rows, |row| span(row.look_in)),
            max_attempts: column(rows, |row| row.max_attempts.map(i64::from)),
            headers: headers.collect::<Result<_, _>>()?,
            payloads: column(rows, |row| row.payload.as_slice()),
            notes: column(rows, |row| row.note.event.as_deref().map(text)),
            sent: column(rows, |row| row.note.sent.as_deref().map(text)),
        })
    }

    /// The statement that writes them at a time, or else now.
    pub(super) fn query<'q>(&'q self, database: &'q Database, now: Option<Timestamp>) -> Query<'q> {
        sqlx::query(database.statements.add.clone())
            .bind(now.map(Timestamp::as_millis))
            .bind(database.channel.as_deref())
            .bind(millis(defaults::LOOK_AHEAD))
            .bind(&*self.ids)
            .bind(&*self.kinds)
            .bind(&*self.keys)
            .bind(&*self.due_in)
            .bind(&*self.due_at)
            .bind(&*self.look_in)
            .bind(&*self.max_attempts)
            .bind(&*self.headers)
            .bind(&*self.payloads)
            .bind(&*self.notes)
            .bind(&*self.sent)
    }
}

/// What has become of rows.
pub(super) struct Writes<'w> {
    writes: &'w [&'w Write],
    headers: Vec<Option<String>>,
    /// Whether one of them is scheduled, and due soon.
    is_soon: bool,
}

impl<'w> Writes<'w> {
    pub(super) fn of(writes: &'w [&'w Write]) -> Result<Self, sqlx::Error> {
        let headers = |write: &&Write| {
            write
                .refill
                .then(|| codec::headers(&write.row.headers))
                .transpose()
        };
        let is_soon = |write: &&Write| {
            let soon = write.row.updated_at.after(defaults::LOOK_AHEAD);
            write.row.state == State::Scheduled && write.row.due_at <= soon
        };
        Ok(Self {
            writes,
            headers: writes.iter().map(headers).collect::<Result<_, _>>()?,
            is_soon: writes.iter().any(is_soon),
        })
    }

    fn column<T>(&self, of: impl Fn(&'w Write) -> T) -> Vec<T> {
        self.writes.iter().map(|write| of(write)).collect()
    }

    /// The statement that writes them, and tells a channel of what is due soon.
    pub(super) fn query<'q>(&'q self, statement: &SqlStr, channel: Option<&'q str>) -> Query<'q> {
        let time = |time: Option<Timestamp>| time.map(Timestamp::as_millis);
        let owner = |write: &Write| write.row.owner.as_deref().map(text);
        let error = |write: &Write| write.row.last_error.as_deref().map(|error| text(clip(error)));
        let most = |write: &Write| write.row.max_attempts.map(i64::from);
        sqlx::query(statement.clone())
            .bind(self.column(|write| uuid(write.row.id)))
            .bind(self.column(|write| version(write.before.version)))
            .bind(self.column(|write| time(write.wake_at())))
            .bind(self.column(|write| codec::number(write.row.state)))
            .bind(self.column(|write| version(write.row.version)))
            .bind(self.column(|write| write.row.due_at.as_millis()))
            .bind(self.column(|write| write.row.planned_at.as_millis()))
            .bind(self.column(|write| time(write.row.wake_at)))
            .bind(self.column(|write| i64::from(write.row.attempt)))
            .bind(self.column(|write| write.row.started))
            .bind(self.column(|write| i64::from(write.row.stalls)))
            .bind(self.column(|write| i64::from(write.row.hop)))
            .bind(self.column(|write| write.row.updated_at.as_millis()))
            .bind(self.column(|write| time(write.row.finished_at)))
            .bind(self.column(owner))
            .bind(self.column(error))
            .bind(self.column(|write| text(&write.noted.history)))
            .bind(self.column(|write| write.noted.sent.as_deref().map(text)))
            .bind(self.column(most))
            .bind(&*self.headers)
            .bind(self.column(|write| write.refill.then_some(write.row.payload.as_slice())))
            .bind(channel.filter(|_| self.is_soon))
    }

    /// The statement that tells which of them are as they were, though they were not written.
    pub(super) fn same<'q>(&self, database: &Database) -> Query<'q> {
        sqlx::query(database.statements.same.clone())
            .bind(self.column(|write| uuid(write.row.id)))
            .bind(self.column(|write| version(write.before.version)))
            .bind(self.column(|write| write.wake_at().map(Timestamp::as_millis)))
    }
}
