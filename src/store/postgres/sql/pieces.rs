//! What several statements have in common.

/// The columns of a row `t`, in the order in which all stores read them, then the number of what it was asked for by.
macro_rules! row_columns {
    ($number:literal) => {
        row_columns!($number, "t.headers, t.payload")
    };
    // Without what is long.
    (lean $number:literal) => {
        row_columns!($number, "'{}', ''::bytea")
    };
    ($number:literal, $long:literal) => {
        concat!(
            "t.id, t.kind, t.key, t.state, t.version, t.due_at, t.planned_at, t.wake_at, t.attempt, t.started, t.stalls,
             t.max_attempts, t.hop, t.created_at, t.updated_at, t.finished_at, t.owner, t.last_error, ",
            $long,
            ", ",
            $number
        )
    };
}

/// The time, when the statement comes to it. Cut off, not rounded: what is due must not be so early.
macro_rules! server_time {
    () => {
        "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    };
}

/// The time of a statement, once and for all of its rows.
macro_rules! clock {
    () => {
        concat!("clock AS MATERIALIZED (SELECT ", server_time!(), " AS now)")
    };
}

/// So many milliseconds after the time of the statement, at the latest at the last moment that can be written down.
macro_rules! after {
    ($millis:literal) => {
        concat!("least(clock.now + ", $millis, ", 253402300799999)")
    };
}

/// Rows behind what a statement begins with, each with the time; one row of nothing but the time where there is none.
macro_rules! answer {
    ($with:expr, $rows:expr) => {
        concat!(
            "WITH ",
            clock!(),
            $with,
            " SELECT f.*, clock.now FROM clock LEFT JOIN (",
            $rows,
            ") f ON true"
        )
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
            "::smallint)"
        )
    };
}

/// Makes claims of the rows `l` that are locked, as far as `l.fits` says: for an owner, a lease, and with a note.
macro_rules! claimed {
    ($owner:literal, $lease:literal, $note:literal) => {
        concat!(
            "claimed AS (
            UPDATE {tasks} t SET state = 1, version = t.version + 1, attempt = t.attempt + 1, owner = ",
            $owner,
            "::text, updated_at = clock.now, wake_at = least(clock.now + ",
            $lease,
            "::bigint, 253402300799999), history = CASE WHEN ",
            $note,
            "::text IS NULL THEN t.history
                    ELSE right(t.history || E'\\n' || (t.version + 1) || ' ' || clock.now || ' ' || t.due_at || ' '
                        || t.due_at || ' ' || ",
            $note,
            "::text, 16384) END
            FROM fitting l CROSS JOIN clock WHERE l.fits AND t.id = l.id
            RETURNING ",
            row_columns!("0::bigint"),
            ")"
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

/// Reads rows, and locks those that may be changed, as soon as they can be had. Says behind them whether one has become
/// another before it was locked.
macro_rules! hold {
    ($found:expr) => {
        concat!(
            "WITH ",
            clock!(),
            ",
            found AS MATERIALIZED (
                SELECT t.place, t.id, t.state, t.version,
                    t.state IN (0, 3) OR (t.state = 1 AND coalesce(t.wake_at, 0) <= clock.now) AS wanted
                FROM clock CROSS JOIN (",
            $found,
            ") t),
            held AS MATERIALIZED (
                SELECT ",
            row_columns!("f.place - 1"),
            " FROM found f JOIN {tasks} t ON t.id = f.id
                WHERE f.wanted AND t.version = f.version
                    AND (t.state <> 1 OR coalesce(t.wake_at, 0) <= (SELECT clock.now FROM clock))
                ORDER BY t.id FOR NO KEY UPDATE OF t),
            notified AS (
                SELECT h.* FROM held h
                UNION ALL
                SELECT ",
            row_columns!("f.place - 1"),
            " FROM found f JOIN {tasks} t ON t.id = f.id WHERE NOT f.wanted)
            SELECT f.*, clock.now,
                (SELECT count(*) FROM held) < (SELECT count(*) FROM found w WHERE w.wanted)
            FROM clock LEFT JOIN notified f ON true"
        )
    };
}

/// Writes what has become of rows, each if it is as it was and can be locked. Gives the ids of those, in any order; and tells
/// channel `$21` of them, unless that is NULL. `$1` to `$20` are in the order of [`columns::writes`](super::super::columns::writes);
/// `was` is the version that a row must have, `woke` its `wake_at` where that matters.
macro_rules! write_rows {
    ($skip:literal) => {
        concat!(
            "WITH w AS MATERIALIZED (
                SELECT a.* FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bigint[], $6::bigint[],
                    $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
                    $14::bigint[], $15::text[], $16::text[], $17::text[], $18::bigint[], $19::text[], $20::bytea[])
                    AS a (id, was, woke, state, version, due_at, planned_at, wake_at, attempt, started, stalls, hop,
                        updated_at, finished_at, owner, last_error, history, max_attempts, headers, payload)
                CROSS JOIN LATERAL (
                    SELECT FROM {tasks} t WHERE t.id = a.id AND t.version = a.was
                        AND (a.woke IS NULL OR t.wake_at + 0 = a.woke)
                    FOR NO KEY UPDATE", $skip, ") l),
            written AS (
                UPDATE {tasks} t SET state = w.state, version = w.version, due_at = w.due_at, planned_at = w.planned_at,
                    wake_at = w.wake_at, attempt = w.attempt, started = w.started <> 0, stalls = w.stalls, hop = w.hop,
                    updated_at = w.updated_at, finished_at = w.finished_at, owner = w.owner, last_error = w.last_error,
                    history = CASE WHEN w.history = '' THEN t.history
                        ELSE right(t.history || w.history, 16384) END,
                    max_attempts = CASE WHEN w.headers IS NULL THEN t.max_attempts ELSE w.max_attempts END,
                    headers = coalesce(w.headers, t.headers), payload = coalesce(w.payload, t.payload)
                FROM w WHERE t.id = w.id RETURNING t.id),
            notified AS MATERIALIZED (
                SELECT CASE WHEN $21::text IS NOT NULL AND EXISTS (SELECT FROM written)
                    THEN pg_notify($21::text, '')::text END)
            SELECT w.id, notified.* FROM written w CROSS JOIN notified"
        )
    };
}
