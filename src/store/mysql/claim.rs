//! Claims rows that are due: looks for them without a lock, then locks them, looks again, and writes.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use super::cells;
use super::connections::{Pool, Writing};
use super::insert::MOST;
use super::read::{self, Read, by_ids};
use super::sql::{Sql, query};
use super::write::{self, parts, width, with_ids};
use crate::store::sql::Value;
use crate::store::sql::codec::limit;
use crate::store::table::{Found, Which, Write};
use crate::store::taking::Taking;
use crate::store::{Claim, Stamped};
use crate::{State, Task, TaskId, Timestamp};

/// Claims rows as [`Table::claim`](crate::store::table::Table::claim) says, but for setting aside what cannot be read.
pub(super) async fn claim(
    pool: &Pool,
    sql: &Sql,
    which: Which<'_>,
    claim: &Claim,
) -> Result<Stamped<Found>, sqlx::Error> {
    let mut lent = pool.lend().await?;
    let looked = match which {
        Which::These(wanted) => look_at(&mut lent, sql, wanted, claim).await?,
        Which::Due => look(&mut lent, sql, claim).await?,
    };
    lent.give_back();
    let Stamped { now, found: looked } = looked;
    let (chosen, unreadable) = match looked {
        Looked::Ids(ids, unreadable) if ids.is_empty() => {
            let found = Found {
                unreadable,
                ..Found::default()
            };
            return Ok(Stamped { now, found });
        }
        Looked::Ids(ids, unreadable) => (Chosen::Ids(ids), unreadable),
        Looked::Kinds(kinds) if kinds.is_empty() => {
            let found = Found::default();
            return Ok(Stamped { now, found });
        }
        Looked::Kinds(kinds) => (Chosen::Kinds(kinds), Vec::new()),
    };
    let mut writing = Writing::begin(pool).await?;
    let Stamped { now: locked, found } = lock(&mut writing, sql, &chosen, now).await?;
    let now = now.max(locked);
    let writes = Taking::new(claim).all(which, found.rows, now);
    take(&mut writing, sql, &writes, claim, now).await?;
    writing.commit().await?;
    let found = Found {
        rows: writes.into_iter().map(|write| write.row).collect(),
        unreadable: [unreadable, found.unreadable].concat(),
    };
    Ok(Stamped { now, found })
}

/// What a look without a lock has found to claim.
enum Looked {
    Ids(Vec<TaskId>, Vec<crate::store::table::Unreadable>),
    Kinds(BTreeMap<String, usize>),
}

/// What is locked to be claimed: rows, or so many of kinds.
enum Chosen {
    Ids(Vec<TaskId>),
    Kinds(BTreeMap<String, usize>),
}

async fn look_at(
    connection: &mut MySqlConnection,
    sql: &Sql,
    wanted: &[(TaskId, u64)],
    claim: &Claim,
) -> Result<Stamped<Looked>, sqlx::Error> {
    let ids = wanted.iter().map(|&(id, _)| id);
    let read = by_ids(connection, &sql.by_ids_lean, ids).await?;
    let now = match read.now {
        Some(now) => now,
        None => read::now(connection, sql).await?,
    };
    let sizes: BTreeMap<Vec<u8>, usize> = read
        .rows
        .iter()
        .filter_map(|(cells, size)| match cells.first() {
            Some(Value::Bytes(id)) => Some((id.clone(), *size)),
            _ => None,
        })
        .collect();
    let Found { rows, unreadable } = read.found(&BTreeMap::new());
    let rows: BTreeMap<_, Task> = rows.into_iter().map(|row| (row.id, row)).collect();
    let mut taking = Taking::new(claim);
    let mut chosen = Vec::new();
    for (id, version) in wanted {
        let Some(row) = rows.get(id).filter(|row| row.version == *version) else {
            continue;
        };
        let is_due = row.state == State::Scheduled && row.due_at <= now;
        if is_due && taking.has_room(&row.kind) {
            let size = sizes.get(&id.as_bytes()[..]).copied().unwrap_or(0);
            taking.take_room_of(&row.kind, size);
            chosen.push(*id);
        }
    }
    let found = Looked::Ids(chosen, unreadable);
    Ok(Stamped { now, found })
}

