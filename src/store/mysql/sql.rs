//! Every statement of a running store, in one place.
//!
//! A batch is one statement, whatever its size: its values come as one JSON array (ids, kinds and keys as hex digits),
//! each element an array in turn unless it is a single value. So the texts are constant, and stay prepared. Where all rows
//! become the same, which is most of a burst, their ids are values of a statement for a fixed number of them: an UPDATE
//! that is joined to what it is given keeps what it has found before it writes, which costs half as much again.
//!
//! None may read the table from end to end, whatever the server believes about it. So every access names its index,
//! and is by values that are known when the statement begins: `ref` and `range` on those, and nothing that depends on
//! another table's row but the whole of a unique key.
//!
//! The texts name the table `delayline_tasks`; [`Sql::of`] puts the real name in its place.

use std::borrow::Borrow;
use std::sync::Arc;

pub(super) use self::lanes::part;
use self::lanes::{WIDTHS, lanes};

/// The time, when the statement began. It is one value for the whole statement, so an index can be searched by it.
/// It is of no time zone, and the part of a millisecond is cut off.
macro_rules! now {
    () => {
        "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)"
    };
}

/// The time when the row in hand had been read, and locked where that was asked for: what others have committed to it
/// is not later. Only on the store's own connections, whose time zone is UTC.
macro_rules! now_here {
    () => {
        "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6)) DIV 1000"
    };
}

// After the macros that it uses.
mod lanes;

/// The columns of a row, in the order in which [`codec::task`](super::codec::task) reads them.
macro_rules! columns {
    ($wake_at:literal, $started:literal, $headers:literal, $payload:literal) => {
        concat!(
            "t.id, t.kind, t.`key`, t.state, t.version, t.due_at, t.planned_at, ",
            $wake_at,
            ", t.attempt, ",
            $started,
            ", t.stalls, t.max_attempts, t.hop, t.created_at, t.updated_at, t.finished_at, t.owner, t.last_error, ",
            $headers,
            ", ",
            $payload,
            ", ",
            now_here!()
        )
    };
    // Of a row whose lease nobody has renewed.
    () => {
        columns!("t.wake_at", "0", "t.headers", "t.payload")
    };
    // Of one that was joined to its lease.
    (leased) => {
        columns!(
            "COALESCE(l.until, t.wake_at)",
            "CAST(COALESCE(l.started, 0) AS SIGNED)",
            "t.headers",
            "t.payload"
        )
    };
    // Of one whose payload nobody needs. In place of whether it has started: whether it runs and may have a lease of its
    // own.
    (lean) => {
        columns!(
            "t.wake_at",
            "IF(t.state = 1, (SELECT COUNT(*) FROM delayline_tasks_leases l FORCE INDEX (PRIMARY) WHERE l.id = t.id), 0)",
            "'{}'",
            "x''"
        )
    };
}

/// Joins rows to what was renewed of their claims.
macro_rules! leased {
    () => {
        " LEFT JOIN delayline_tasks_leases l FORCE INDEX (PRIMARY) ON l.id = t.id AND l.version = t.version "
    };
}

/// What tells of a row whether a wake-up or a claim still holds.
macro_rules! look {
    () => {
        concat!(
            "t.id, t.kind, t.version, t.state, t.`key`, t.due_at, t.planned_at, ",
            now_here!(),
            ", t.size"
        )
    };
}

