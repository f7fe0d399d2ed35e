//! Every statement of a running store, in one place.
//!
//! A batch is one statement, whatever its size: each of its columns comes as one array. So a statement never changes,
//! and stays prepared.
//!
//! None may read the table from end to end, whatever the statistics say. So kinds are found by jumping from one to the
//! next in an index, every scan has a limit, and the store's own connections do not consider anything but indexes (see
//! [`connections`](super::connections)). What is taken by due time is asked for as a range of whole rows of that index, as
//! in `(kind, state, due_at) <= (…)`: by single columns, a planner that thinks that a kind has few rows would find all of
//! them by another index, to sort them and take the first.
//!
//! What is meant by its id is looked for by it, each row by itself (`LATERAL`, with a lock or `OFFSET 0` so that it stays
//! so), and asked for its state as `state + 0`, which no index has. Else statistics of a moment at which there were few rows,
//! or none of that state, would have all of them read, and compared with each that is meant.
//!
//! Who claims, renews, sweeps or purges locks rows in a step of its own, which is done before anything is written, and
//! leaves out those that somebody else has locked. `MATERIALIZED` keeps these steps from being merged or repeated.

#[macro_use]
mod pieces;

use sqlx::SqlStr;

use super::read::Query;
use super::table::Table;

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:expr;)*) => {
        /// Every statement, for one table.
        #[derive(Debug)]
        pub(super) struct Statements {
            /// Whether they stay prepared.
            pub(super) prepared: bool,
            $($(#[$doc])* pub(super) $name: SqlStr,)*
        }

        impl Statements {
            pub(super) fn of(table: &Table, prepared: bool) -> Self {
                Self { prepared, $($name: table.fill($sql),)* }
            }

            /// One of them, to be given its values.
            pub(super) fn query(&self, statement: &SqlStr) -> Query<'static> {
                sqlx::query(statement.clone()).persistent(self.prepared)
            }

            #[cfg(test)]
            pub(super) fn all(&self) -> Vec<(&'static str, &str)> {
                vec![$((stringify!($name), self.$name.as_str())),*]
            }
        }
    };
}

/// What a row of the statements that hold rows tells: its first column; else that it could not be locked.
pub(super) mod hold {
    /// The row is locked.
    pub(in crate::store::postgres) const HELD: i32 = 0;
    /// It was only looked at.
    pub(in crate::store::postgres) const SEEN: i32 = 1;
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
    /// A row whose lease has ended, as far as the statement can see.
    pub(in crate::store::postgres) const ENDED: i32 = 4;
    /// A row that comes next.
    pub(in crate::store::postgres) const AHEAD: i32 = 5;
    /// The time of the statement.
    pub(in crate::store::postgres) const NOW: i32 = 6;
}

