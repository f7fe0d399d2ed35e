//! The statements of a running store, but for those of [ranges](super::ranges), [inserts](super::insert) and
//! [writes](super::write).
//!
//! A batch is one statement, whatever its size: its values come as one JSON array (ids, kinds and keys as hex digits),
//! each element an array in turn unless it is a single value. So the texts are constant, and stay prepared.
//!
//! None may read the table from end to end, whatever the server believes about it. So every access names its index,
//! and is by values that are known when the statement begins: `ref` and `range` on those, and nothing that depends on
//! another table's row but the whole of a unique key.
//!
//! The texts name the table `delayline_tasks`; [`Sql::of`] puts the real name in its place.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use crate::store::sql::{BEHIND_NOW, Query};
use crate::store::table::Columns;

/// The time, when the statement began. It is one value for the whole statement, so an index can be searched by it.
/// It is of no time zone, and the part of a millisecond is cut off.
macro_rules! server_time {
    () => {
        "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"
    };
}

/// The columns of a row `t`, in the order in which all stores read them; the number of what it was asked for by; the time when
/// it had been read, and locked where that was asked for: what others have committed to it is not later (only on the store's
/// own connections, whose time zone is UTC); and how long its payload is.
macro_rules! row_columns {
    ($number:literal) => {
        row_columns!($number, "t.headers, t.payload")
    };
    // Without what is long.
    (lean $number:literal) => {
        row_columns!($number, "'{}' AS headers, x'' AS payload")
    };
    ($number:literal, $long:literal) => {
        concat!(
            "t.id, t.kind, t.`key`, t.state, t.version, t.due_at, t.planned_at, t.wake_at, t.attempt, t.started, t.stalls, \
             t.max_attempts, t.hop, t.created_at, t.updated_at, t.finished_at, t.owner, t.last_error, ",
            $long,
            ", ",
            $number,
            ", TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) DIV 1000, t.size"
        )
    };
}

/// The columns of a row of the range `{number}`.
pub(super) const ALL: &str = row_columns!("{number}");
/// The same without what is long.
pub(super) const LEAN: &str = row_columns!(lean "{number}");
/// Where the size of the payload stands.
pub(super) const SIZE: usize = BEHIND_NOW;
/// The time, when a statement began.
pub(super) const NOW: &str = server_time!();

/// The rows that a JSON array of ids names, in its order.
macro_rules! of_ids {
    ($join:literal) => {
        concat!(
            "JSON_TABLE(?, '$[*]' COLUMNS (id VARCHAR(32) PATH '$')) j ",
            $join,
            " delayline_tasks t FORCE INDEX (PRIMARY) ON t.id = UNHEX(j.id) "
        )
    };
}

/// The same for a SELECT that locks them. The array is a table within another, as MySQL locks nothing beside a JSON_TABLE
/// (error 3569). Not for an UPDATE or a DELETE: MariaDB would copy the inner table there.
macro_rules! of_locked_ids {
    () => {
        "(SELECT UNHEX(i.id) id FROM JSON_TABLE(?, '$[*]' COLUMNS (id VARCHAR(32) PATH '$')) i) j \
        STRAIGHT_JOIN delayline_tasks t FORCE INDEX (PRIMARY) ON t.id = j.id "
    };
}

