//! Every statement of a running store, in one place.
//!
//! A batch is one statement, whatever its size: each of its columns comes as one array. So a statement never changes,
//! and stays prepared.
//!
//! None may read the table from end to end, whatever the statistics say. So kinds are found by jumping from one to the
//! next in an index, every scan has a limit, and the store's own connections do not consider anything but indexes (see
//! [`connections`](super::connections)).
//!
//! Who claims, renews, sweeps or purges locks rows in a step of its own, which is done before anything is written, and
//! leaves out those that somebody else has locked. `MATERIALIZED` keeps these steps from being merged or repeated.

use sqlx::SqlStr;

use super::table::Table;

/// The columns of a row, in the order in which [`codec::task`](super::codec::task) reads them.
macro_rules! columns {
    () => {
        "t.id, t.kind, t.key, t.state, t.version, t.due_at, t.planned_at, t.wake_at, t.attempt, t.max_attempts, t.hop,
         t.created_at, t.updated_at, t.finished_at, t.owner, t.last_error, t.headers, t.payload"
    };
}

/// The same columns where only a little is known of a row.
macro_rules! pending {
    ($row:literal) => {
        concat!(
            $row,
            ".id, ",
            $row,
            ".kind, ",
            $row,
            ".key, NULL, ",
            $row,
            ".version, ",
            $row,
            ".due_at, ",
            $row,
            ".planned_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"
        )
    };
    (of $kind:literal) => {
        concat!(
            "NULL, ",
            $kind,
            ", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"
        )
    };
}

