//! The text of every statement.
//!
//! None may read the table from end to end, whatever the statistics say, also after an `ANALYZE` by whatever shares the file. So
//! kinds are found by jumping from one to the next in an index, and where the planner could think otherwise the index is named.
//!
//! A batch of ids, or of kinds and keys, is one JSON array, which a statement reads as a table `j`. New rows and what becomes of
//! rows have so many values each that these come as they are, in statements for fixed numbers of rows.

use crate::State;
use crate::store::sql::{BECOMES, COLUMNS, NEW, Query};
use crate::store::table::{By, Columns, Range, Start};
use crate::store::{Noted, state_code};

/// How many rows go into one statement.
pub(super) const MOST: usize = 128;

/// For how many rows the statement is that has room for so many. There are few of them, each parsed once for a connection;
/// what is not given is NULL.
fn width(rows: usize) -> usize {
    let double = rows.next_power_of_two();
    let half_as_many_more = double / 4 * 3;
    match rows <= half_as_many_more {
        true => half_as_many_more,
        false => double,
    }
}

/// Values for so many rows.
fn places(columns: usize, rows: usize) -> String {
    let row = format!("({}?),", "?,".repeat(columns - 1));
    let mut all = row.repeat(width(rows));
    all.pop();
    all
}

fn columns(columns: Columns) -> String {
    let all = COLUMNS.map(|column| format!("t.{column}")).join(", ");
    match columns {
        Columns::All => all + ", t.headers, t.payload",
        Columns::Lean => all + ", '{}', x''",
    }
}

/// A statement that every database has.
pub(super) fn query(query: Query) -> String {
    match query {
        Query::ByIds(which) => format!(
            "SELECT {} FROM json_each(?) j
            CROSS JOIN delayline_tasks t INDEXED BY delayline_tasks_id WHERE t.id = unhex(j.value)",
            columns(which)
        ),
        Query::ByKeys(which) => by_keys(which),
        Query::Kinds => {
            let kinds = kinds("?1", "AND k.kind > ?2");
            format!("{kinds} SELECT kinds.kind FROM kinds WHERE kinds.kind IS NOT NULL LIMIT ?3")
        }
        // As the bytes that it is.
        Query::History => "SELECT CAST(t.history AS BLOB)
            FROM delayline_tasks t INDEXED BY delayline_tasks_id WHERE t.id = ?"
            .to_owned(),
    }
}

/// The batch is given twice.
fn by_keys(which: Columns) -> String {
    let columns = columns(which);
    let live = "SELECT l.rowid FROM delayline_tasks l INDEXED BY delayline_tasks_live
        WHERE l.kind = j.value->>0 AND l.key = j.value->>1 AND l.state IN (0, 1) AND l.key IS NOT NULL";
    format!(
        "SELECT {columns}, j.key FROM json_each(?) j CROSS JOIN delayline_tasks t WHERE t.rowid = ({live})
        UNION ALL
        SELECT {columns}, j.key FROM json_each(?) j CROSS JOIN delayline_tasks t WHERE NOT EXISTS ({live}) AND t.rowid = (
            SELECT n.rowid FROM delayline_tasks n INDEXED BY delayline_tasks_key
            WHERE n.kind = j.value->>0 AND n.key = j.value->>1 AND n.key IS NOT NULL AND n.state > 1
            ORDER BY n.created_at DESC, n.id DESC LIMIT 1)"
    )
}

/// Which rows of a kind are scheduled and due by a time, the longest due first: due time and id. Kind, time, limit.
pub(super) const DUE: &str = "SELECT r.due_at, r.id FROM delayline_tasks r INDEXED BY delayline_tasks_due
    WHERE r.kind = ? AND r.state = 0 AND r.due_at <= ? ORDER BY r.due_at, r.id LIMIT ?";

/// Those of a batch of ids that are scheduled and due by a time, as far as there is room for the bytes of their payloads.
pub(super) fn these() -> String {
    format!(
        "SELECT {} FROM (SELECT r.rowid AS at_row, sum(length(r.payload)) OVER (
                ORDER BY j.key ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
            FROM json_each(?) j CROSS JOIN delayline_tasks r INDEXED BY delayline_tasks_id
            WHERE r.id = unhex(j.value) AND r.state = 0 AND r.due_at <= ?) fitting
        CROSS JOIN delayline_tasks t WHERE t.rowid = fitting.at_row AND coalesce(fitting.before, 0) < ?",
        columns(Columns::All)
    )
}