statements! {
    /// The time.
    now = concat!("SELECT ", now!());

    /// Waits for its turn among those who wait for rows of the table that `$1` names.
    turn = "SELECT pg_advisory_xact_lock(hashtextextended('delayline ' || $1::text, 0))";

    /// Tells the listeners of channel `$1`.
    notify = "SELECT pg_notify($1::text, '')";

    /// The rows of these ids.
    by_ids = concat!("SELECT ", columns!(leased), " FROM (", of_ids!(), ") t", leased!());

    /// The rows of these kinds and keys, of each its live one, else the newest.
    by_keys = concat!("SELECT ", columns!(leased), " FROM (", of_keys!(), ") t", leased!());

    /// The rows of these ids, held as far as nobody else has them locked.
    hold_ids = hold!(of_ids!(), "$2", "$3", " SKIP LOCKED");

    /// The rows of these kinds and keys, of each its live one, else the newest, held as far as nobody else has them locked.
    hold_keys = hold!(of_keys!(), "$3", "$4", " SKIP LOCKED");

    /// The rows of these ids, held as soon as they can be.
    await_ids = hold!(of_ids!(), "$2", "$3", "");

    /// The rows of these kinds and keys, of each its live one, else the newest, held as soon as they can be.
    await_keys = hold!(of_keys!(), "$3", "$4", "");

    /// Writes new rows, at `$1` or else now, and leaves out those that meet another: says the time, and which were
    /// written, unless all were. Tells channel `$2` (none: nobody) if one of them is due within `$3` ms.
    add = concat!(
        "WITH clock AS MATERIALIZED (SELECT coalesce($1::bigint, ", now!(), ") AS now),
        given AS (
            SELECT g.*, CASE WHEN g.due_at IS NULL THEN ", after!("g.due_in"), " ELSE g.due_at END AS due,
                ", after!("g.look_in"), " AS wake_at, clock.now
            FROM clock CROSS JOIN unnest($4::uuid[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[],
                $10::bigint[], $11::text[], $12::bytea[], $13::text[], $14::text[])
                AS g (id, kind, key, due_in, due_at, look_in, max_attempts, headers, payload, note, sent)),
        added AS (
            INSERT INTO {tasks} (id, kind, key, state, version, due_at, planned_at, wake_at, attempt, max_attempts,
                hop, created_at, updated_at, headers, payload, stalls, history, sent)
            SELECT g.id, g.kind, g.key, 0, 1, g.due, greatest(g.due, g.now), g.wake_at, 0, g.max_attempts, 0, g.now,
                g.now, g.headers, g.payload, 0,
                CASE WHEN g.note IS NULL THEN ''
                    ELSE right(E'\\n1 ' || g.now || ' - ' || g.due || ' ' || g.note, 16384) END,
                CASE WHEN g.sent IS NOT NULL THEN '1 ' || g.now || ' ' || g.sent END
            FROM given g
            ON CONFLICT DO NOTHING RETURNING id, due_at),
        counted AS MATERIALIZED (
            SELECT count(*) AS rows, array_agg(a.id) AS ids, min(a.due_at) AS first FROM added a)
        SELECT clock.now, CASE WHEN c.rows < cardinality($4::uuid[]) THEN coalesce(c.ids, '{}') END,
            CASE WHEN $2::text IS NOT NULL AND c.first <= clock.now + $3::bigint
                THEN pg_notify($2::text, '')::text END
        FROM clock CROSS JOIN counted c"
    );

    /// Makes changes of rows of ids `$1`, or of kinds `$2` and keys `$3`, that are scheduled, of version `$4` and due at
    /// `$5`, if these are said, and that nobody has locked: of each row the first. To be of state `$6`, and due after `$7` ms
    /// or at `$8` if one of them is said, and looked at after `$9` ms, and noted by `$12` and `$13`. Tells channel `$10` (none: nobody) if one of them is
    /// due within `$11` ms. Gives the time, and each changed row behind its place in the batch; one row without any
    /// where there is none.
    change = concat!(
        "WITH ", clock!(), ",
        asked AS MATERIALIZED (
            SELECT g.*, clock.now, CASE WHEN g.due_in IS NULL THEN g.due_at ELSE ", after!("g.due_in"), " END AS due,
                ", after!("g.look_in"), " AS wake_at, coalesce(g.due_in, g.due_at) IS NOT NULL AS anew, false AS hop,
                0 AS given_back, NULL::text AS error
            FROM clock CROSS JOIN unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::smallint[],
                $7::bigint[], $8::bigint[], $9::bigint[], $12::text[], $13::text[]) WITH ORDINALITY
                AS g (id, kind, key, version, is_due, state, due_in, due_at, look_in, note, sent, place)),
        found AS MATERIALIZED (
            SELECT DISTINCT ON (f.found) f.* FROM (
                SELECT a.*, a.id AS found FROM asked a WHERE a.id IS NOT NULL
                UNION ALL
                SELECT a.*, l.id FROM asked a CROSS JOIN LATERAL (
                    SELECT t.id FROM {tasks} t
                    WHERE t.kind || '' = a.kind AND t.key = a.key AND t.key IS NOT NULL AND t.state + 0 IN (0, 1)
                    LIMIT 1) l
                WHERE a.id IS NULL) f
            ORDER BY f.found, f.place),
        locked AS MATERIALIZED (
            SELECT f.* FROM found f CROSS JOIN LATERAL (
                SELECT FROM {tasks} t WHERE t.id = f.found AND t.state + 0 = 0 AND t.updated_at <= f.now
                    AND t.version = coalesce(f.version, t.version) AND t.due_at = coalesce(f.is_due, t.due_at)
                FOR NO KEY UPDATE SKIP LOCKED) t),
        changed AS (
            UPDATE {tasks} t SET ", transition!(), "
            FROM locked s WHERE t.id = s.found
            RETURNING s.place, ", columns!(), "),
        told AS MATERIALIZED (
            SELECT CASE WHEN $10::text IS NOT NULL AND EXISTS (
                    SELECT FROM changed c WHERE c.state = 0 AND c.due_at <= clock.now + $11::bigint)
                THEN pg_notify($10::text, '')::text END FROM clock)
        SELECT clock.now, told.*, t.* FROM clock CROSS JOIN told LEFT JOIN changed t ON true"
    );

    /// Writes what a transition has made of rows that still have the version that they were read at.
    write = "UPDATE {tasks} t SET state = w.state, version = w.version, due_at = w.due_at, planned_at = w.planned_at,
            attempt = w.attempt, stalls = w.stalls, hop = w.hop, updated_at = w.updated_at, wake_at = w.wake_at,
            finished_at = w.finished_at, last_error = w.last_error
        FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[])
            AS w (id, read_at, state, version, due_at, planned_at, attempt, stalls, hop, updated_at, wake_at,
                finished_at, last_error)
        WHERE t.id = w.id AND t.version = w.read_at";

    /// Adds to what is noted of rows of ids `$1`: lines of history `$2`, the wake-up sent last `$3`.
    note = "UPDATE {tasks} t SET history = right(t.history || n.history, 16384), sent = coalesce(n.sent, t.sent)
        FROM unnest($1::uuid[], $2::text[], $3::text[]) AS n (id, history, sent) WHERE t.id = n.id";

    /// What is noted of the row of id `$1`.
    noted = "SELECT t.history, t.sent FROM {tasks} t WHERE t.id = $1::uuid";

    /// Gives the row of id `$1` the payload, headers and limit of another.
    refill = "UPDATE {tasks} t SET payload = $2::bytea, headers = $3::text, max_attempts = $4::bigint
        WHERE t.id = $1::uuid";

    /// Looks at wake-ups of ids `$1` and versions `$2`; claims for `$5` and `$6` ms, of the kinds `$3` up to `$4` each,
    /// and no more once there are `$7` bytes of payloads. `$8` is noted of each.
    arrive = concat!(
        "WITH ", clock!(), ",
        asked AS MATERIALIZED (
            SELECT * FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY AS a (id, version, place)),
        room AS MATERIALIZED (SELECT * FROM unnest($3::text[], $4::bigint[]) AS r (kind, room)),
        locked AS MATERIALIZED (
            SELECT t.*, a.place FROM asked a CROSS JOIN LATERAL (
                SELECT t.id, t.kind, t.key, t.version, t.due_at, t.planned_at, octet_length(t.payload) AS bytes
                FROM {tasks} t WHERE t.id = a.id AND t.version = a.version AND t.state + 0 = 0
                FOR NO KEY UPDATE SKIP LOCKED) t),
        ranked AS (
            SELECT l.*, l.due_at <= clock.now AS is_due,
                row_number() OVER (PARTITION BY l.kind, l.due_at <= clock.now ORDER BY l.place) AS rank
            FROM locked l CROSS JOIN clock),
        roomy AS (
            SELECT r.*, r.is_due AND r.rank <= coalesce((SELECT m.room FROM room m WHERE m.kind = r.kind), 0) AS has_room
            FROM ranked r),
        judged AS MATERIALIZED (
            SELECT r.*, r.has_room AND ", before!("r.place", "CASE WHEN r.has_room THEN r.bytes END"), " < $7::bigint AS fits
            FROM roomy r),
        claimed AS (
            UPDATE {tasks} t SET ", claim!("$5::text", "$6::bigint", "$8::text"), "
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
                    SELECT FROM {tasks} t WHERE t.id = a.id AND t.version = a.version AND t.state + 0 = 0 OFFSET 0))
            ELSE 0 END, ", pending!(of "NULL"), "
        UNION ALL
        SELECT 6, clock.now, ", pending!(of "NULL"), " FROM clock"
    );

    /// Claims what is due, for `$3` and `$4` ms: of the kinds `$1` up to `$2` each, and no more once there are `$5` bytes
    /// of payloads, and notes `$6` of each. One row without any where there is none.
    ready = concat!(
        "WITH ", clock!(), ",
        locked AS MATERIALIZED (
            SELECT d.* FROM unnest($1::text[], $2::bigint[]) AS r (kind, room) CROSS JOIN LATERAL (
                SELECT t.id, t.due_at, octet_length(t.payload) AS bytes FROM {tasks} t
                WHERE (t.kind, t.state) >= (r.kind, 0)
                    AND (t.kind, t.state, t.due_at) <= (r.kind, 0, (SELECT clock.now FROM clock))
                ORDER BY t.kind, t.state, t.due_at, t.id LIMIT r.room FOR NO KEY UPDATE SKIP LOCKED) d),
        summed AS (SELECT l.id, ", before!("l.due_at, l.id", "l.bytes"), " AS bytes FROM locked l),
        claimed AS (
            UPDATE {tasks} t SET ", claim!("$3::text", "$4::bigint", "$6::text"), "
            FROM summed l CROSS JOIN clock WHERE l.bytes < $5::bigint AND t.id = l.id
            RETURNING ", columns!(), ")
        SELECT clock.now, ", columns!(), " FROM clock LEFT JOIN claimed t ON true"
    );

    /// Looks at rows whose `wake_at` has passed, up to `$5` of each kind and state, and `$7` ms ahead for up to `$8`;
    /// claims for `$3` and `$4` ms, of the kinds `$1` up to `$2` each, and no more once there are `$9` bytes of payloads;
    /// leaves what is early alone for `$6` ms. `$10` is noted of each claim. Of leases that have ended it only tells: [`expire`](Statements::expire)
    /// ends them.
    ///
    /// Which rows they are is read before they are locked, so that those which wait for room are not written to. A row
    /// whose claim was renewed is none of them, and does not take the place of one that is.
    sweep = concat!(
        "WITH RECURSIVE ", lanes!("0", "1"), ",
        ", clock!(), ",
        room AS MATERIALIZED (SELECT * FROM unnest($1::text[], $2::bigint[]) AS r (kind, room)),
        overdue AS MATERIALIZED (
            SELECT o.* FROM lanes l CROSS JOIN LATERAL (
                SELECT t.id, t.kind, t.key, t.state, t.version, t.due_at, t.planned_at, t.wake_at,
                    octet_length(t.payload) AS bytes
                FROM {tasks} t
                WHERE t.state = l.state AND t.kind = l.kind AND t.wake_at <= (SELECT clock.now FROM clock)
                    AND (t.state = 0 OR coalesce((SELECT r.until FROM {leases} r
                        WHERE r.id = t.id AND r.version = t.version), 0) <= (SELECT clock.now FROM clock))
                ORDER BY t.wake_at LIMIT $5::bigint) o
            WHERE l.state IN (0, 1)),
        shortened AS MATERIALIZED (
            SELECT t.* FROM {leases} r CROSS JOIN LATERAL (
                SELECT t.id, t.kind, t.key, t.version, t.due_at, t.planned_at FROM {tasks} t
                WHERE t.id = r.id AND t.version = r.version AND t.state + 0 = 1
                    AND t.wake_at > (SELECT clock.now FROM clock) OFFSET 0) t
            WHERE r.until <= (SELECT clock.now FROM clock)
            ORDER BY r.until LIMIT $5::bigint),
        ranked AS (
            SELECT o.*, o.due_at <= clock.now AS is_due,
                row_number() OVER (PARTITION BY o.kind, o.due_at <= clock.now ORDER BY o.wake_at, o.id) AS rank
            FROM overdue o CROSS JOIN clock WHERE o.state = 0),
        roomy AS (
            SELECT r.*, r.is_due AND r.rank <= coalesce((SELECT m.room FROM room m WHERE m.kind = r.kind), 0) AS has_room
            FROM ranked r),
        judged AS MATERIALIZED (
            SELECT r.*, r.has_room AND ", before!("r.wake_at, r.id", "CASE WHEN r.has_room THEN r.bytes END"), " < $9::bigint
                AS fits
            FROM roomy r),
        locked AS MATERIALIZED (
            SELECT j.id, j.is_due, j.fits FROM judged j CROSS JOIN LATERAL (
                SELECT FROM {tasks} t WHERE t.id = j.id AND t.version = j.version AND t.state + 0 = 0
                    AND t.wake_at <= (SELECT clock.now FROM clock)
                FOR NO KEY UPDATE SKIP LOCKED) t
            WHERE j.fits OR NOT j.is_due),
        swept AS (
            UPDATE {tasks} t SET state = l.fits::int, version = t.version + l.fits::int,
                attempt = t.attempt + l.fits::int, owner = CASE WHEN l.fits THEN $3::text ELSE t.owner END,
                wake_at = CASE WHEN l.fits THEN ", after!("$4::bigint"), " ELSE ", after!("$6::bigint"), " END,
                updated_at = CASE WHEN l.fits THEN clock.now ELSE t.updated_at END,
                history = CASE WHEN l.fits THEN ", history!("$10::text", "clock.now", "t.due_at"), " ELSE t.history END
            FROM locked l CROSS JOIN clock WHERE t.id = l.id
            RETURNING ", columns!(), ", l.fits)
        SELECT 0, 1::bigint, ", columns!(), " FROM swept t WHERE t.fits
        UNION ALL
        SELECT 1, 1, ", pending!("t"), " FROM swept t WHERE NOT t.fits
        UNION ALL
        SELECT 2, count(*), ", pending!(of "j.kind"), " FROM judged j WHERE j.is_due AND NOT j.fits GROUP BY j.kind
        UNION ALL
        SELECT 4, 1, ", pending!("o"), " FROM overdue o WHERE o.state = 1
        UNION ALL
        SELECT 4, 1, ", pending!("s"), " FROM shortened s
        UNION ALL
        SELECT 5, 1, ", pending!("a"), "
        FROM (", ahead!("$7::bigint", "$8::bigint"), ") a
        UNION ALL
        SELECT 6, clock.now, ", pending!(of "NULL"), " FROM clock"
    );

    /// Locks rows of ids `$1` and versions `$2` that run, as far as nobody else has them locked. Gives the ids.
    lock = "SELECT t.id FROM unnest($1::uuid[], $2::bigint[]) AS a (id, version) CROSS JOIN LATERAL (
            SELECT t.id FROM {tasks} t WHERE t.id = a.id AND t.version = a.version AND t.state + 0 = 1
            FOR UPDATE SKIP LOCKED) t";

    /// Ends leases of rows of ids `$1` that are locked, as far as they have ended: nobody can renew them now, and what was
    /// renewed until then this statement sees, as the one that has locked them may not. `$2` is noted of each.
    expire = concat!(
        "WITH ", clock!(), ",
        ended AS MATERIALIZED (
            SELECT t.id, coalesce(l.started, false) AS started FROM clock CROSS JOIN unnest($1::uuid[]) AS a (id)
            CROSS JOIN LATERAL (SELECT t.* FROM {tasks} t WHERE t.id = a.id AND t.state + 0 = 1 OFFSET 0) t", leased!(), "
            WHERE coalesce(l.until, t.wake_at) <= clock.now),
        expired AS (
            UPDATE {tasks} t SET state = 0, version = t.version + 1, updated_at = clock.now,
                wake_at = least(t.wake_at, clock.now),
                attempt = CASE WHEN e.started THEN t.attempt ELSE greatest(t.attempt - 1, 0) END,
                stalls = least(t.stalls + 1, 4294967295),
                history = ", history!("$2::text", "clock.now", "t.due_at"), "
            FROM ended e CROSS JOIN clock WHERE t.id = e.id
            RETURNING t.id),
        removed AS (DELETE FROM {leases} l USING ended e WHERE l.id = e.id)
        SELECT count(*) FROM expired"
    );

    /// Takes steps: id, version, and then each column of a [`Transition`](crate::store::transition::Transition), and what is noted of it. Gives the
    /// id and version of those that hold, and whether the step was taken: else somebody else has the row locked.
    advance = advance!(concat!(",
        removed AS (DELETE FROM {leases} l USING locked k WHERE l.id = k.id AND k.was = 1)"));

    /// The same in a service's transaction, which may see leases as they were when it began, and so leaves them alone.
    finish = advance!("");

    /// Moves the end of leases of ids `$1` and versions `$2` to `$3` ms from now, and notes which have started, `$4`.
    /// Gives the id and version of those that are still held, and whether it was moved: else somebody else has the row
    /// locked.
    ///
    /// The rows stay as they are. They are locked so that nobody ends these leases meanwhile, who locks them otherwise.
    renew = concat!(
        "WITH ", clock!(), ",
        asked AS MATERIALIZED (
            SELECT * FROM unnest($1::uuid[], $2::bigint[], $4::boolean[]) AS a (id, version, started)),
        locked AS MATERIALIZED (
            SELECT a.* FROM asked a CROSS JOIN LATERAL (
                SELECT FROM {tasks} t WHERE t.id = a.id AND t.version = a.version AND t.state + 0 = 1
                FOR KEY SHARE SKIP LOCKED) t),
        renewed AS (
            INSERT INTO {leases} AS l (id, version, until, renewed_at, started)
            SELECT k.id, k.version, ", after!("$3::bigint"), ", clock.now, k.started FROM locked k CROSS JOIN clock
            ON CONFLICT (id) DO UPDATE SET version = excluded.version, until = excluded.until,
                renewed_at = excluded.renewed_at,
                started = excluded.started OR (l.started AND l.version = excluded.version)
            RETURNING l.id, l.version)
        ", came!("renewed", "1")
    );

    /// Rows of kind `$1` in state `$2` after due time `$3` and id `$4`, at most `$5`.
    list = concat!(
        "SELECT ", columns!(leased), " FROM {tasks} t", leased!(), "
        WHERE (t.kind, t.state, t.due_at, t.id) > ($1::text, $2::smallint, $3::bigint, $4::uuid)
            AND (t.kind, t.state) <= ($1::text, $2::smallint)
        ORDER BY t.kind, t.state, t.due_at, t.id LIMIT $5::bigint"
    );

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
    due_within = concat!(
        "WITH ", clock!(), ",
        first AS MATERIALIZED (
            SELECT t.due_at FROM {tasks} t
            WHERE (t.kind, t.state) >= ($1::text, $2::smallint) AND (t.kind, t.state, t.due_at) <= (
                $1::text, $2::smallint, (
                    SELECT max(clock.now + s.span) FROM clock CROSS JOIN unnest($3::bigint[]) AS s (span)))
            ORDER BY t.kind, t.state, t.due_at, t.id LIMIT $4::bigint)
        SELECT clock.now, ARRAY(
            SELECT (SELECT count(*) FROM first f WHERE f.due_at <= clock.now + s.span)
            FROM unnest($3::bigint[]) WITH ORDINALITY AS s (span, place) ORDER BY s.place)
        FROM clock"
    );

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

    /// Mends leases that were given while the clock was ahead, of up to `$1` rows of each kind.
    mend = concat!(
        "WITH RECURSIVE ", lanes!("1", "1"), ",
        ", clock!(), ",
        locked AS MATERIALIZED (
            SELECT t.id FROM lanes l CROSS JOIN LATERAL (
                SELECT t.id FROM {tasks} t WHERE t.state = l.state AND t.kind = l.kind
                ORDER BY t.wake_at DESC LIMIT $1::bigint) p
            CROSS JOIN LATERAL (
                SELECT t.id FROM {tasks} t WHERE t.id = p.id AND t.state + 0 = 1
                    AND t.updated_at > (SELECT clock.now FROM clock)
                FOR UPDATE SKIP LOCKED) t
            WHERE l.state = 1)
        UPDATE {tasks} t SET wake_at = ", after!("greatest(t.wake_at - t.updated_at, 0)"), ", updated_at = clock.now
        FROM locked l CROSS JOIN clock WHERE t.id = l.id"
    );

    /// The same where claims were renewed then, of up to `$1` of all.
    mend_leases = concat!(
        "WITH ", clock!(), ",
        locked AS MATERIALIZED (
            SELECT l.id FROM (SELECT f.id FROM {leases} f WHERE f.until > (SELECT clock.now FROM clock)
                ORDER BY f.until DESC LIMIT $1::bigint) f
            JOIN {leases} l ON l.id = f.id WHERE l.renewed_at > (SELECT clock.now FROM clock)
            FOR UPDATE OF l SKIP LOCKED)
        UPDATE {leases} l SET until = ", after!("greatest(l.until - l.renewed_at, 0)"), ", renewed_at = clock.now
        FROM locked k CROSS JOIN clock WHERE l.id = k.id"
    );

    /// Removes up to `$1` of what was renewed of claims that are no more.
    purge_leases = concat!(
        "WITH ", clock!(), ",
        past AS MATERIALIZED (
            SELECT l.id, l.version FROM {leases} l WHERE l.until <= (SELECT clock.now FROM clock)
            ORDER BY l.until LIMIT $1::bigint)
        DELETE FROM {leases} l USING past p
        WHERE l.id = p.id AND l.version = p.version AND NOT EXISTS (
            SELECT FROM {tasks} t WHERE t.id = l.id AND t.version = l.version AND t.state + 0 = 1 OFFSET 0)"
    );
}
