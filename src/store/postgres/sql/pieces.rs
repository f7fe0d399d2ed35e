//! What several statements have in common.

/// The columns of a row, in the order in which [`codec::task`](super::codec::task) reads them.
macro_rules! columns {
    ($wake_at:literal, $started:literal) => {
        concat!(
            "t.id, t.kind, t.key, t.state, t.version, t.due_at, t.planned_at, ",
            $wake_at,
            ", t.attempt, ",
            $started,
            ", t.stalls, t.max_attempts, t.hop, t.created_at, t.updated_at, t.finished_at, t.owner, t.last_error,
             t.headers, t.payload"
        )
    };
    // Of a row whose lease nobody has renewed.
    () => {
        columns!("t.wake_at", "false")
    };
    // Of a row that was joined to its lease.
    (leased) => {
        columns!("coalesce(l.until, t.wake_at)", "coalesce(l.started, false)")
    };
}

/// Joins rows to what was renewed of their claims.
macro_rules! leased {
    () => {
        " LEFT JOIN {leases} l ON l.id = t.id AND l.version = t.version "
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
            ".planned_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"
        )
    };
    (of $kind:literal) => {
        concat!(
            "NULL, ",
            $kind,
            ", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
             NULL"
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

/// The history of a row with a line more, if there is one: the row was due before and is due then.
macro_rules! history {
    ($note:literal, $now:literal, $due:literal) => {
        concat!(
            "CASE WHEN ",
            $note,
            " IS NULL THEN t.history
                ELSE right(t.history || E'\\n' || (t.version + 1) || ' ' || ",
            $now,
            " || ' ' || t.due_at || ' ' || ",
            $due,
            "
                    || ' ' || ",
            $note,
            ", 16384) END"
        )
    };
}

/// What a claim makes of a row.
macro_rules! claim {
    ($owner:literal, $lease:literal, $note:literal) => {
        concat!(
            "state = 1, version = t.version + 1, attempt = t.attempt + 1, owner = ",
            $owner,
            ",
            wake_at = ",
            after!($lease),
            ", updated_at = clock.now, history = ",
            history!($note, "clock.now", "t.due_at")
        )
    };
}

/// The rows that become due, or have done so in the last 50 ms (`Ahead::SINCE`), of the lanes that are scheduled.
macro_rules! ahead {
    ($within:literal, $limit:literal) => {
        concat!(
            "SELECT u.id, u.kind, u.key, u.version, u.due_at, u.planned_at FROM lanes l CROSS JOIN LATERAL (
                SELECT t.id, t.kind, t.key, t.version, t.due_at, t.planned_at FROM {tasks} t
                WHERE (t.kind, t.state, t.due_at) >= (l.kind, 0, (SELECT clock.now - 50 FROM clock))
                    AND (t.kind, t.state, t.due_at) <= (l.kind, 0, (SELECT ",
            after!($within),
            " FROM clock))
                ORDER BY t.kind, t.state, t.due_at, t.id LIMIT ",
            $limit,
            ") u
            WHERE l.state = 0
            ORDER BY u.due_at, u.id LIMIT ",
            $limit
        )
    };
}

/// Reads rows of which others are to be kept away: scheduled and dead ones are locked if `$changeable` says so, and those
/// whose lease has ended unless `$except` names them; the others are not. The first column says of each row whether it is locked (0), only
/// looked at (1), or could not be locked (2); the second, its place among what was asked for.
macro_rules! hold {
    ($found:expr, $except:literal, $changeable:literal, $skip:literal) => {
        concat!(
            "WITH ", clock!(), ",
            found AS MATERIALIZED (
                SELECT t.place, t.id, t.state, t.version,
                    t.state IN (0, 3) AND ", $changeable, "::boolean OR (t.state = 1 AND coalesce(l.until, t.wake_at) <= clock.now
                        AND t.id <> ALL (", $except, "::uuid[])) AS wanted
                FROM clock CROSS JOIN (", $found, ") t", leased!(), "),
            held AS MATERIALIZED (
                SELECT f.place, ", columns!(), " FROM found f JOIN {tasks} t ON t.id = f.id
                WHERE f.wanted AND CASE WHEN f.state = 1 THEN t.state = 1 AND t.version = f.version
                    ELSE t.state IN (0, 3) END
                ORDER BY t.id FOR UPDATE OF t", $skip, ")
            SELECT 0, h.* FROM held h
            UNION ALL
            SELECT 1, f.place, ", columns!(leased), " FROM found f JOIN {tasks} t ON t.id = f.id", leased!(), "
            WHERE NOT f.wanted
            UNION ALL
            SELECT 2, f.place, f.id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                NULL, NULL, NULL, NULL, NULL
            FROM found f
            WHERE f.wanted AND (SELECT count(*) FROM held) < (SELECT count(*) FROM found w WHERE w.wanted)
                AND NOT EXISTS (SELECT FROM held h WHERE h.id = f.id)"
        )
    };
}

/// The rows of the ids `$1`.
macro_rules! of_ids {
    () => {
        "SELECT a.place, t.* FROM unnest($1::uuid[]) WITH ORDINALITY AS a (id, place)
         CROSS JOIN LATERAL (SELECT t.* FROM {tasks} t WHERE t.id = a.id OFFSET 0) t"
    };
}

/// The rows of the kinds `$1` and keys `$2`: of each its live one, else the newest.
macro_rules! of_keys {
    () => {
        "SELECT a.place, t.* FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS a (kind, key, place)
         CROSS JOIN LATERAL (
            SELECT c.* FROM (
                (SELECT 1 AS choice, l.* FROM {tasks} l
                 WHERE l.kind || '' = a.kind AND l.key = a.key AND l.key IS NOT NULL AND l.state + 0 IN (0, 1) LIMIT 1)
                UNION ALL
                (SELECT 2, n.* FROM {tasks} n
                 WHERE n.kind || '' = a.kind AND n.key = a.key AND n.key IS NOT NULL AND n.state + 0 > 1
                 ORDER BY n.created_at DESC, n.id DESC LIMIT 1)) c
            ORDER BY c.choice LIMIT 1) t"
    };
}

/// The sum of a column over the rows before, in an order.
macro_rules! before {
    ($order:literal, $column:literal) => {
        concat!(
            "coalesce(sum(",
            $column,
            ") OVER (ORDER BY ",
            $order,
            " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)"
        )
    };
}

/// What came of guarded writes: the id and version of those that were made, and of those that hold in the state `$state`
/// and could not be locked. The statement sees the rows as they were before, so the former are among the latter.
macro_rules! came {
    ($made:literal, $state:literal) => {
        concat!(
            "SELECT r.*, true FROM ",
            $made,
            " r
            UNION ALL
            SELECT a.id, a.version, false FROM asked a CROSS JOIN LATERAL (
                SELECT FROM {tasks} t WHERE t.id = a.id AND t.version = a.version AND t.state + 0 = ",
            $state,
            " OFFSET 0) t
            WHERE (SELECT count(*) FROM locked) < (SELECT count(*) FROM asked)"
        )
    };
}

/// What a transition `s` makes of a row.
macro_rules! transition {
    () => {
        concat!("state = s.state, version = t.version + 1, due_at = coalesce(s.due, t.due_at),
                    planned_at = CASE WHEN s.anew THEN greatest(s.due, s.now) ELSE t.planned_at END,
                    wake_at = s.wake_at,
                    attempt = CASE WHEN s.anew THEN 0 ELSE greatest(t.attempt - s.given_back, 0) END,
                    stalls = CASE WHEN s.due IS NULL THEN t.stalls ELSE 0 END,
                    hop = CASE WHEN s.anew THEN 0 ELSE t.hop + s.hop::int END,
                    updated_at = CASE WHEN s.hop THEN t.updated_at ELSE s.now END,
                    finished_at = CASE WHEN s.state > 1 THEN s.now END,
                    last_error = CASE WHEN s.anew THEN NULL ELSE coalesce(s.error, t.last_error) END,
                    sent = CASE WHEN s.sent IS NULL THEN t.sent ELSE (t.version + 1) || ' ' || s.now || ' ' || s.sent END,
                    history = ", history!("s.note", "s.now", "coalesce(s.due, t.due_at)"))
    };
}

/// Takes steps, each of another row, and does some more. A hop is of a scheduled row, an end of one that runs.
macro_rules! advance {
    ($more:expr) => {
        concat!(
            "WITH ", clock!(), ",
            asked AS MATERIALIZED (
                SELECT g.id, g.version, 1 - g.hop::int AS was, g.state, g.anew, g.hop, g.given_back, g.error, g.note, g.sent,
                    clock.now,
                    CASE WHEN g.due_in IS NULL THEN g.due_at ELSE ", after!("g.due_in"), " END AS due,
                    CASE WHEN g.look_in IS NOT NULL THEN ", after!("g.look_in"), " END AS wake_at
                FROM clock CROSS JOIN unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[],
                    $6::bigint[], $7::boolean[], $8::boolean[], $9::smallint[], $10::text[],
                    $11::text[], $12::text[])
                    AS g (id, version, state, due_in, due_at, look_in, anew, hop, given_back, error, note, sent)),
            locked AS MATERIALIZED (
                SELECT a.* FROM asked a CROSS JOIN LATERAL (
                    SELECT FROM {tasks} t WHERE t.id = a.id AND t.version = a.version AND t.state + 0 = a.was
                    FOR NO KEY UPDATE SKIP LOCKED) t),
            taken AS (
                UPDATE {tasks} t SET ", transition!(), "
                FROM locked s WHERE t.id = s.id
                RETURNING t.id, s.version)", $more, "
            ", came!("taken", "a.was")
        )
    };
}
