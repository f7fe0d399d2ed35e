//! Every statement of a running store, in one place.
//!
//! A batch is one statement, whatever its size: its values come as one JSON array (ids as 32 hex digits), each
//! element an array in turn unless it is a single value. Talking to the connection's thread costs more than most of
//! these rows do. But new rows and transitions have so many values each, which would all have to be read from the JSON,
//! that these come as they are, in statements for fixed numbers of rows, of which the last may have no values.
//!
//! None may read the table from end to end, also not after an `ANALYZE` by whoever shares the file. So kinds are
//! found by jumping from one to the next in an index, and where the planner could think otherwise the index is named.

use crate::store::Noted;

/// The columns of a row, in the order in which [`codec::task`](super::codec::task) reads them.
macro_rules! columns {
    ($payload:literal, $headers:literal) => {
        concat!(
            "t.id, t.kind, t.key, t.state, t.version, t.due_at, t.planned_at, t.wake_at, t.attempt, t.started, ",
            "t.stalls, t.max_attempts, t.hop, t.created_at, t.updated_at, t.finished_at, t.owner, t.last_error, ",
            $headers,
            ", ",
            $payload
        )
    };
    () => {
        columns!("t.payload", "t.headers")
    };
    // Of a row that a statement has written, which has no other name there.
    (returned) => {
        "id, kind, key, state, version, due_at, planned_at, wake_at, attempt, started, stalls, max_attempts, hop, \
         created_at, updated_at, finished_at, owner, last_error, headers, payload"
    };
}

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:expr;)*) => {
        $($(#[$doc])* pub(super) const $name: &str = $sql;)*

        #[cfg(test)]
        pub(super) const ALL: &[(&str, &str)] = &[$((stringify!($name), $name)),*];
    };
}

/// The kinds of the rows in state `?1`, and one NULL. Each step is one search in the index.
macro_rules! kinds {
    () => {
        "WITH RECURSIVE kinds (kind) AS (
            SELECT (SELECT k.kind FROM delayline_tasks k INDEXED BY delayline_tasks_wake
                    WHERE k.state = ?1 ORDER BY k.kind LIMIT 1)
            UNION ALL
            SELECT (SELECT k.kind FROM delayline_tasks k INDEXED BY delayline_tasks_wake
                    WHERE k.state = ?1 AND k.kind > kinds.kind ORDER BY k.kind LIMIT 1)
            FROM kinds WHERE kinds.kind IS NOT NULL
        ) "
    };
}

/// The live row of the kind and key of `j`.
macro_rules! live {
    () => {
        "SELECT l.rowid FROM delayline_tasks l INDEXED BY delayline_tasks_live
            WHERE l.kind = j.value->>0 AND l.key = j.value->>1 AND l.state IN (0, 1) AND l.key IS NOT NULL"
    };
}

/// That a row is none of those to leave out: its id, and the parameter that has them as
/// [`Unreadable::ids`](super::unreadable::Unreadable::ids) gives them.
macro_rules! not_left_out {
    ($id:literal, $ids:literal) => {
        concat!(
            "(",
            $ids,
            " = '[]' OR hex(",
            $id,
            ") NOT IN (SELECT out.value FROM json_each(",
            $ids,
            ") out))"
        )
    };
}

/// Updates rows that a batch names: which, what it gives for them, and what becomes of them.
///
/// `UPDATE … FROM` is the obvious way, but there the planner chooses which of the two it goes through, and with the
/// statistics of a table that was small once it chooses the table.
macro_rules! update {
    ($which:literal, $given:literal, $set:literal) => {
        concat!(
            "INSERT INTO delayline_tasks (id, kind, headers, payload, created_at, state, version, due_at, planned_at,
                attempt, hop, updated_at, wake_at, finished_at, last_error, started, stalls)
            SELECT t.id, '', '', x'', 0, ", $given, "
            FROM json_each(?1) j CROSS JOIN delayline_tasks t INDEXED BY delayline_tasks_id
            WHERE ", $which, "
            ON CONFLICT (id) DO UPDATE SET ", $set
        )
    };
}