/// The time, when the statement comes to it. Cut off, not rounded: what is due must not be so early.
macro_rules! now {
    () => {
        "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    };
}

/// The time of a statement, once and for all of its rows.
macro_rules! clock {
    () => {
        concat!("clock AS MATERIALIZED (SELECT ", now!(), " AS now)")
    };
}

/// So many milliseconds after the time of the statement, at the latest at the last moment that can be written down.
macro_rules! after {
    ($millis:literal) => {
        concat!("least(clock.now + ", $millis, ", 253402300799999)")
    };
}

/// The pairs of state and kind of which there are rows, from one state to another, and the next one. Each step is one
/// search in the index: its order is one that no other index has.
macro_rules! lanes {
    ($first:literal, $last:literal) => {
        concat!(
            "lanes (state, kind) AS (
                (SELECT k.state, k.kind FROM {tasks} k WHERE (k.state, k.kind) >= (",
            $first,
            "::smallint, '')
                 ORDER BY k.state, k.kind LIMIT 1)
                UNION ALL
                SELECT n.state, n.kind FROM lanes l CROSS JOIN LATERAL (
                    SELECT k.state, k.kind FROM {tasks} k WHERE (k.state, k.kind) > (l.state, l.kind)
                    ORDER BY k.state, k.kind LIMIT 1) n
                WHERE l.state <= ",
            $last,
            ")"
        )
    };
}

/// What a claim makes of a row.
macro_rules! claim {
    ($owner:literal, $lease:literal) => {
        concat!(
            "state = 1, version = t.version + 1, attempt = t.attempt + 1, owner = ",
            $owner,
            ",
            wake_at = ",
            after!($lease),
            ", updated_at = clock.now"
        )
    };
}

/// The rows that become due, or have done so in the last 50 ms (`Ahead::SINCE`), of the lanes that are scheduled.
macro_rules! ahead {
    ($within:literal, $limit:literal) => {
        concat!(
            "SELECT u.id, u.kind, u.key, u.version, u.due_at, u.planned_at FROM lanes l CROSS JOIN LATERAL (
                SELECT t.id, t.kind, t.key, t.version, t.due_at, t.planned_at FROM {tasks} t
                WHERE t.kind = l.kind AND t.state = 0 AND t.due_at >= (SELECT clock.now - 50 FROM clock)
                    AND t.due_at <= (SELECT ",
            after!($within),
            " FROM clock)
                ORDER BY t.due_at, t.id LIMIT ",
            $limit,
            ") u
            WHERE l.state = 0
            ORDER BY u.due_at, u.id LIMIT ",
            $limit
        )
    };
}

/// Reads rows of which others are to be kept away: scheduled and dead ones are locked, the others are not. The first
/// column says how many have changed meanwhile and have to be read again.
macro_rules! hold {
    ($found:expr) => {
        concat!(
            "WITH found (id, state) AS MATERIALIZED (", $found, "),
            held AS MATERIALIZED (
                SELECT ", columns!(), " FROM found f JOIN {tasks} t ON t.id = f.id
                WHERE f.state IN (0, 3) AND t.state IN (0, 3) ORDER BY t.id FOR UPDATE OF t),
            both_kinds AS (
                SELECT * FROM held
                UNION ALL
                SELECT ", columns!(), " FROM found f JOIN {tasks} t ON t.id = f.id WHERE f.state NOT IN (0, 3))
            SELECT (SELECT count(*) FROM found f WHERE f.state IN (0, 3)) - (SELECT count(*) FROM held), r.*
            FROM (SELECT) one LEFT JOIN both_kinds r ON true"
        )
    };
}

/// Live and newest rows of the kinds `$1` and keys `$2`.
macro_rules! of_keys {
    ($columns:expr) => {
        concat!(
            "SELECT t.* FROM unnest($1::text[], $2::text[]) AS a (kind, key) CROSS JOIN LATERAL (
                (SELECT ", $columns, " FROM {tasks} t
                 WHERE t.kind = a.kind AND t.key = a.key AND t.key IS NOT NULL AND t.state IN (0, 1) LIMIT 1)
                UNION ALL
                (SELECT n.* FROM (SELECT ", $columns, " FROM {tasks} t
                 WHERE t.kind = a.kind AND t.key = a.key AND t.key IS NOT NULL ORDER BY t.id DESC LIMIT 1) n
                 WHERE n.state NOT IN (0, 1))) t"
        )
    };
}

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:expr;)*) => {
        /// Every statement, for one table.
        #[derive(Debug)]
        pub(super) struct Statements {
            $($(#[$doc])* pub(super) $name: SqlStr,)*
        }

        impl Statements {
            pub(super) fn of(table: &Table) -> Self {
                Self { $($name: table.fill($sql),)* }
            }

            #[cfg(test)]
            pub(super) fn all(&self) -> Vec<(&'static str, &str)> {
                vec![$((stringify!($name), self.$name.as_str())),*]
            }
        }
    };
}

/// What a row of [`arrive`](Statements::arrive) and [`sweep`](Statements::sweep) tells: its first column.
pub(super) mod what {
    /// A claimed row.
    pub(in crate::store::postgres) const CLAIMED: i32 = 0;
    /// A row that is not due.
    pub(in crate::store::postgres) const EARLY: i32 = 1;
    /// How many of a kind are waiting.
    pub(in crate::store::postgres) const WAITING: i32 = 2;
    /// How many wake-ups were stale.
    pub(in crate::store::postgres) const STALE: i32 = 3;
    /// How many leases had ended.
    pub(in crate::store::postgres) const EXPIRED: i32 = 4;
    /// A row that comes next.
    pub(in crate::store::postgres) const AHEAD: i32 = 5;
    /// The time of the statement.
    pub(in crate::store::postgres) const NOW: i32 = 6;
}

statements! {
    /// The time.
    now = concat!("SELECT ", now!());

    /// Tells the listeners of channel `$1`.
    notify = "SELECT pg_notify($1::text, '')";

    /// The rows of these ids.
    by_ids = concat!("SELECT ", columns!(), " FROM unnest($1::uuid[]) AS a (id) JOIN {tasks} t ON t.id = a.id");

    /// The live and the newest rows of these kinds and keys.
    by_keys = of_keys!(columns!());

    /// The rows of these ids, held.
    hold_ids = hold!("SELECT t.id, t.state FROM unnest($1::uuid[]) AS a (id) JOIN {tasks} t ON t.id = a.id");

    /// The live and the newest rows of these kinds and keys, held.
    hold_keys = hold!(of_keys!("t.id, t.state"));

    /// Writes new rows, at `$1` or else now, and leaves out those that meet another: says the time, and which were
    /// written, unless all were. Tells channel `$2` (none: nobody) if one of them is due within `$3` ms.
    add = concat!(
        "WITH clock AS MATERIALIZED (SELECT coalesce($1::bigint, ", now!(), ") AS now),
        given AS (
            SELECT g.*, CASE WHEN g.due_at IS NULL THEN ", after!("g.due_in"), " ELSE g.due_at END AS due,
                ", after!("g.look_in"), " AS wake_at, clock.now
            FROM clock CROSS JOIN unnest($4::uuid[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[],
                $10::bigint[], $11::text[], $12::bytea[])
                AS g (id, kind, key, due_in, due_at, look_in, max_attempts, headers, payload)),
        added AS (
            INSERT INTO {tasks} (id, kind, key, state, version, due_at, planned_at, wake_at, attempt, max_attempts,
                hop, created_at, updated_at, headers, payload)
            SELECT g.id, g.kind, g.key, 0, 1, g.due, g.due, g.wake_at, 0, g.max_attempts, 0, g.now, g.now, g.headers,
                g.payload
            FROM given g
            ON CONFLICT DO NOTHING RETURNING id, due_at),
        counted AS MATERIALIZED (
            SELECT count(*) AS rows, array_agg(a.id) AS ids, min(a.due_at) AS first FROM added a)
        SELECT clock.now, CASE WHEN c.rows < cardinality($4::uuid[]) THEN coalesce(c.ids, '{}') END,
            CASE WHEN $2::text IS NOT NULL AND c.first <= clock.now + $3::bigint
                THEN pg_notify($2::text, '')::text END
        FROM clock CROSS JOIN counted c"
    );

    /// Writes what a transition has made of rows that still have the version that they were read at.
    write = "UPDATE {tasks} t SET state = w.state, version = w.version, due_at = w.due_at, planned_at = w.planned_at,
            attempt = w.attempt, hop = w.hop, updated_at = w.updated_at, wake_at = w.wake_at,
            finished_at = w.finished_at, last_error = w.last_error
        FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[])
            AS w (id, read_at, state, version, due_at, planned_at, attempt, hop, updated_at, wake_at, finished_at,
                last_error)
        WHERE t.id = w.id AND t.version = w.read_at";

    /// Gives the row of id `$1` the payload, headers and limit of another.
    refill = "UPDATE {tasks} t SET payload = $2::bytea, headers = $3::text, max_attempts = $4::bigint
        WHERE t.id = $1::uuid";

    /// Looks at wake-ups of ids `$1` and versions `$2`; claims for `$5` and `$6` ms, of the kinds `$3` up to `$4` each.
    arrive = concat!(
        "WITH ", clock!(), ",
        asked AS MATERIALIZED (
            SELECT * FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY AS a (id, version, place)),
        room AS MATERIALIZED (SELECT * FROM unnest($3::text[], $4::bigint[]) AS r (kind, room)),
        locked AS MATERIALIZED (
            SELECT t.id, t.kind, t.key, t.version, t.due_at, t.planned_at, a.place FROM asked a JOIN {tasks} t ON t.id = a.id
            WHERE t.version = a.version AND t.state = 0
            FOR UPDATE OF t SKIP LOCKED),
        ranked AS (
            SELECT l.*, l.due_at <= clock.now AS is_due,
                row_number() OVER (PARTITION BY l.kind, l.due_at <= clock.now ORDER BY l.place) AS rank
            FROM locked l CROSS JOIN clock),
        judged AS MATERIALIZED (
            SELECT r.*, r.is_due AND r.rank <= coalesce((SELECT m.room FROM room m WHERE m.kind = r.kind), 0) AS fits
            FROM ranked r),
        claimed AS (
            UPDATE {tasks} t SET ", claim!("$5::text", "$6::bigint"), "
            FROM judged j CROSS JOIN clock WHERE j.fits AND t.id = j.id
            RETURNING ", columns!(), ")
        SELECT 0, 1::bigint, ", columns!(), " FROM claimed t
        UNION ALL
        SELECT 1, 1, ", pending!("j"), " FROM judged j WHERE NOT j.is_due
        UNION ALL
        SELECT 2, count(*), ", pending!(of "j.kind"), " FROM judged j
        WHERE j.is_due AND NOT j.fits GROUP BY j.kind
        UNION ALL
        SELECT 3, CASE WHEN (SELECT count(*) FROM locked) < (SELECT count(*) FROM asked) THEN (
                SELECT count(*) FROM asked a WHERE NOT EXISTS (
                    SELECT FROM {tasks} t WHERE t.id = a.id AND t.version = a.version AND t.state = 0))
            ELSE 0 END, ", pending!(of "NULL"), "
        UNION ALL
        SELECT 6, clock.now, ", pending!(of "NULL"), " FROM clock"
    );

    /// Claims what is due, for `$3` and `$4` ms: of the kinds `$1` up to `$2` each. One row without any where there is
    /// none.
    ready = concat!(
        "WITH ", clock!(), ",
        locked AS MATERIALIZED (
            SELECT d.id FROM unnest($1::text[], $2::bigint[]) AS r (kind, room) CROSS JOIN LATERAL (
                SELECT t.id FROM {tasks} t
                WHERE t.kind = r.kind AND t.state = 0 AND t.due_at <= (SELECT clock.now FROM clock)
                ORDER BY t.due_at, t.id LIMIT r.room FOR UPDATE SKIP LOCKED) d),
        claimed AS (
            UPDATE {tasks} t SET ", claim!("$3::text", "$4::bigint"), "
            FROM locked l CROSS JOIN clock WHERE t.id = l.id
            RETURNING ", columns!(), ")
        SELECT clock.now, ", columns!(), " FROM clock LEFT JOIN claimed t ON true"
    );

    /// Looks at rows whose `wake_at` has passed, up to `$5` of each kind and state, and `$7` ms ahead for up to `$8`;
    /// claims for `$3` and `$4` ms, of the kinds `$1` up to `$2` each, and leaves what is early alone for `$6` ms.
    ///
    /// Which rows they are is read before they are locked, so that those which wait for room are not written to.
    sweep = concat!(
        "WITH RECURSIVE ", lanes!("0", "1"), ",
        ", clock!(), ",
        room AS MATERIALIZED (SELECT * FROM unnest($1::text[], $2::bigint[]) AS r (kind, room)),
        overdue AS MATERIALIZED (
            SELECT o.* FROM lanes l CROSS JOIN LATERAL (
                SELECT t.id, t.kind, t.state, t.version, t.due_at, t.wake_at FROM {tasks} t
                WHERE t.state = l.state AND t.kind = l.kind AND t.wake_at <= (SELECT clock.now FROM clock)
                ORDER BY t.wake_at LIMIT $5::bigint) o
            WHERE l.state IN (0, 1)),
        ranked AS (
            SELECT o.*, o.due_at <= clock.now AS is_due,
                row_number() OVER (PARTITION BY o.kind, o.due_at <= clock.now ORDER BY o.state DESC, o.wake_at) AS rank
            FROM overdue o CROSS JOIN clock),
        judged AS MATERIALIZED (
            SELECT r.*, r.is_due AND r.rank <= coalesce((SELECT m.room FROM room m WHERE m.kind = r.kind), 0) AS fits
            FROM ranked r),
        locked AS MATERIALIZED (
            SELECT j.id, j.state, j.is_due, j.fits FROM judged j JOIN {tasks} t ON t.id = j.id
            WHERE (j.fits OR j.state = 1 OR NOT j.is_due) AND t.version = j.version AND t.state = j.state
                AND t.wake_at <= (SELECT clock.now FROM clock)
            FOR UPDATE OF t SKIP LOCKED),
        swept AS (
            UPDATE {tasks} t SET state = CASE WHEN l.fits THEN 1 ELSE 0 END,
                version = t.version + l.state + l.fits::int, attempt = t.attempt + l.fits::int,
                owner = CASE WHEN l.fits THEN $3::text ELSE t.owner END,
                wake_at = CASE WHEN l.fits THEN ", after!("$4::bigint"), "
                    WHEN NOT l.is_due THEN ", after!("$6::bigint"), " ELSE t.wake_at END,
                updated_at = CASE WHEN l.fits OR l.state = 1 THEN clock.now ELSE t.updated_at END
            FROM locked l CROSS JOIN clock WHERE t.id = l.id
            RETURNING ", columns!(), ", l.state AS was, l.is_due, l.fits)
        SELECT 0, 1::bigint, ", columns!(), " FROM swept t WHERE t.fits
        UNION ALL
        SELECT 1, 1, ", pending!("t"), " FROM swept t WHERE NOT t.is_due
        UNION ALL
        SELECT 2, count(*), ", pending!(of "w.kind"), " FROM (
            SELECT j.kind FROM judged j WHERE j.is_due AND NOT j.fits AND j.state = 0
            UNION ALL
            SELECT t.kind FROM swept t WHERE t.is_due AND NOT t.fits) w GROUP BY w.kind
        UNION ALL
        SELECT 4, count(*), ", pending!(of "NULL"), " FROM swept t WHERE t.was = 1
        UNION ALL
        SELECT 5, 1, ", pending!("a"), "
        FROM (", ahead!("$7::bigint", "$8::bigint"), ") a
        UNION ALL
        SELECT 6, clock.now, ", pending!(of "NULL"), " FROM clock"
    );

    /// Records hops: id, version, and in how many ms the next wake-up is overdue. Gives the ids.
    hop = concat!(
        "WITH ", clock!(), "
        UPDATE {tasks} t SET version = t.version + 1, hop = t.hop + 1, wake_at = ", after!("h.look_in"), "
        FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS h (id, version, look_in) CROSS JOIN clock
        WHERE t.id = h.id AND t.version = h.version AND t.state = 0
        RETURNING t.id"
    );

    /// Ends claims: id, version, state; due in so many ms, or at a time, or as before; when to look next, in ms;
    /// whether as a new task; whether the claim was no attempt; why. Gives the ids and
    /// the versions that ended.
    settle = concat!(
        "WITH ", clock!(), "
        UPDATE {tasks} t SET state = e.state, version = t.version + 1, due_at = coalesce(e.due, t.due_at),
            planned_at = CASE WHEN e.anew THEN e.due ELSE t.planned_at END,
            wake_at = e.wake_at,
            attempt = CASE WHEN e.anew THEN 0 WHEN e.give_back THEN greatest(t.attempt - 1, 0) ELSE t.attempt END,
            hop = CASE WHEN e.anew THEN 0 ELSE t.hop END,
            updated_at = e.now,
            finished_at = CASE WHEN e.state > 1 THEN e.now WHEN e.anew THEN NULL ELSE t.finished_at END,
            last_error = CASE WHEN e.anew THEN NULL ELSE coalesce(e.error, t.last_error) END
        FROM (
            SELECT g.id, g.version, g.state, g.anew, g.give_back, g.error, clock.now,
                CASE WHEN g.due_in IS NULL THEN g.due_at ELSE ", after!("g.due_in"), " END AS due,
                CASE WHEN g.wake_in IS NOT NULL THEN ", after!("g.wake_in"), " END AS wake_at
            FROM clock CROSS JOIN unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[],
                $6::bigint[], $7::boolean[], $8::boolean[], $9::text[])
                AS g (id, version, state, due_in, due_at, wake_in, anew, give_back, error)) e
        WHERE t.id = e.id AND t.version = e.version AND t.state = 1
        RETURNING t.id, e.version"
    );

    /// Moves the end of leases of ids `$1` and versions `$2` to `$3` ms from now. Gives the id and version of those that
    /// are still held, and whether it was moved.
    renew = concat!(
        "WITH ", clock!(), ",
        asked AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS a (id, version)),
        locked AS MATERIALIZED (
            SELECT t.id FROM asked a JOIN {tasks} t ON t.id = a.id
            WHERE t.version = a.version AND t.state = 1
            FOR UPDATE OF t SKIP LOCKED),
        renewed AS (
            UPDATE {tasks} t SET wake_at = ", after!("$3::bigint"), "
            FROM locked l CROSS JOIN clock WHERE t.id = l.id
            RETURNING t.id, t.version)
        SELECT r.id, r.version, true FROM renewed r
        UNION ALL
        SELECT t.id, t.version, false FROM asked a JOIN {tasks} t ON t.id = a.id
        WHERE t.version = a.version AND t.state = 1
            AND (SELECT count(*) FROM locked) < (SELECT count(*) FROM asked)"
    );

    /// Looks `$1` ms ahead for up to `$2` rows. One row without any where there is none.
    upcoming = concat!(
        "WITH RECURSIVE ", lanes!("0", "0"), ",
        ", clock!(), "
        SELECT clock.now, a.id, a.kind, a.key, a.version, a.due_at, a.planned_at
        FROM clock LEFT JOIN (", ahead!("$1::bigint", "$2::bigint"), ") a ON true"
    );

    /// Rows of kind `$1` in state `$2` after due time `$3` and id `$4`, at most `$5`.
    list = concat!(
        "SELECT ", columns!(), " FROM {tasks} t
        WHERE t.kind = $1::text AND t.state = $2::smallint AND (t.due_at, t.id) > ($3::bigint, $4::uuid)
        ORDER BY t.due_at, t.id LIMIT $5::bigint"
    );

    /// The first kind after `$2` of which there are rows in state `$1`.
    next_kind = "SELECT t.kind FROM {tasks} t WHERE t.state = $1::smallint AND t.kind > $2::text
        ORDER BY t.state, t.kind LIMIT 1";

    /// Removes done and cancelled rows whose `wake_at` has passed, up to `$1` of each kind.
    purge = concat!(
        "WITH RECURSIVE ", lanes!("2", "4"), ",
        ", clock!(), ",
        locked AS MATERIALIZED (
            SELECT p.id, row_number() OVER (PARTITION BY p.kind) AS rank FROM lanes l CROSS JOIN LATERAL (
                SELECT t.id, t.kind FROM {tasks} t
                WHERE t.state = l.state AND t.kind = l.kind AND t.wake_at <= (SELECT clock.now FROM clock)
                ORDER BY t.wake_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED) p
            WHERE l.state IN (2, 4))
        DELETE FROM {tasks} t USING locked l WHERE t.id = l.id AND l.rank <= $1::bigint"
    );
}
