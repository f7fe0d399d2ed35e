//! Claims rows that are due: looks for them without a lock, then locks them, chooses by the rule of `rules/claim.rs`, and writes
//! what that makes of them in the words of [`take_text`].

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, MySqlConnection, SqlSafeStr, SqlStr};

use super::connections::Pool;
use super::driver::execute;
use super::insert::MOST;
use super::sql::{SIZE, Sql};
use super::write::{width, with_ids};
use crate::store::rules::Capacity;
use crate::store::sql::{Answered, Cells, Driver, RowsRead, Value, time_of};
use crate::store::table::{Found, Unreadable, Which, Write};
use crate::store::{Claim, Stamped};
use crate::{Kind, State, TaskId, Timestamp};

/// What there is to claim, found without a lock.
#[derive(Default)]
struct Candidates {
    now: Option<Timestamp>,
    /// The statements that lock it, as far as no other transaction has.
    locks: Vec<(SqlStr, Vec<Value>)>,
    unreadable: Vec<Unreadable>,
}

/// Claims rows as [`Table::claim`](crate::store::table::Table::claim) says, but for setting aside what cannot be read.
pub(super) async fn claim(pool: &Pool, sql: &Sql, which: Which<'_>, claim: &Claim) -> Answered<Found> {
    let mut lent = pool.lend().await?;
    let candidates = match which {
        Which::These(wanted) => look_at(&mut lent, sql, wanted, claim).await?,
        Which::Due => look(&mut lent, sql, claim).await?,
    };
    let now = match candidates.now {
        Some(now) => now,
        None => now(&mut lent, sql).await?,
    };
    lent.give_back();
    if candidates.locks.is_empty() {
        let (rows, unreadable) = (Vec::new(), candidates.unreadable);
        let found = Found { rows, unreadable };
        return Ok(Stamped { now, found });
    }
    let mut writing = pool.begin().await?;
    let mut locked = Vec::new();
    for (lock, values) in candidates.locks {
        locked.extend(writing.fetch(lock, &values).await?);
    }
    let locked = RowsRead::of(locked);
    let now = locked.now.map_or(now, |locked| locked.max(now));
    let writes = Capacity::new(claim).claim_all(which, locked.found.rows, now);
    take(&mut writing, sql, &writes, claim, now).await?;
    writing.commit().await?;
    let found = Found {
        rows: writes.into_iter().map(|write| write.row).collect(),
        unreadable: [candidates.unreadable, locked.found.unreadable].concat(),
    };
    Ok(Stamped { now, found })
}

/// The time by the server's clock.
pub(super) async fn now(connection: &mut MySqlConnection, sql: &Sql) -> Result<Timestamp, sqlx::Error> {
    time_of(&connection.fetch(sql.now.clone(), &[]).await?)
}

/// A number of a row that is neither negative nor absent.
fn size(cells: &Cells, column: usize) -> usize {
    match cells.get(column) {
        Some(Value::Int(size)) => usize::try_from(*size).unwrap_or(usize::MAX),
        _ => 0,
    }
}

/// Those of some rows that are due and there is room for.
async fn look_at(
    connection: &mut MySqlConnection,
    sql: &Sql,
    wanted: &[(TaskId, u64)],
    claim: &Claim,
) -> Result<Candidates, sqlx::Error> {
    let ids = Value::Ids(wanted.iter().map(|&(id, _)| id).collect());
    let rows = connection.fetch(sql.by_ids_lean.clone(), &[ids]).await?;
    let of_id = |cells: &Cells| match cells.first() {
        Some(Value::Bytes(id)) => Some((id.clone(), size(cells, SIZE))),
        _ => None,
    };
    let sizes: BTreeMap<_, _> = rows.iter().filter_map(of_id).collect();
    let RowsRead { now, found } = RowsRead::of(rows);
    let rows: BTreeMap<_, _> = found.rows.into_iter().map(|row| (row.id, row)).collect();
    let mut capacity = Capacity::new(claim);
    let mut chosen = Vec::new();
    for (id, version) in wanted {
        let Some(row) = rows.get(id).filter(|row| row.version == *version) else {
            continue;
        };
        let is_due = row.state == State::Scheduled && Some(row.due_at) <= now;
        if is_due && capacity.has_room(&row.kind) {
            capacity.take_room_of(&row.kind, sizes.get(&id.as_bytes()[..]).copied().unwrap_or(0));
            chosen.push(*id);
        }
    }
    let is_any = !chosen.is_empty();
    let lock = is_any.then(|| (sql.unlocked.clone(), vec![Value::Ids(chosen)]));
    Ok(Candidates {
        now,
        locks: lock.into_iter().collect(),
        unreadable: found.unreadable,
    })
}