statements! {
    /// The rows of these ids.
    BY_IDS = concat!(
        "SELECT ", columns!(), " FROM json_each(?1) j
        CROSS JOIN delayline_tasks t INDEXED BY delayline_tasks_id
        WHERE t.id = unhex(j.value)"
    );

    /// What tells of these ids whether a wake-up or a claim still holds, and how long the payloads are.
    LOOK = "SELECT t.id, t.kind, t.version, t.state, t.key, t.due_at, t.planned_at, length(t.payload)
        FROM json_each(?1) j
        CROSS JOIN delayline_tasks t INDEXED BY delayline_tasks_id
        WHERE t.id = unhex(j.value)";

    /// The rows of these kinds and keys, of each its live one, else the newest; with the place of its key in the batch, and
    /// whether it is live.
    BY_KEYS = concat!(
        "SELECT ", columns!(), ", j.key, 1 FROM json_each(?1) j CROSS JOIN delayline_tasks t WHERE t.rowid = (", live!(), ")
        UNION ALL
        SELECT ", columns!(), ", j.key, 0 FROM json_each(?1) j CROSS JOIN delayline_tasks t
        WHERE NOT EXISTS (", live!(), ") AND t.rowid = (
            SELECT n.rowid FROM delayline_tasks n INDEXED BY delayline_tasks_key
            WHERE n.kind = j.value->>0 AND n.key = j.value->>1 AND n.key IS NOT NULL AND n.state > 1
            ORDER BY n.created_at DESC, n.id DESC LIMIT 1)"
    );

    /// Claims these rows, for `?2`, until `?3`, at `?4`, and gives them. The columns that it changes have to make sense, as
    /// they do afterwards.
    CLAIM = concat!(
        update!(
            "t.id = unhex(j.value) AND t.state = 0 AND t.due_at <= ?4 AND t.version > 0 AND typeof(t.attempt) = 'integer' \
             AND t.attempt >= 0",
            "1, 1, 0, 0, 1, 0, ?4, ?3, NULL, NULL, 0, 0",
            "state = 1, version = version + 1, attempt = attempt + 1, owner = ?2, wake_at = ?3, updated_at = ?4"
        ),
        " RETURNING ", columns!(returned)
    );

    /// Moves `wake_at` alone to `?2`.
    WAKE_AT = update!("t.id = unhex(j.value)", "0, 0, 0, 0, 0, 0, 0, ?2, NULL, NULL, 0, 0", "wake_at = ?2");

    /// Renews leases until `?2`, at `?3`: id, whether the handler has started. Where the clock has gone back since the
    /// claim, the lease is none that was given while it was ahead.
    RENEW = update!(
        "t.id = unhex(j.value->>0) AND t.state = 1",
        "0, 0, 0, 0, 0, 0, 0, ?2, NULL, NULL, j.value->>1, 0",
        "wake_at = ?2, updated_at = min(updated_at, ?3), started = max(started, excluded.started)"
    );

    /// Writes what a transition has made of rows: id, the version it was read at, and then each column.
    WRITE = update!(
        "t.id = unhex(j.value->>0) AND t.version = j.value->>1",
        "j.value->>2, j.value->>3, j.value->>4, j.value->>5, j.value->>6, j.value->>7, j.value->>8, j.value->>9,
            j.value->>10, j.value->>11, j.value->>12, j.value->>13",
        "state = excluded.state, version = excluded.version, due_at = excluded.due_at,
            planned_at = excluded.planned_at, attempt = excluded.attempt, hop = excluded.hop,
            updated_at = excluded.updated_at, wake_at = excluded.wake_at, finished_at = excluded.finished_at,
            last_error = excluded.last_error, started = excluded.started, stalls = excluded.stalls"
    );

    /// Adds to what is noted of rows: id, lines of history, the wake-up sent last.
    NOTE = "INSERT INTO delayline_tasks (id, kind, headers, payload, created_at, state, version, due_at, planned_at,
            attempt, hop, updated_at, started, stalls, history, sent)
        SELECT t.id, '', '', x'', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, j.value->>1, j.value->>2
        FROM json_each(?1) j CROSS JOIN delayline_tasks t INDEXED BY delayline_tasks_id
        WHERE t.id = unhex(j.value->>0)
        ON CONFLICT (id) DO UPDATE SET history = substr(history || excluded.history, -16384),
            sent = coalesce(excluded.sent, sent)";

    /// The ids of the rows that were written after the row of the number `?1`.
    ADDED = "SELECT t.id FROM delayline_tasks t WHERE t.rowid > ?1";

    /// What is noted of the row of id `?1`, as the bytes that it is.
    NOTED = "SELECT CAST(t.history AS BLOB), CAST(t.sent AS BLOB) FROM delayline_tasks t INDEXED BY delayline_tasks_id
        WHERE t.id = ?1";

    /// Gives the row of id `?1` the payload, headers and limit of another.
    REFILL = "UPDATE delayline_tasks INDEXED BY delayline_tasks_id
        SET payload = ?2, headers = ?3, max_attempts = ?4
        WHERE id = ?1";

    /// Rows in state `?1` whose `wake_at` has passed at `?2`, the longest ago first, up to `?3` of each kind but for
    /// those of `?4`; and how long their payloads are.
    OVERDUE = concat!(
        kinds!(),
        "SELECT ", columns!("x''", "'{}'"), ", length(t.payload) FROM kinds
        CROSS JOIN json_each((SELECT json_group_array(first.rowid) FROM (
            SELECT o.rowid FROM delayline_tasks o INDEXED BY delayline_tasks_wake
            WHERE o.state = ?1 AND o.kind = kinds.kind AND o.wake_at <= ?2 AND ", not_left_out!("o.id", "?4"), "
            ORDER BY o.wake_at LIMIT ?3) first)) j
        CROSS JOIN delayline_tasks t
        WHERE t.rowid = j.value
        ORDER BY t.kind, t.wake_at, t.id"
    );

    /// Of the rows in state `?1` (running) whose `wake_at` is after `?2`, the latest `?3` of each kind, those that were
    /// last updated after `?2`.
    GIVEN_AHEAD = concat!(
        kinds!(),
        "SELECT ", columns!("x''", "'{}'"), " FROM kinds
        CROSS JOIN json_each((SELECT json_group_array(first.rowid) FROM (
            SELECT o.rowid FROM delayline_tasks o INDEXED BY delayline_tasks_wake
            WHERE o.state = ?1 AND o.kind = kinds.kind AND o.wake_at > ?2
            ORDER BY o.wake_at DESC LIMIT ?3) first)) j
        CROSS JOIN delayline_tasks t
        WHERE t.rowid = j.value AND t.updated_at > ?2"
    );

    /// The ids of scheduled rows of kind `?1` that are due at `?2`, the longest due first, at most `?3`, but for those of
    /// `?4`; and how long their payloads are.
    DUE = concat!(
        "SELECT t.id, length(t.payload) FROM delayline_tasks t INDEXED BY delayline_tasks_due
        WHERE t.kind = ?1 AND t.state = 0 AND t.due_at <= ?2 AND ", not_left_out!("t.id", "?4"), "
        ORDER BY t.due_at, t.id LIMIT ?3"
    );

    /// Rows in state `?1` (scheduled) that become due from `?3` to `?2`, the earliest first, at most `?4`, but for those
    /// of `?5`.
    UPCOMING = concat!(
        kinds!(),
        "SELECT ", columns!("x''", "'{}'"), " FROM kinds CROSS JOIN delayline_tasks t INDEXED BY delayline_tasks_due
        WHERE t.kind = kinds.kind AND t.state = ?1 AND t.due_at BETWEEN ?3 AND ?2 AND ", not_left_out!("t.id", "?5"), "
        ORDER BY t.due_at, t.id LIMIT ?4"
    );

    /// Rows of kind `?1` in state `?2` after due time `?3` and id `?4`, at most `?5`, but for those of `?6`.
    LIST = concat!(
        "SELECT ", columns!(), " FROM delayline_tasks t INDEXED BY delayline_tasks_due
        WHERE t.kind = ?1 AND t.state = ?2 AND (t.due_at, t.id) > (?3, ?4) AND ", not_left_out!("t.id", "?6"), "
        ORDER BY t.due_at, t.id LIMIT ?5"
    );

    /// The first kind after `?2` of which there are rows in state `?1`.
    NEXT_KIND = "SELECT k.kind FROM delayline_tasks k INDEXED BY delayline_tasks_wake
        WHERE k.state = ?1 AND k.kind > ?2 ORDER BY k.kind LIMIT 1";

    /// How many scheduled rows of kind `?1` are due by each of the times `?2`, of the first `?3` of them.
    DUE_WITHIN = "WITH first AS MATERIALIZED (
            SELECT t.due_at FROM delayline_tasks t INDEXED BY delayline_tasks_due
            WHERE t.kind = ?1 AND t.state = ?4 AND t.due_at <= (SELECT max(j.value) FROM json_each(?2) j)
            ORDER BY t.due_at, t.id LIMIT ?3)
        SELECT (SELECT count(*) FROM first WHERE first.due_at <= j.value) FROM json_each(?2) j ORDER BY j.key";

    /// Removes those of these rows that are done or cancelled and whose `wake_at` has passed at `?2`.
    PURGE = "DELETE FROM delayline_tasks INDEXED BY delayline_tasks_id
        WHERE id IN (SELECT unhex(j.value) FROM json_each(?1) j) AND state IN (2, 4) AND wake_at <= ?2";
}