/// The rows that a JSON array of kinds and keys names: of each its live one, else the newest.
macro_rules! by_keys {
    ($columns:expr) => {
        concat!(
            "SELECT ", $columns, " FROM (
                SELECT j.place, COALESCE(
                    (SELECT l.id FROM delayline_tasks l FORCE INDEX (`live`)
                     WHERE l.kind = UNHEX(j.kind) AND l.live_key = UNHEX(j.name)),
                    (SELECT n.id FROM delayline_tasks n FORCE INDEX (`named`)
                     WHERE n.kind = UNHEX(j.kind) AND n.`key` = UNHEX(j.name)
                     ORDER BY n.kind DESC, n.`key` DESC, n.created_at DESC, n.id DESC LIMIT 1)) AS id
                FROM JSON_TABLE(?, '$[*]' COLUMNS (
                    place FOR ORDINALITY, kind VARCHAR(200) PATH '$[0]', name VARCHAR(510) PATH '$[1]')) j) k
            LEFT JOIN delayline_tasks t FORCE INDEX (PRIMARY) ON t.id = k.id"
        )
    };
}

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:expr;)*) => {
        /// The statements for one table.
        pub(super) struct Sql {
            /// The name of the table.
            pub(super) table: String,
            $($(#[$doc])* pub(super) $name: SqlStr,)*
        }

        impl Sql {
            /// Those for a table of this name.
            pub(super) fn of(table: &str) -> Self {
                let of = |sql: &str| AssertSqlSafe(sql.replace("delayline_tasks", table)).into_sql_str();
                Self {
                    table: table.to_owned(),
                    $($name: of($sql),)*
                }
            }

            /// A statement that every database has.
            pub(super) fn query(&self, query: Query) -> SqlStr {
                let statement = match query {
                    Query::ByIds(Columns::All) => &self.by_ids,
                    Query::ByIds(Columns::Lean) => &self.by_ids_lean,
                    Query::ByKeys(Columns::All) => &self.by_keys,
                    Query::ByKeys(Columns::Lean) => &self.by_keys_lean,
                    Query::Kinds => &self.next_kind,
                    Query::History => &self.noted,
                };
                statement.clone()
            }

            /// All of them, each with its name.
            #[cfg(test)]
            pub(super) fn all(&self) -> Vec<(&'static str, &str)> {
                vec![$((stringify!($name), self.$name.as_str())),*]
            }
        }
    };
}

statements! {
    /// The time.
    now = concat!("SELECT ", server_time!());

    /// How long a statement with its values may be.
    packet = "SELECT @@max_allowed_packet";

    /// The rows of these ids; one row of nothing but the time for each that is not there.
    by_ids = concat!("SELECT ", row_columns!("0"), " FROM ", of_ids!("LEFT JOIN"));

    /// The same without what is long.
    by_ids_lean = concat!("SELECT ", row_columns!(lean "0"), " FROM ", of_ids!("LEFT JOIN"));

    /// The rows of these ids that no other transaction has locked, and locks them.
    unlocked = concat!("SELECT ", row_columns!("0"), " FROM ", of_locked_ids!(), "FOR UPDATE SKIP LOCKED");

    /// The same without what is long.
    unlocked_lean = concat!("SELECT ", row_columns!(lean "0"), " FROM ", of_locked_ids!(), "FOR UPDATE SKIP LOCKED");

    /// The rows of these ids without what is long, and locks them.
    locked_lean = concat!("SELECT ", row_columns!(lean "0"), " FROM ", of_locked_ids!(), "FOR UPDATE");

    /// Rows of a JSON array of ids, each with the version at which its lease has ended by a time or else NULL: those that a verb
    /// may change, and locks them. At READ COMMITTED, InnoDB does not keep the locks of others.
    held = concat!(
        "SELECT ", row_columns!("0"), " FROM (SELECT UNHEX(i.id) id, i.ended FROM JSON_TABLE(?, '$[*]'
            COLUMNS (id VARCHAR(32) PATH '$[0]', ended BIGINT UNSIGNED PATH '$[1]')) i) j
        STRAIGHT_JOIN delayline_tasks t FORCE INDEX (PRIMARY) ON t.id = j.id
        WHERE t.state <> 1 OR (t.version = j.ended AND COALESCE(t.wake_at, 0) <= ?) FOR UPDATE"
    );

    /// The rows of these kinds and keys, of each its live one, else the newest.
    by_keys = by_keys!(row_columns!("k.place - 1"));

    /// The same without what is long.
    by_keys_lean = by_keys!(row_columns!(lean "k.place - 1"));

    /// What is noted of the row of an id.
    noted = "SELECT t.history FROM delayline_tasks t FORCE INDEX (PRIMARY) WHERE t.id = ?";

    /// Scheduled rows of a kind that are due, the longest due first: due time, id, how long the payload is, and the time.
    due = concat!(
        "SELECT t.due_at, t.id, t.size, ", server_time!(), " FROM delayline_tasks t FORCE INDEX (`due`)
        WHERE t.kind = ? AND t.state = 0 AND t.due_at <= ", server_time!(), " ORDER BY t.due_at, t.id LIMIT ?"
    );

    /// Scheduled rows of a kind that are due at a time and that no other transaction has locked, the longest due first, and
    /// locks them.
    due_unlocked = concat!(
        "SELECT ", row_columns!("0"), " FROM delayline_tasks t FORCE INDEX (`due`)
        WHERE t.kind = ? AND t.state = 0 AND t.due_at <= ?
        ORDER BY t.due_at, t.id LIMIT ? FOR UPDATE SKIP LOCKED"
    );

    /// The first kind of which there are rows in a state, after another one; none if none is asked for. `MIN` reads one entry of
    /// the index. With `ORDER BY` and `LIMIT`, MySQL reads the index from its beginning where it takes the table for empty.
    next_kind = "SELECT MIN(t.kind) kind FROM delayline_tasks t FORCE INDEX (`wake`)
        WHERE t.state = ? AND t.kind > ? AND ? > 0
        HAVING kind IS NOT NULL";

    /// The time, and how many rows of a kind and a state are due within each of some spans, in ms, of the first so many of
    /// them: the spans, the kind, the state, the longest of the spans, how many.
    count = concat!(
        "SELECT ", server_time!(), ", COUNT(f.due_at)
        FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY, span BIGINT PATH '$')) j
        LEFT JOIN (
            SELECT t.due_at FROM delayline_tasks t FORCE INDEX (`due`)
            WHERE t.kind = ? AND t.state = ? AND t.due_at <= ", server_time!(), " + ? ORDER BY t.due_at, t.id LIMIT ?) f
        ON f.due_at <= ", server_time!(), " + j.span
        GROUP BY j.place ORDER BY j.place"
    );

    /// Puts a row that cannot be read out of the way, for this owner and for so many ms, the row as the column has its id, if it
    /// is overdue or due.
    set_aside = concat!(
        "UPDATE delayline_tasks t FORCE INDEX (PRIMARY) SET t.owner = ?, t.started = 1,
            t.wake_at = ", server_time!(), " + ?, t.state = 1
        WHERE t.id = ? AND ((t.state IN (0, 1) AND t.wake_at <= ", server_time!(), ")
            OR (t.state = 0 AND t.due_at <= ", server_time!(), "))"
    );

    /// Locks those of these rows that are in one of some states, given as a text, whose `wake_at` has passed, and that no
    /// other transaction has locked.
    past_unlocked = concat!(
        "SELECT t.id FROM ", of_locked_ids!(),
        "WHERE FIND_IN_SET(t.state, ?) > 0 AND t.wake_at <= ", server_time!(), " FOR UPDATE SKIP LOCKED"
    );

    /// Removes these rows.
    remove = concat!("DELETE t FROM ", of_ids!("STRAIGHT_JOIN"));
}

/// Before a statement: it does not wait for locks. MySQL has nothing like it, and waits for as long as its connection may.
pub(super) const AT_ONCE: &str = "/*M!100600 SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ ";

/// For how many rows there are statements that have their ids as values, so that they stay prepared.
pub(super) const WIDTHS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, crate::defaults::BATCH];