/// The rows that a JSON array of ids names, in its order.
macro_rules! of_ids {
    ($join:literal) => {
        concat!(
            "JSON_TABLE(?, '$[*]' COLUMNS (id VARCHAR(32) PATH '$')) j ",
            $join,
            " delayline_tasks t FORCE INDEX (PRIMARY) ON t.id = UNHEX(j.id) "
        )
    };
    () => {
        of_ids!("STRAIGHT_JOIN")
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

/// Rows of a JSON array of ids, each with the version at which its lease has ended or else NULL: those that a verb may
/// change, to be locked. At READ COMMITTED, InnoDB does not keep the locks of others.
macro_rules! held {
    ($skip:literal) => {
        concat!(
            "SELECT ",
            columns!(),
            " FROM (SELECT UNHEX(i.id) id, i.ended FROM JSON_TABLE(?, '$[*]' \
            COLUMNS (id VARCHAR(32) PATH '$[0]', ended BIGINT UNSIGNED PATH '$[1]')) i) j \
            STRAIGHT_JOIN delayline_tasks t FORCE INDEX (PRIMARY) ON t.id = j.id \
            WHERE t.state <> 1 OR t.version = j.ended FOR UPDATE",
            $skip
        )
    };
}

macro_rules! write {
    ($column:literal, $error:literal) => {
        concat!(
            "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id VARCHAR(32) PATH '$[0]', read_at BIGINT UNSIGNED PATH '$[1]',
            state TINYINT UNSIGNED PATH '$[2]', version BIGINT UNSIGNED PATH '$[3]', due_at BIGINT PATH '$[4]',
            planned_at BIGINT PATH '$[5]', attempt INT UNSIGNED PATH '$[6]', hop INT UNSIGNED PATH '$[7]',
            updated_at BIGINT PATH '$[8]', wake_at BIGINT PATH '$[9]', finished_at BIGINT PATH '$[10]',
            stalls INT UNSIGNED PATH '$[11]'",
            $column,
            ")) j
        STRAIGHT_JOIN delayline_tasks t FORCE INDEX (PRIMARY) ON t.id = UNHEX(j.id)
        SET t.state = j.state, t.version = j.version, t.due_at = j.due_at, t.planned_at = j.planned_at,
            t.attempt = j.attempt, t.hop = j.hop, t.updated_at = j.updated_at, t.wake_at = j.wake_at,
            t.finished_at = j.finished_at, t.stalls = j.stalls, t.last_error = ",
            $error,
            "
        WHERE t.version = j.read_at"
        )
    };
}

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:expr;)*) => {
        /// The statements for one table.
        pub(super) struct Sql {
            $($(#[$doc])* pub(super) $name: Arc<str>,)*
            inserts: [[Arc<str>; 2]; 2],
            live: [Arc<str>; WIDTHS.len()],
            past: [Arc<str>; WIDTHS.len()],
            claims: [Arc<str>; IDS.len()],
            ended: [Arc<str>; IDS.len()],
        }

        impl Sql {
            /// Those for a table of this name.
            pub(super) fn of(table: &str) -> Self {
                let of = |sql: &str| Arc::<str>::from(sql.replace("delayline_tasks", table));
                Self {
                    $($name: of($sql),)*
                    inserts: ["", AT_ONCE].map(|before| [1, INSERT_WIDTH].map(|rows| of(&insert(before, rows)))),
                    live: WIDTHS.map(|kinds| of(&lanes([0, 1], true, kinds))),
                    past: WIDTHS.map(|kinds| of(&lanes([2, 4], false, kinds))),
                    claims: IDS.map(|ids| of(&update_ids(CLAIM, ids))),
                    ended: IDS.map(|ids| of(&update_ids(ENDED_AT, ids))),
                }
            }

            /// All of them, each with its name.
            #[cfg(test)]
            pub(super) fn all(&self) -> Vec<(&'static str, Arc<str>)> {
                let mut all = vec![$((stringify!($name), self.$name.clone())),*];
                let lists = [
                    ("insert", &self.inserts[0][..]),
                    ("live", &self.live),
                    ("past", &self.past),
                    ("claim", &self.claims),
                    ("ended", &self.ended),
                ];
                for (name, list) in lists {
                    all.extend(list.iter().map(|sql| (name, sql.clone())));
                }
                all
            }
        }
    };
}

statements! {
    /// The time.
    now = concat!("SELECT ", now!());

    /// Waits for its turn among those who wait for rows, for so many seconds: 1 if it has come.
    turn = "SELECT GET_LOCK(CONCAT('delayline ', LEFT(SHA2(CONCAT(DATABASE(), '.delayline_tasks'), 256), 32)), ?)";

    /// How long a statement with its values may be.
    packet = "SELECT @@max_allowed_packet";

    /// What tells of these ids whether a wake-up or a claim still holds; one row for each id, there or not.
    look = concat!("SELECT ", look!(), " FROM ", of_ids!("LEFT JOIN"));

    /// The same of those that are there and that nobody else has locked, and locks them.
    look_unlocked = concat!("SELECT ", look!(), " FROM ", of_locked_ids!(), "FOR UPDATE SKIP LOCKED");

    /// The ids of the live and the newest rows of these kinds and keys.
    look_keys = "SELECT
            (SELECT l.id FROM delayline_tasks l FORCE INDEX (`live`)
             WHERE l.kind = UNHEX(j.kind) AND l.live_key = UNHEX(j.name)),
            (SELECT n.id FROM delayline_tasks n FORCE INDEX (`named`)
             WHERE n.kind = UNHEX(j.kind) AND n.`key` = UNHEX(j.name)
             ORDER BY n.kind DESC, n.`key` DESC, n.created_at DESC, n.id DESC LIMIT 1)
        FROM JSON_TABLE(?, '$[*]' COLUMNS (kind VARCHAR(200) PATH '$[0]', name VARCHAR(510) PATH '$[1]')) j";

    /// The rows of these ids.
    by_ids = concat!("SELECT ", columns!(leased), " FROM ", of_ids!(), leased!());

    /// The same of those that nobody else has locked, and locks them; not their leases.
    by_ids_unlocked = concat!("SELECT ", columns!(), " FROM ", of_locked_ids!(), "FOR UPDATE SKIP LOCKED");

    /// The rows of these ids that a verb may change, and locks them.
    held = held!("");

    /// The same of those that nobody else has locked.
    held_unlocked = held!(" SKIP LOCKED");

    /// The rows of these ids that nobody else has locked, without payload and headers, for what needs neither; and locks
    /// them.
    lean_unlocked = concat!("SELECT ", columns!(lean), " FROM ", of_locked_ids!(), "FOR UPDATE SKIP LOCKED");

    /// The same in a service's transaction, which may not be able to look at leases.
    finished = concat!("SELECT ", columns!("t.wake_at", "0", "'{}'", "x''"), " FROM ", of_locked_ids!(),
        "FOR UPDATE SKIP LOCKED");

    /// What was renewed of claims of these ids: id, version, the end, whether started.
    leases = "SELECT l.id, l.version, l.until, CAST(l.started AS SIGNED)
        FROM JSON_TABLE(?, '$[*]' COLUMNS (id VARCHAR(32) PATH '$')) j
        STRAIGHT_JOIN delayline_tasks_leases l FORCE INDEX (PRIMARY) ON l.id = UNHEX(j.id)";

    /// Renews claims of rows that are locked: id, version, whether started; the end, and when.
    renew = "INSERT INTO delayline_tasks_leases (id, version, until, renewed_at, started)
        SELECT UNHEX(j.id), j.version, ?, ?, j.started FROM JSON_TABLE(?, '$[*]' COLUMNS (id VARCHAR(32) PATH '$[0]',
            version BIGINT UNSIGNED PATH '$[1]', started INT PATH '$[2]')) j
        ON DUPLICATE KEY UPDATE
            delayline_tasks_leases.started = VALUES(started) OR (delayline_tasks_leases.started
                AND delayline_tasks_leases.version = VALUES(version)),
            delayline_tasks_leases.version = VALUES(version), delayline_tasks_leases.until = VALUES(until),
            delayline_tasks_leases.renewed_at = VALUES(renewed_at)";

    /// Forgets what was renewed until a time, at the most, of claims of these ids.
    forget_until = "DELETE l FROM JSON_TABLE(?, '$[*]' COLUMNS (id VARCHAR(32) PATH '$')) j
        STRAIGHT_JOIN delayline_tasks_leases l FORCE INDEX (PRIMARY) ON l.id = UNHEX(j.id) WHERE l.until <= ?";

    /// Forgets what was renewed of claims of these ids.
    forget = "DELETE l FROM JSON_TABLE(?, '$[*]' COLUMNS (id VARCHAR(32) PATH '$')) j
        STRAIGHT_JOIN delayline_tasks_leases l FORCE INDEX (PRIMARY) ON l.id = UNHEX(j.id)";

    /// Claims that were renewed until a time, at the most, and that are no more.
    lost_leases = "SELECT l.id FROM delayline_tasks_leases l FORCE INDEX (`until`)
        LEFT JOIN delayline_tasks t FORCE INDEX (PRIMARY) ON t.id = l.id AND t.version = l.version AND t.state = 1
        WHERE l.until <= ? AND t.id IS NULL ORDER BY l.until LIMIT ?";

    /// Mends claims that were renewed when the clock was ahead: now (three times), of those that end last, so many.
    mend_leases = "UPDATE (SELECT f.id FROM delayline_tasks_leases f FORCE INDEX (`until`) WHERE f.until > ?
            ORDER BY f.until DESC LIMIT ?) k
        STRAIGHT_JOIN delayline_tasks_leases l FORCE INDEX (PRIMARY) ON l.id = k.id
        SET l.until = ? + GREATEST(l.until - l.renewed_at, 0), l.renewed_at = ?
        WHERE l.renewed_at > ?";

    /// Rows of a kind that run, those whose leases end last.
    last_leases = "SELECT t.id FROM delayline_tasks t FORCE INDEX (`wake`) WHERE t.state = 1 AND t.kind = ?
        ORDER BY t.wake_at DESC LIMIT ?";

    /// Mends the leases of rows of these ids, if they were given when the clock was ahead: now (three times).
    mend = concat!(
        "UPDATE ", of_ids!(),
        "SET t.wake_at = ? + GREATEST(t.wake_at - t.updated_at, 0), t.updated_at = ?
        WHERE t.state = 1 AND t.updated_at > ?"
    );

    /// The live and the newest row of a kind and key, each given twice.
    by_key = concat!(
        "(SELECT ", columns!(leased), " FROM delayline_tasks t FORCE INDEX (`live`)", leased!(),
        "WHERE t.kind = ? AND t.live_key = ?)
        UNION ALL
        (SELECT ", columns!(leased), " FROM delayline_tasks t FORCE INDEX (`named`)", leased!(),
        "WHERE t.kind = ? AND t.`key` = ? ORDER BY t.created_at DESC, t.id DESC LIMIT 1)"
    );

    /// Records hops: id, version, how many, `wake_at`.
    hop = "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id VARCHAR(32) PATH '$[0]', version BIGINT UNSIGNED PATH '$[1]',
            hop INT UNSIGNED PATH '$[2]', wake_at BIGINT PATH '$[3]')) j
        STRAIGHT_JOIN delayline_tasks t FORCE INDEX (PRIMARY) ON t.id = UNHEX(j.id)
        SET t.version = j.version, t.hop = j.hop, t.wake_at = j.wake_at
        WHERE t.state = 0";

    /// Moves `wake_at` alone.
    wake_at = concat!("UPDATE ", of_ids!(), "SET t.wake_at = ?");

    /// Writes what a transition has made of rows without an error: id, the version it was read at, and then each column.
    write = write!("", "NULL");

    /// Writes what a transition has made of rows with an error, the last column. A long text makes the server keep all of
    /// the batch in a file, so this is apart.
    write_error = write!(", last_error LONGTEXT CHARACTER SET utf8mb4 PATH '$[12]'", "j.last_error");

    /// Adds to what is noted of rows: id, lines of history, the wake-up sent last or an empty text. Apart from what writes
    /// the rest, as texts of any length make the server keep a batch in a file.
    note = "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id VARCHAR(32) PATH '$[0]',
            history MEDIUMTEXT CHARACTER SET utf8mb4 PATH '$[1]', sent TEXT CHARACTER SET utf8mb4 PATH '$[2]')) j
        STRAIGHT_JOIN delayline_tasks t FORCE INDEX (PRIMARY) ON t.id = UNHEX(j.id)
        SET t.history = RIGHT(CONCAT(t.history, j.history), 16384), t.sent = IF(j.sent = '', t.sent, j.sent)";

    /// What is noted of the row of an id.
    noted = "SELECT t.history, t.sent FROM delayline_tasks t FORCE INDEX (PRIMARY) WHERE t.id = ?";

    /// Gives the row of an id, the last value, the payload, headers and limit of another.
    refill = "UPDATE delayline_tasks t FORCE INDEX (PRIMARY) SET t.payload = ?, t.headers = ?, t.max_attempts = ?
        WHERE t.id = ?";

    /// Scheduled rows of a kind that are due at a time, the longest due first: due time, id, and how long the payload is.
    due = "SELECT t.due_at, t.id, t.size FROM delayline_tasks t FORCE INDEX (`due`)
        WHERE t.kind = ? AND t.state = 0 AND t.due_at <= ? ORDER BY t.due_at, t.id LIMIT ?";

    /// Scheduled rows of a kind that are due at a time and that nobody else has locked, the longest due first, and
    /// locks them.
    due_unlocked = concat!(
        "SELECT ", columns!(), " FROM delayline_tasks t FORCE INDEX (`due`)
        WHERE t.kind = ? AND t.state = 0 AND t.due_at <= ?
        ORDER BY t.due_at, t.id LIMIT ? FOR UPDATE SKIP LOCKED"
    );

    /// The first kind of which there are rows in a state, after another one.
    next_kind = "SELECT t.kind FROM delayline_tasks t FORCE INDEX (`wake`) WHERE t.state = ? AND t.kind > ?
        ORDER BY t.kind LIMIT 1";

    /// Rows of a kind and a state after a due time, given twice, and an id.
    list = concat!(
        "SELECT ", columns!(leased), " FROM delayline_tasks t FORCE INDEX (`due`)", leased!(),
        "WHERE t.kind = ? AND t.state = ? AND (t.due_at > ? OR (t.due_at = ? AND t.id > ?))
        ORDER BY t.due_at, t.id LIMIT ?"
    );

    /// The time, and how many rows of a kind and a state are due within each of some spans, in ms, of the first so many of
    /// them: the spans, the kind, the state, the longest of the spans, how many.
    due_within = concat!(
        "SELECT ", now!(), ", COUNT(f.due_at)
        FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY, span BIGINT PATH '$')) j
        LEFT JOIN (
            SELECT t.due_at FROM delayline_tasks t FORCE INDEX (`due`)
            WHERE t.kind = ? AND t.state = ? AND t.due_at <= ", now!(), " + ? ORDER BY t.due_at, t.id LIMIT ?) f
        ON f.due_at <= ", now!(), " + j.span
        GROUP BY j.place ORDER BY j.place"
    );

    /// Which of these rows are done or cancelled, their `wake_at` passed, and not locked by anybody else; and locks them.
    past_unlocked = concat!(
        "SELECT t.id FROM ", of_locked_ids!(),
        "WHERE t.state IN (2, 4) AND t.wake_at <= ", now!(), " FOR UPDATE SKIP LOCKED"
    );

    /// Removes these rows.
    remove = concat!("DELETE t FROM ", of_ids!());
}