/// How many rows go into one statement of [`insert`], or of a transition.
pub(super) const MOST: usize = 128;

/// What undoes the statement that was made [`undoable`] last.
pub(super) const UNDO: &str = "ROLLBACK TO delayline_undo";

/// A statement that can be undone without the rest of its transaction, until that ends.
pub(super) fn undoable(statement: &str) -> String {
    format!("SAVEPOINT delayline_undo; {statement}")
}

/// For how many rows the statement is that has room for so many. There are few of them, each parsed once for a connection;
/// what is not bound is NULL.
fn width(rows: usize) -> usize {
    let double = rows.next_power_of_two();
    let half_as_many_more = double / 4 * 3;
    match rows <= half_as_many_more {
        true => half_as_many_more,
        false => double,
    }
}

/// Writes up to that many new rows; leaves what is there as it is.
pub(super) fn insert(rows: usize) -> String {
    format!("{} ON CONFLICT DO NOTHING", insert_all(rows))
}

/// Writes up to that many new rows, and commits; if one of them is there, it fails, writes none, and does not commit.
pub(super) fn insert_and_commit(rows: usize) -> String {
    format!("{}; COMMIT", insert_all(rows))
}

fn insert_all(rows: usize) -> String {
    let row = "(?,?,?,?,?,?,?,?,?,?,?,?,?)";
    format!(
        "INSERT INTO delayline_tasks (id, kind, key, due_at, planned_at, wake_at, max_attempts, created_at, updated_at, \
         headers, payload, history, sent, state, version, attempt, started, stalls, hop)
        SELECT *, 0, 1, 0, 0, 0, 0 FROM (VALUES {}) WHERE column1 IS NOT NULL",
        vec![row; width(rows)].join(",")
    )
}

