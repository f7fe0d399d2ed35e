//! The statements of a running store, but for those of [ranges](super::range).
//!
//! A batch is one statement, whatever its size: each of its columns comes as one array. So a statement never changes,
//! and stays prepared.
//!
//! None may read the table from end to end, whatever the statistics say. So kinds are found by jumping from one to the
//! next in an index, every scan has a limit, and the store's own connections do not consider anything but indexes (see
//! [`settings`](super::settings)). What is taken by due time is asked for as a range of whole rows of that index, as
//! in `(kind, state, due_at) <= (…)`: by single columns, a planner that thinks that a kind has few rows would find all of
//! them by another index, to sort them and take the first.
//!
//! What is meant by its id is looked for by it, each row by itself (`LATERAL`, with a lock or `OFFSET 0` so that it stays
//! so), and asked for its state as `state + 0`, which no index has. Else statistics of a moment at which there were few rows,
//! or none of that state, would have all of them read, and compared with each that is meant.
//!
//! What writes locks rows in a step of its own, which is done before anything is written, and leaves out those that another transaction
//! else has locked. `MATERIALIZED` keeps these steps from being merged or repeated.

#[macro_use]
mod pieces;

use sqlx::SqlStr;

use super::names::Names;
use crate::store::sql::{BEHIND_NOW, Query};
use crate::store::table::Columns;