impl Sql {
    /// Writes that many rows, if that is one of the statements that are kept prepared; at once or not at all if said so.
    pub(super) fn insert(&self, rows: usize, at_once: bool) -> Option<Arc<str>> {
        let [one, many] = &self.inserts[usize::from(at_once)];
        match rows {
            1 => Some(one.clone()),
            INSERT_WIDTH => Some(many.clone()),
            _ => None,
        }
    }

    /// What is overdue of live rows, and what comes up, for up to so many kinds as it says.
    pub(super) fn live(&self, kinds: usize) -> (Arc<str>, usize) {
        fitting(&self.live, WIDTHS, kinds)
    }

    /// What is overdue of history, for up to so many kinds as it says.
    pub(super) fn past(&self, kinds: usize) -> (Arc<str>, usize) {
        fitting(&self.past, WIDTHS, kinds)
    }

    /// Claims rows, of up to so many ids as it says: for whom, until when, and when; then the ids.
    pub(super) fn claim(&self, ids: usize) -> (Arc<str>, usize) {
        fitting(&self.claims, IDS, ids)
    }

    /// Ends rows, of up to so many ids as it says: the state, `wake_at`, and when, twice; then the ids.
    pub(super) fn ended(&self, ids: usize) -> (Arc<str>, usize) {
        fitting(&self.ended, IDS, ids)
    }
}