/// Makes up to that many steps of rows of which the id and the version are known; gives the id of each that it makes.
pub(super) fn advance(rows: usize) -> String {
    transition(
        rows,
        "FROM given g CROSS JOIN delayline_tasks r INDEXED BY delayline_tasks_id
        WHERE r.id = g.id AND r.state = g.was AND r.version = g.version",
        "id",
    )
}

/// Makes up to that many changes of rows that are scheduled; gives each row that it changes.
pub(super) fn change(rows: usize) -> String {
    transition(
        rows,
        "FROM given g CROSS JOIN delayline_tasks r
        WHERE r.rowid = CASE
                WHEN g.id IS NULL THEN (
                    SELECT l.rowid FROM delayline_tasks l INDEXED BY delayline_tasks_live
                    WHERE l.kind = g.kind AND l.key = g.key AND l.state IN (0, 1) AND l.key IS NOT NULL)
                ELSE (SELECT i.rowid FROM delayline_tasks i INDEXED BY delayline_tasks_id WHERE i.id = g.id)
            END
            AND r.state = g.was AND r.version = coalesce(g.version, r.version) AND r.due_at = coalesce(g.is_due, r.due_at)",
        columns!(returned),
    )
}

/// What a transition makes of rows, each given with what is expected of it, and written as [`update`] writes.
fn transition(rows: usize, found: &str, returned: &str) -> String {
    let row = "(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
    format!(
        "WITH given (id, kind, key, version, is_due, was, state, due, wake_at, anew, hop, given_back, error, at, note, sent)
            AS (VALUES {values})
        INSERT INTO delayline_tasks (id, kind, headers, payload, created_at, state, version, due_at, planned_at, attempt,
            hop, updated_at, wake_at, finished_at, last_error, started, stalls, history, sent)
        SELECT r.id, '', '', x'', 0, g.state, r.version + 1, coalesce(g.due, r.due_at),
            CASE WHEN g.anew THEN max(g.due, g.at) ELSE r.planned_at END,
            CASE WHEN g.anew THEN 0 ELSE max(r.attempt - g.given_back, 0) END,
            CASE WHEN g.anew THEN 0 ELSE min(r.hop + g.hop, {most_hops}) END,
            CASE WHEN g.hop THEN r.updated_at ELSE g.at END,
            g.wake_at,
            CASE WHEN g.state > 1 THEN g.at END,
            CASE WHEN g.anew THEN NULL ELSE coalesce(g.error, r.last_error) END,
            0,
            CASE WHEN g.due IS NULL THEN r.stalls ELSE 0 END,
            coalesce(char(10) || (r.version + 1) || ' ' || g.at || ' ' || r.due_at || ' ' || coalesce(g.due, r.due_at)
                || ' ' || g.note, ''),
            (r.version + 1) || ' ' || g.at || ' ' || g.sent
        {found}
        ON CONFLICT (id) DO UPDATE SET state = excluded.state, version = excluded.version, due_at = excluded.due_at,
            planned_at = excluded.planned_at, attempt = excluded.attempt, hop = excluded.hop,
            updated_at = excluded.updated_at, wake_at = excluded.wake_at, finished_at = excluded.finished_at,
            last_error = excluded.last_error, started = excluded.started, stalls = excluded.stalls,
            history = CASE excluded.history WHEN '' THEN history ELSE substr(history || excluded.history, -{history}) END,
            sent = coalesce(excluded.sent, sent)
        RETURNING {returned}",
        values = vec![row; width(rows)].join(","),
        most_hops = u32::MAX,
        history = Noted::LIMIT,
    )
}