/// Where `hold_ids` and `hold_keys` say whether a row has become another before it was locked.
pub(super) const IS_CHANGED: usize = BEHIND_NOW;

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:expr;)*) => {
        /// Those for one table.
        #[derive(Debug)]
        pub(super) struct Statements {
            $($(#[$doc])* pub(super) $name: SqlStr,)*
        }

        impl Statements {
            pub(super) fn of(names: &Names) -> Self {
                Self { $($name: names.fill($sql),)* }
            }

            /// A statement that every database has.
            pub(super) fn query(&self, query: Query) -> SqlStr {
                let statement = match query {
                    Query::ByIds(Columns::All) => &self.by_ids,
                    Query::ByIds(Columns::Lean) => &self.by_ids_lean,
                    Query::ByKeys(Columns::All) => &self.by_keys,
                    Query::ByKeys(Columns::Lean) => &self.by_keys_lean,
                    Query::Kinds => &self.kinds,
                    Query::History => &self.noted,
                };
                statement.clone()
            }

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

    /// The rows of these ids.
    by_ids = answer!("", concat!("SELECT ", row_columns!("t.place - 1"), " FROM (", of_ids!(), ") t"));

    /// The same without what is long.
    by_ids_lean = answer!("", concat!("SELECT ", row_columns!(lean "t.place - 1"), " FROM (", of_ids!(), ") t"));

    /// The rows of these kinds and keys, of each its live one, else the newest.
    by_keys = answer!("", concat!("SELECT ", row_columns!("t.place - 1"), " FROM (", of_keys!(), ") t"));

    /// The same without what is long.
    by_keys_lean = answer!("", concat!("SELECT ", row_columns!(lean "t.place - 1"), " FROM (", of_keys!(), ") t"));

    /// The rows of these ids, those locked that may be changed.
    hold_ids = hold!(of_ids!());

    /// The rows of these kinds and keys, of each its live one, else the newest, those locked that may be changed.
    hold_keys = hold!(of_keys!());

    /// Writes new rows, at the one time of `$1` or else now, and leaves out those that meet another: says the time, and which were
    /// written, unless all were. Tells channel `$2` (none: no channel) if one of them is due within `$3` ms.
    add = concat!(
        "WITH clock AS MATERIALIZED (SELECT coalesce(($1::bigint[])[1], ", server_time!(), ") AS now),
        given AS (
            SELECT g.*, CASE WHEN g.due_at IS NULL THEN ", after!("g.due_in"), " ELSE g.due_at END AS due,
                ", after!("g.overdue_after"), " AS wake_at, clock.now
            FROM clock CROSS JOIN unnest($4::uuid[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[],
                $10::bigint[], $11::text[], $12::bytea[], $13::text[])
                AS g (id, kind, key, due_in, due_at, overdue_after, max_attempts, headers, payload, note)),
        added AS (
            INSERT INTO {tasks} (id, kind, key, state, version, due_at, planned_at, wake_at, attempt, max_attempts,
                hop, created_at, updated_at, headers, payload, started, stalls, history)
            SELECT g.id, g.kind, g.key, 0, 1, g.due, greatest(g.due, g.now), g.wake_at, 0, g.max_attempts, 0, g.now,
                g.now, g.headers, g.payload, false, 0,
                CASE WHEN g.note IS NULL THEN ''
                    ELSE right(E'\\n1 ' || g.now || ' - ' || g.due || ' ' || g.note, 16384) END
            FROM given g
            ON CONFLICT DO NOTHING RETURNING id, due_at),
        counted AS MATERIALIZED (
            SELECT count(*) AS rows, array_agg(a.id) AS ids, min(a.due_at) AS first FROM added a)
        SELECT clock.now, CASE WHEN c.rows < cardinality($4::uuid[]) THEN coalesce(c.ids, '{}') END,
            CASE WHEN $2::text IS NOT NULL AND c.first <= clock.now + $3::bigint
                THEN pg_notify($2::text, '')::text END
        FROM clock CROSS JOIN counted c"
    );

    /// Writes what has become of rows that no other transaction has locked.
    write = write_rows!(" SKIP LOCKED");

    /// The same as soon as they can be had.
    write_held = write_rows!("");

    /// Which of rows of ids `$1`, versions `$2` and, where that matters, ends `$3` are as they were.
    same = "SELECT t.id FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS a (id, was, woke) CROSS JOIN LATERAL (
            SELECT t.id FROM {tasks} t
            WHERE t.id = a.id AND t.version = a.was AND (a.woke IS NULL OR t.wake_at + 0 = a.woke) OFFSET 0) t";

    /// Claims those of the rows of ids `$1` and versions `$2` that are due, for `$5` and `$6` ms: of the kinds `$3` up to `$4`
    /// each, and no more once there are `$7` bytes of payloads. `$8` is noted of each.
    claim_these = answer!(
        concat!(",
        asked AS MATERIALIZED (
            SELECT * FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY AS a (id, version, place)),
        room AS MATERIALIZED (SELECT * FROM unnest($3::text[], $4::bigint[]) AS r (kind, room)),
        locked AS MATERIALIZED (
            SELECT t.*, a.place FROM asked a CROSS JOIN LATERAL (
                SELECT t.id, t.kind, octet_length(t.payload) AS bytes FROM {tasks} t
                WHERE t.id = a.id AND t.version = a.version AND t.state + 0 = 0
                    AND t.due_at <= (SELECT clock.now FROM clock)
                FOR NO KEY UPDATE SKIP LOCKED) t),
        ranked AS (
            SELECT l.*, row_number() OVER (PARTITION BY l.kind ORDER BY l.place)
                <= coalesce((SELECT m.room FROM room m WHERE m.kind = l.kind), 0) AS has_room
            FROM locked l),
        fitting AS MATERIALIZED (
            SELECT r.id, r.has_room AND coalesce(sum(CASE WHEN r.has_room THEN r.bytes END) OVER (
                ORDER BY r.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < $7::bigint AS fits
            FROM ranked r),
        ", claimed!("$5", "$6", "$8")),
        "SELECT * FROM claimed"
    );

    /// Claims what is due, for `$3` and `$4` ms: of the kinds `$1` up to `$2` each, and no more once there are `$5` bytes
    /// of payloads. `$6` is noted of each.
    claim_due = answer!(
        concat!(",
        locked AS MATERIALIZED (
            SELECT d.* FROM unnest($1::text[], $2::bigint[]) AS r (kind, room) CROSS JOIN LATERAL (
                SELECT t.id, t.due_at, octet_length(t.payload) AS bytes FROM {tasks} t
                WHERE (t.kind, t.state) >= (r.kind, 0)
                    AND (t.kind, t.state, t.due_at) <= (r.kind, 0, (SELECT clock.now FROM clock))
                ORDER BY t.kind, t.state, t.due_at, t.id LIMIT r.room FOR NO KEY UPDATE SKIP LOCKED) d),
        fitting AS (
            SELECT l.id, coalesce(sum(l.bytes) OVER (ORDER BY l.due_at, l.id
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < $5::bigint AS fits
            FROM locked l),
        ", claimed!("$3", "$4", "$6")),
        "SELECT * FROM claimed"
    );

    /// Puts those of the rows of ids `$1` that are overdue, or due, out of the way for `$2` ms, for the owner `$3`.
    set_aside = concat!(
        "WITH ", clock!(), ",
        locked AS MATERIALIZED (
            SELECT t.id FROM unnest($1::uuid[]) AS a (id) CROSS JOIN LATERAL (
                SELECT t.id FROM {tasks} t WHERE t.id = a.id AND (
                    (t.state + 0 IN (0, 1) AND t.wake_at <= (SELECT clock.now FROM clock))
                    OR (t.state + 0 = 0 AND t.due_at <= (SELECT clock.now FROM clock)))
                FOR NO KEY UPDATE SKIP LOCKED) t)
        UPDATE {tasks} t SET state = 1, started = true, owner = $3::text, wake_at = ", after!("$2::bigint"), "
        FROM locked l CROSS JOIN clock WHERE t.id = l.id"
    );

    /// Gives claims of the rows of ids `$1` to the owner `$3`, each if it is of `$2`.
    pass_on = "UPDATE {tasks} t SET owner = $3::text
        WHERE t.id = ANY ($1::uuid[]) AND t.state + 0 = 1 AND t.owner = $2::text";

    /// What is noted of the row of id `$1`.
    noted = "SELECT t.history FROM {tasks} t WHERE t.id = $1::uuid";

    /// The first `$3` kinds after `$2` of which there are rows in state `$1`.
    kinds = "WITH RECURSIVE kinds (kind) AS (
            (SELECT t.kind FROM {tasks} t WHERE t.state = $1::smallint AND t.kind > $2::text
             ORDER BY t.state, t.kind LIMIT 1)
            UNION ALL
            SELECT n.kind FROM kinds k CROSS JOIN LATERAL (
                SELECT t.kind FROM {tasks} t WHERE t.state = $1::smallint AND t.kind > k.kind
                ORDER BY t.state, t.kind LIMIT 1) n)
        SELECT k.kind FROM kinds k LIMIT $3::bigint";

    /// How many rows of kind `$1` and state `$2` are due within each of the spans `$3`, in ms, of the first `$4` of them.
    count = concat!(
        "WITH ", clock!(), ",
        first AS MATERIALIZED (
            SELECT t.due_at FROM {tasks} t
            WHERE (t.kind, t.state) >= ($1::text, $2::smallint) AND (t.kind, t.state, t.due_at) <= (
                $1::text, $2::smallint, (
                    SELECT max(clock.now + s.span) FROM clock CROSS JOIN unnest($3::bigint[]) AS s (span)))
            ORDER BY t.kind, t.state, t.due_at, t.id LIMIT $4::bigint)
        SELECT clock.now, (SELECT count(*) FROM first f WHERE f.due_at <= clock.now + s.span)
        FROM clock CROSS JOIN unnest($3::bigint[]) WITH ORDINALITY AS s (span, place) ORDER BY s.place"
    );

    /// Removes rows in the states `$1` whose `wake_at` has passed, up to `$2` of each kind; the states are from `$3` to `$4`.
    remove = concat!(
        "WITH RECURSIVE ", lanes!("$3", "$4"), ",
        ", clock!(), ",
        locked AS MATERIALIZED (
            SELECT p.id, row_number() OVER (PARTITION BY p.kind) AS rank FROM lanes l CROSS JOIN LATERAL (
                SELECT t.id, t.kind FROM {tasks} t
                WHERE t.state = l.state AND t.kind = l.kind AND t.wake_at <= (SELECT clock.now FROM clock)
                ORDER BY t.wake_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED) p
            WHERE l.state = ANY ($1::smallint[]))
        DELETE FROM {tasks} t USING locked l WHERE t.id = l.id AND l.rank <= $2::bigint RETURNING t.id"
    );
}

/// What [ranges](super::range) have in common with other statements.
pub(super) mod of_ranges {
    /// The time of a statement.
    pub(in crate::store::postgres) const CLOCK: &str = clock!();
    /// The pairs of state and kind, from the states `{first}` to `{last}`.
    pub(in crate::store::postgres) const LANES: &str = lanes!("{first}", "{last}");
    /// The columns of a row of the range `{number}`.
    pub(in crate::store::postgres) const ALL: &str = row_columns!("{number}::bigint");
    /// The same without what is long.
    pub(in crate::store::postgres) const LEAN: &str = row_columns!(lean "{number}::bigint");
}