/// The rows of a range: of one kind, which is given first, or of each in turn. Then the time from which on, and the id
/// behind it; the time until which; how many; how many bytes.
pub(super) fn range(range: &Range, which: Columns) -> String {
    let direction = if range.backwards { " DESC" } else { "" };
    let (index, time, order) = match range.by {
        By::Due => ("due", "due_at", format!("r.due_at{direction}, r.id{direction}")),
        By::Wake => ("wake", "wake_at", format!("r.wake_at{direction}")),
    };
    let kind = if range.kind.is_some() { "?" } else { "kinds.kind" };
    let state = state_code::of(range.state);
    let from = match range.from {
        Start::First => String::new(),
        Start::Ago(_) => format!("AND r.{time} >= ? "),
        Start::After(..) => format!("AND (r.{time}, r.id) > (?, ?) "),
    };
    let until = range
        .within
        .map_or_else(String::new, |_| format!("AND r.{time} <= ? "));
    let rows = |columns: &str| {
        format!(
            "SELECT {columns} FROM delayline_tasks r INDEXED BY delayline_tasks_{index}
            WHERE r.state = {state} AND r.kind = {kind} AND r.{time} IS NOT NULL {from}{until}
            ORDER BY {order} LIMIT ?"
        )
    };
    let columns = columns(which);
    match (&range.kind, range.bytes) {
        (Some(_), usize::MAX) => rows(&columns.replace("t.", "r.")),
        (Some(_), _) => format!(
            "SELECT {columns} FROM (SELECT first.at_row, first.due_at, first.id, sum(first.bytes) OVER (
                    ORDER BY first.due_at, first.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                FROM ({}) first) fitting
            CROSS JOIN delayline_tasks t WHERE t.rowid = fitting.at_row AND coalesce(fitting.before, 0) < ?
            ORDER BY fitting.due_at, fitting.id",
            rows("r.rowid AS at_row, r.due_at, r.id, length(r.payload) AS bytes")
        ),
        (None, _) => format!(
            "{} SELECT {columns} FROM kinds
            CROSS JOIN json_each((SELECT json_group_array(first.at_row) FROM ({}) first)) j
            CROSS JOIN delayline_tasks t WHERE t.rowid = j.value ORDER BY t.kind, t.{time}{direction}, t.id",
            kinds(&state.to_string(), ""),
            rows("r.rowid AS at_row")
        ),
    }
}

/// The kinds of the rows in a state, and one NULL, as a table `kinds` for the statement behind it. Each step is one search
/// in an index.
fn kinds(state: &str, after: &str) -> String {
    let next = |than: &str| {
        format!(
            "SELECT (SELECT k.kind FROM delayline_tasks k INDEXED BY delayline_tasks_wake
                WHERE k.state = {state} {than} ORDER BY k.kind LIMIT 1)"
        )
    };
    format!(
        "WITH RECURSIVE kinds (kind) AS ({} UNION ALL {} FROM kinds WHERE kinds.kind IS NOT NULL)",
        next(after),
        next("AND k.kind > kinds.kind")
    )
}

/// How many rows of a kind in a state are due by a time, of the first so many: kind, time, limit.
pub(super) fn count(state: State) -> String {
    format!(
        "SELECT count(*) FROM (SELECT r.due_at FROM delayline_tasks r INDEXED BY delayline_tasks_due
            WHERE r.kind = ? AND r.state = {} AND r.due_at <= ? ORDER BY r.due_at, r.id LIMIT ?) first",
        state_code::of(state)
    )
}

/// Writes up to so many new rows, all or none.
pub(super) fn insert(rows: usize) -> String {
    format!(
        "INSERT INTO delayline_tasks (id, kind, key, due_at, planned_at, wake_at, max_attempts, created_at, updated_at,
            headers, payload, history, state, version, attempt, started, stalls, hop)
        SELECT *, 0, 1, 0, 0, 0, 0 FROM (VALUES {}) WHERE column1 IS NOT NULL",
        places(NEW, rows)
    )
}

/// Writes those of up to so many new rows that are not there; gives their ids.
pub(super) fn insert_absent(rows: usize) -> String {
    insert(rows) + " ON CONFLICT DO NOTHING RETURNING id"
}