/// How many rows of each kind there are room and bytes for, the longest due first.
async fn look(
    connection: &mut MySqlConnection,
    sql: &Sql,
    claim: &Claim,
) -> Result<Stamped<Looked>, sqlx::Error> {
    let now = read::now(connection, sql).await?;
    let mut due = Vec::new();
    for (kind, room) in claim.room.iter().filter(|(_, room)| **room > 0) {
        let query = query(&sql.due)
            .bind(kind.as_str().as_bytes())
            .bind(now.as_millis())
            .bind(limit(*room));
        for row in query.fetch_all(&mut *connection).await? {
            let size = usize::try_from(row.try_get::<u64, _>(2)?).unwrap_or(usize::MAX);
            due.push((cells::time(&row, 0)?, row.try_get::<Vec<u8>, _>(1)?, kind, size));
        }
    }
    due.sort_unstable();
    let mut bytes = claim.bytes;
    let mut kinds = BTreeMap::new();
    for (.., kind, size) in due {
        if bytes == 0 {
            break;
        }
        bytes = bytes.saturating_sub(size);
        *kinds.entry(kind.as_str().to_owned()).or_default() += 1;
    }
    let found = Looked::Kinds(kinds);
    Ok(Stamped { now, found })
}

/// Locks what was chosen, as far as nobody else has.
async fn lock(
    connection: &mut MySqlConnection,
    sql: &Sql,
    chosen: &Chosen,
    due_at: Timestamp,
) -> Result<Stamped<Found>, sqlx::Error> {
    let mut read = Read::default();
    match chosen {
        Chosen::Ids(ids) => read = by_ids(connection, &sql.unlocked, ids.iter().copied()).await?,
        Chosen::Kinds(kinds) => {
            for (kind, count) in kinds {
                let query = query(&sql.due_unlocked)
                    .bind(kind.as_bytes())
                    .bind(due_at.as_millis())
                    .bind(limit(*count));
                let of_kind = Read::of(&query.fetch_all(&mut *connection).await?)?;
                read.now = read.now.max(of_kind.now);
                read.rows.extend(of_kind.rows);
            }
        }
    }
    let now = read.now.unwrap_or(due_at);
    let mut found = read.found(&BTreeMap::new());
    if let Chosen::Kinds(_) = chosen {
        found.rows.sort_by_key(|row| (row.due_at, row.id));
    }
    Ok(Stamped { now, found })
}

/// Writes claims of rows that are locked.
async fn take(
    connection: &mut MySqlConnection,
    sql: &Sql,
    writes: &[Write],
    claim: &Claim,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let mut written = 0;
    if claim.claimed().is_some() {
        for part in parts(writes)? {
            written += write::write(connection, sql, "", &part.form, &part.writes).await?;
        }
    } else {
        for writes in writes.chunks(MOST) {
            let text = take_text(&sql.table, width(writes.len()));
            let query = sqlx::query(AssertSqlSafe(text))
                .bind(&*claim.owner)
                .bind(now.after(claim.lease).as_millis())
                .bind(now.as_millis());
            let query = with_ids(query, writes.iter().map(|write| write.row.id));
            written += query.execute(&mut *connection).await?.rows_affected();
        }
    }
    match usize::try_from(written) == Ok(writes.len()) {
        true => Ok(()),
        false => Err(sqlx::Error::Protocol(
            "rows were not claimed that are locked".to_owned(),
        )),
    }
}

/// Claims rows, of so many ids.
pub(super) fn take_text(table: &str, width: usize) -> String {
    format!(
        "UPDATE {table} t FORCE INDEX (PRIMARY) SET t.version = t.version + 1, t.state = 1, t.attempt = t.attempt + 1,
            t.owner = ?, t.wake_at = ?, t.updated_at = ?
        WHERE t.id IN ({})",
        vec!["?"; width].join(",")
    )
}