/// So many rows of each kind as there are room and bytes for, the longest due first.
async fn look(connection: &mut MySqlConnection, sql: &Sql, claim: &Claim) -> Result<Candidates, sqlx::Error> {
    let (mut now, mut due) = (None, Vec::new());
    for (kind, room) in claim.room.iter().filter(|(_, room)| **room > 0) {
        let values = [of_kind(kind), Value::count(*room)];
        for cells in connection.fetch(sql.due.clone(), &values).await? {
            let [Value::Int(due_at), Value::Bytes(id), _, Value::Int(at)] = &cells[..] else {
                continue;
            };
            now = now.max(Some(Timestamp::from_millis(*at)));
            due.push((*due_at, id.clone(), kind, size(&cells, 2)));
        }
    }
    due.sort_unstable();
    let mut bytes = claim.bytes;
    let mut kinds = BTreeMap::<_, usize>::new();
    for (.., kind, size) in due {
        if bytes == 0 {
            break;
        }
        bytes = bytes.saturating_sub(size);
        *kinds.entry(kind).or_default() += 1;
    }
    let lock = |(kind, count)| {
        let values = vec![of_kind(kind), Value::of_time(now), Value::count(count)];
        (sql.due_unlocked.clone(), values)
    };
    Ok(Candidates {
        now,
        locks: kinds.into_iter().map(lock).collect(),
        unreadable: Vec::new(),
    })
}

/// A kind as the column has it.
pub(super) fn of_kind(kind: &Kind) -> Value {
    Value::Bytes(kind.as_str().into())
}

/// Writes claims of rows that are locked.
async fn take(
    connection: &mut MySqlConnection,
    sql: &Sql,
    writes: &[Write],
    claim: &Claim,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let noted = Value::of_text(claim.claimed());
    let mut written = 0;
    for writes in writes.chunks(MOST) {
        let mut values = vec![
            noted.clone(),
            Value::of_time(Some(now)),
            noted.clone(),
            Value::Text(claim.owner.to_string()),
            Value::of_time(Some(now.after(claim.lease))),
            Value::of_time(Some(now)),
        ];
        with_ids(&mut values, writes.iter().map(|write| write.row.id));
        let text = AssertSqlSafe(take_text(&sql.table, width(writes.len()))).into_sql_str();
        written += execute(connection, text, &values).await?;
    }
    match usize::try_from(written) == Ok(writes.len()) {
        true => Ok(()),
        false => Err(sqlx::Error::Protocol(
            "rows were not claimed that are locked".to_owned(),
        )),
    }
}

/// Claims rows, of so many ids: what `rules/claim.rs` makes of them.
pub(super) fn take_text(table: &str, width: usize) -> String {
    format!(
        "UPDATE {table} t FORCE INDEX (PRIMARY) SET
            t.history = IF(? IS NULL, t.history, RIGHT(CONCAT(t.history, '\\n', t.version + 1, ' ', ?, ' ', t.due_at, ' ',
                t.due_at, ' ', ?), 16384)),
            t.version = t.version + 1, t.state = 1, t.attempt = t.attempt + 1, t.owner = ?, t.wake_at = ?, t.updated_at = ?
        WHERE t.id IN ({})",
        vec!["?"; width].join(",")
    )
}