/// Writes what has become of up to so many rows, each if it is as it was; gives the ids of those. Payload, headers and
/// `max_attempts` stay.
pub(super) fn write(rows: usize) -> String {
    format!(
        "WITH given (id, was, woke, state, version, due_at, planned_at, wake_at, attempt, started, stalls, hop,
            updated_at, finished_at, owner, last_error, history) AS (VALUES {})
        INSERT INTO delayline_tasks (id, kind, headers, payload, created_at, state, version, due_at, planned_at, wake_at,
            attempt, started, stalls, hop, updated_at, finished_at, owner, last_error, history)
        SELECT t.id, '', '', x'', 0, g.state, g.version, g.due_at, g.planned_at, g.wake_at, g.attempt, g.started,
            g.stalls, g.hop, g.updated_at, g.finished_at, g.owner, g.last_error, g.history
        FROM given g CROSS JOIN delayline_tasks t INDEXED BY delayline_tasks_id
        WHERE t.id = g.id AND t.version = g.was AND (g.woke IS NULL OR t.wake_at = g.woke)
        ON CONFLICT (id) DO UPDATE SET state = excluded.state, version = excluded.version, due_at = excluded.due_at,
            planned_at = excluded.planned_at, wake_at = excluded.wake_at, attempt = excluded.attempt,
            started = excluded.started, stalls = excluded.stalls, hop = excluded.hop,
            updated_at = excluded.updated_at, finished_at = excluded.finished_at, owner = excluded.owner,
            last_error = excluded.last_error,
            history = CASE excluded.history WHEN '' THEN history ELSE substr(history || excluded.history, -{}) END
        RETURNING id",
        places(BECOMES, rows),
        Noted::LIMIT
    )
}

/// Gives a row of a version another payload, headers and `max_attempts`: these, then id and version.
pub(super) const REFILL: &str = "UPDATE delayline_tasks INDEXED BY delayline_tasks_id
    SET payload = ?, headers = ?, max_attempts = ? WHERE id = ? AND version = ?";

/// Puts a row that cannot be read out of the way if it is overdue, or due: under a lease that no worker has. Its owner; until
/// when; the row; and twice now.
pub(super) const SET_ASIDE: &str = "UPDATE delayline_tasks INDEXED BY delayline_tasks_id
    SET state = 1, started = 1, owner = ?, wake_at = ?
    WHERE id = ? AND ((state IN (0, 1) AND wake_at <= ?) OR (state = 0 AND due_at <= ?))";

/// Removes those of a batch of rows that are in one of these states, and whose `wake_at` has passed; gives their ids.
pub(super) fn remove(states: &[State]) -> String {
    let states: Vec<_> = states
        .iter()
        .map(|state| state_code::of(*state).to_string())
        .collect();
    format!(
        "DELETE FROM delayline_tasks INDEXED BY delayline_tasks_id
        WHERE id IN (SELECT unhex(j.value) FROM json_each(?) j) AND state IN ({}) AND wake_at <= ? RETURNING id",
        states.join(", ")
    )
}

/// Every statement, with a name.
#[cfg(test)]
pub(super) fn all() -> Vec<(String, String)> {
    let mut all = vec![
        ("due".to_owned(), DUE.to_owned()),
        ("these".to_owned(), these()),
        ("insert".to_owned(), insert(3)),
        ("insert absent".to_owned(), insert_absent(3)),
        ("write".to_owned(), write(3)),
        ("refill".to_owned(), REFILL.to_owned()),
        ("set aside".to_owned(), SET_ASIDE.to_owned()),
        ("remove".to_owned(), remove(&[State::Done, State::Cancelled])),
        ("history".to_owned(), query(Query::History)),
        ("kinds".to_owned(), query(Query::Kinds)),
    ];
    for columns in [Columns::All, Columns::Lean] {
        all.push((format!("ids {columns:?}"), query(Query::ByIds(columns))));
        all.push((format!("keys {columns:?}"), query(Query::ByKeys(columns))));
        let ranges = crate::store::sql::tests::forms::ranges();
        all.extend(ranges.map(|form| (format!("{form:?} {columns:?}"), range(&form, columns))));
    }
    all.extend(State::ALL.map(|state| (format!("count {state:?}"), count(state))));
    all
}