/// The narrowest of the statements of these widths that takes so many, else the widest.
fn fitting<const N: usize>(
    statements: &[Arc<str>; N],
    widths: [usize; N],
    wanted: usize,
) -> (Arc<str>, usize) {
    let place = widths.iter().position(|&width| width >= wanted);
    let place = place.unwrap_or(N - 1);
    (statements[place].clone(), widths[place])
}

/// For how many ids there are statements that have them as values.
const IDS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, INSERT_WIDTH];

/// What a claim makes of a row.
const CLAIM: &str = "t.state = 1, t.attempt = t.attempt + 1, t.owner = ?, t.wake_at = ?, t.updated_at = ?";
/// What most endings make of one.
const ENDED_AT: &str = "t.state = ?, t.wake_at = ?, t.updated_at = ?, t.finished_at = ?";

/// Makes the same of the rows of so many ids, which are locked, by one transition.
fn update_ids(set: &str, ids: usize) -> String {
    let ids = vec!["?"; ids].join(",");
    format!(
        "UPDATE delayline_tasks t FORCE INDEX (PRIMARY) SET t.version = t.version + 1, {set} WHERE t.id IN ({ids})"
    )
}

/// How many rows one statement of [`Sql::insert`] writes at the most: a usual batch.
pub(super) const INSERT_WIDTH: usize = crate::defaults::BATCH;

/// Writes that many new rows: id, kind, key, `due_at`, `planned_at`, `wake_at`, `max_attempts`, `created_at`,
/// `updated_at`, headers, payload, history, sent.
fn insert(before: &str, rows: usize) -> String {
    let rows = vec!["(?,?,?,0,1,?,?,?,0,0,?,0,?,?,?,?,?,?)"; rows];
    insert_of(before, "delayline_tasks", &rows)
}

/// Before a statement: it does not wait for locks. MySQL has nothing like it, and waits for as long as its connection may.
pub(super) const AT_ONCE: &str = "/*M!100600 SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ ";

/// Writes new rows, each given as its values in the order of [`insert`].
pub(super) fn insert_of<T: Borrow<str>>(before: &str, table: &str, rows: &[T]) -> String {
    let rows = rows.join(",");
    format!(
        "{before}INSERT INTO {table} (id, kind, `key`, state, version, due_at, planned_at, wake_at, attempt, stalls, \
         max_attempts, hop, created_at, updated_at, headers, payload, history, sent) VALUES {rows}"
    )
}
