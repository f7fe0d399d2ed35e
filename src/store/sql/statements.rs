//! The text of every statement that all databases have.
//!
//! None may read the table from end to end, whatever the statistics say. So kinds are found by jumping from one to the next
//! in an index, and where a planner could think otherwise the index is named.

use super::codec::number;
use super::dialect::{Dialect, places, width};
use super::record::{BECOMES, COLUMNS, NEW};
use super::table::Asked;
use crate::State;
use crate::store::Noted;
use crate::store::table::{By, Columns, Range, Start};

impl Dialect {
    fn columns(&self, columns: Columns) -> String {
        let mut all: Vec<_> = COLUMNS.iter().map(|column| format!("t.{column}")).collect();
        all.extend(match columns {
            Columns::All => ["t.headers".to_owned(), "t.payload".to_owned()],
            Columns::Lean => ["'{}'".to_owned(), self.nothing.to_owned()],
        });
        all.join(", ")
    }

    /// A statement that every database has.
    pub(in crate::store) fn asked(&self, asked: Asked) -> String {
        match asked {
            Asked::ByIds(columns) => self.by_ids(columns),
            Asked::ByKeys(columns) => self.by_keys(columns),
            Asked::Kinds => self.kinds_after(),
            Asked::History => self.history(),
        }
    }

    /// The rows of a batch of ids.
    fn by_ids(&self, columns: Columns) -> String {
        format!(
            "SELECT {} FROM {} CROSS JOIN {} t {} WHERE t.id = {}",
            self.columns(columns),
            self.batch,
            self.table,
            self.index("id"),
            self.id
        )
    }

    /// Those of a batch of ids that are scheduled and due by a time, as far as there is room for the bytes of their payloads.
    pub(super) fn these(&self, columns: Columns) -> String {
        format!(
            "SELECT {} FROM (SELECT r.{} AS at_row, sum(length(r.payload)) OVER (
                    ORDER BY {} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                FROM {} CROSS JOIN {} r {} WHERE r.id = {} AND r.state = 0 AND r.due_at <= ?) fitting
            CROSS JOIN {} t WHERE t.{} = fitting.at_row AND coalesce(fitting.before, 0) < ?",
            self.columns(columns),
            self.row,
            self.place,
            self.batch,
            self.table,
            self.index("id"),
            self.id,
            self.table,
            self.row
        )
    }

    /// The live row of each of a batch of kinds and keys, else its newest, with the place of its key; the batch is given
    /// twice.
    fn by_keys(&self, columns: Columns) -> String {
        let Self {
            table,
            batch,
            kind,
            key,
            place,
            row,
            ..
        } = self;
        let columns = self.columns(columns);
        let (live, past) = (self.index("live"), self.index("key"));
        let live = format!(
            "SELECT l.{row} FROM {table} l {live}
            WHERE l.kind = {kind} AND l.key = {key} AND l.state IN (0, 1) AND l.key IS NOT NULL"
        );
        format!(
            "SELECT {columns}, {place} FROM {batch} CROSS JOIN {table} t WHERE t.{row} = ({live})
            UNION ALL
            SELECT {columns}, {place} FROM {batch} CROSS JOIN {table} t WHERE NOT EXISTS ({live}) AND t.{row} = (
                SELECT n.{row} FROM {table} n {past}
                WHERE n.kind = {kind} AND n.key = {key} AND n.key IS NOT NULL AND n.state > 1
                ORDER BY n.created_at DESC, n.id DESC LIMIT 1)"
        )
    }

    /// The rows of a range: of one kind, which is given first, or of each in turn. Then the time from which on, and the id
    /// behind it; the time until which; how many; how many bytes.
    pub(in crate::store) fn range(&self, range: &Range, columns: Columns) -> String {
        let direction = if range.backwards { " DESC" } else { "" };
        let (index, time, order) = match range.by {
            By::Due => ("due", "due_at", format!("r.due_at{direction}, r.id{direction}")),
            By::Wake => ("wake", "wake_at", format!("r.wake_at{direction}")),
        };
        let (table, row, index) = (self.table, self.row, self.index(index));
        let kind = if range.kind.is_some() { "?" } else { "kinds.kind" };
        let state = number(range.state);
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
                "SELECT {columns} FROM {table} r {index}
                WHERE r.state = {state} AND r.kind = {kind} AND r.{time} IS NOT NULL {from}{until}
                ORDER BY {order} LIMIT ?"
            )
        };
        let columns = self.columns(columns);
        match (&range.kind, range.bytes) {
            (Some(_), usize::MAX) => rows(&columns.replace("t.", "r.")),
            (Some(_), _) => format!(
                "SELECT {columns} FROM (SELECT first.at_row, first.due_at, first.id, sum(first.bytes) OVER (
                        ORDER BY first.due_at, first.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                    FROM ({}) first) fitting
                CROSS JOIN {table} t WHERE t.{row} = fitting.at_row AND coalesce(fitting.before, 0) < ?
                ORDER BY fitting.due_at, fitting.id",
                rows(&format!("r.{row} AS at_row, r.due_at, r.id, length(r.payload) AS bytes"))
            ),
            (None, _) => format!(
                "{} SELECT {columns} FROM kinds CROSS JOIN {} CROSS JOIN {table} t WHERE t.{row} = {}
                ORDER BY t.kind, t.{time}{direction}, t.id",
                self.kinds(&state.to_string(), ""),
                (self.for_each)(&rows(&format!("r.{row} AS at_row"))),
                self.each
            ),
        }
    }

    /// The kinds of the rows in a state, and one NULL, as a table `kinds` for the statement behind it. Each step is one search
    /// in an index.
    fn kinds(&self, state: &str, after: &str) -> String {
        let next = |than: &str| {
            format!(
                "SELECT (SELECT k.kind FROM {} k {} WHERE k.state = {state} {than} ORDER BY k.kind LIMIT 1)",
                self.table,
                self.index("wake")
            )
        };
        format!(
            "WITH RECURSIVE kinds (kind) AS ({} UNION ALL {} FROM kinds WHERE kinds.kind IS NOT NULL)",
            next(after),
            next("AND k.kind > kinds.kind")
        )
    }

    /// The kinds after one of which there are rows in a state, up to a limit: state, kind, limit.
    fn kinds_after(&self) -> String {
        let kinds = self.kinds("?1", "AND k.kind > ?2");
        format!("{kinds} SELECT kinds.kind FROM kinds WHERE kinds.kind IS NOT NULL LIMIT ?3")
    }

    /// How many rows of a kind in a state are due by a time, of the first so many: kind, time, limit.
    pub(super) fn count(&self, state: State) -> String {
        format!(
            "SELECT count(*) FROM (SELECT r.due_at FROM {} r {} WHERE r.kind = ? AND r.state = {} AND r.due_at <= ?
            ORDER BY r.due_at, r.id LIMIT ?) first",
            self.table,
            self.index("due"),
            number(state)
        )
    }

    /// Writes up to so many new rows, all or none.
    pub(super) fn insert(&self, rows: usize) -> String {
        format!(
            "INSERT INTO {} (id, kind, key, due_at, planned_at, wake_at, max_attempts, created_at, updated_at,
                headers, payload, history, sent, state, version, attempt, started, stalls, hop)
            SELECT *, 0, 1, 0, 0, 0, 0 FROM (VALUES {}) WHERE column1 IS NOT NULL",
            self.table,
            places(NEW, width(rows))
        )
    }

    /// Writes those of up to so many new rows that are not there; gives their ids.
    pub(super) fn insert_absent(&self, rows: usize) -> String {
        format!("{} ON CONFLICT DO NOTHING RETURNING id", self.insert(rows))
    }

    /// Writes what has become of up to so many rows, each if it is as it was; gives the ids of those. Payload, headers and
    /// `max_attempts` stay.
    pub(super) fn write(&self, rows: usize) -> String {
        format!(
            "WITH given (id, was, woke, state, version, due_at, planned_at, wake_at, attempt, started, stalls, hop,
                updated_at, finished_at, owner, last_error, history, sent) AS (VALUES {})
            INSERT INTO {} (id, kind, headers, payload, created_at, state, version, due_at, planned_at, wake_at, attempt,
                started, stalls, hop, updated_at, finished_at, owner, last_error, history, sent)
            SELECT t.id, '', '', {}, 0, g.state, g.version, g.due_at, g.planned_at, g.wake_at, g.attempt, g.started,
                g.stalls, g.hop, g.updated_at, g.finished_at, g.owner, g.last_error, g.history, g.sent
            FROM given g CROSS JOIN {} t {}
            WHERE t.id = g.id AND t.version = g.was AND (g.woke IS NULL OR t.wake_at = g.woke)
            ON CONFLICT (id) DO UPDATE SET state = excluded.state, version = excluded.version, due_at = excluded.due_at,
                planned_at = excluded.planned_at, wake_at = excluded.wake_at, attempt = excluded.attempt,
                started = excluded.started, stalls = excluded.stalls, hop = excluded.hop,
                updated_at = excluded.updated_at, finished_at = excluded.finished_at, owner = excluded.owner,
                last_error = excluded.last_error, history = CASE excluded.history WHEN '' THEN history ELSE {} END,
                sent = coalesce(excluded.sent, sent)
            RETURNING id",
            places(BECOMES, width(rows)),
            self.table,
            self.nothing,
            self.table,
            self.index("id"),
            (self.appended)("history", "excluded.history", Noted::LIMIT)
        )
    }

    /// Gives a row of a version another payload, headers and `max_attempts`: these, then id and version.
    pub(super) fn refill(&self) -> String {
        format!(
            "UPDATE {} {} SET payload = ?, headers = ?, max_attempts = ? WHERE id = ? AND version = ?",
            self.table,
            self.index("id")
        )
    }

    /// Puts a row that cannot be read out of the way if it is overdue, or due: under a lease that nobody has. Until when; the
    /// row; and twice now.
    pub(super) fn set_aside(&self) -> String {
        format!(
            "UPDATE {} {} SET state = 1, started = 1, owner = 'nobody: the row cannot be read', wake_at = ?
            WHERE id = ? AND ((state IN (0, 1) AND wake_at <= ?) OR (state = 0 AND due_at <= ?))",
            self.table,
            self.index("id")
        )
    }

    /// Removes those of a batch of rows that are in one of these states, and whose `wake_at` has passed.
    pub(super) fn remove(&self, states: &[State]) -> String {
        let states: Vec<_> = states.iter().map(|state| number(*state).to_string()).collect();
        format!(
            "DELETE FROM {} {} WHERE id IN (SELECT {} FROM {}) AND state IN ({}) AND wake_at <= ?",
            self.table,
            self.index("id"),
            self.id,
            self.batch,
            states.join(", ")
        )
    }

    /// What was noted of the row of an id, as the bytes that it is.
    fn history(&self) -> String {
        format!(
            "SELECT {}, {} FROM {} t {} WHERE t.id = ?",
            (self.bytes_of)("t.history"),
            (self.bytes_of)("t.sent"),
            self.table,
            self.index("id")
        )
    }
}

#[cfg(test)]
impl Dialect {
    /// Every statement, with a name.
    pub(in crate::store) fn all(&self) -> Vec<(String, String)> {
        let mut all = vec![
            ("these".to_owned(), self.these(Columns::All)),
            ("insert".to_owned(), self.insert(3)),
            ("insert absent".to_owned(), self.insert_absent(3)),
            ("write".to_owned(), self.write(3)),
            ("refill".to_owned(), self.refill()),
            ("set aside".to_owned(), self.set_aside()),
            ("history".to_owned(), self.history()),
            ("remove".to_owned(), self.remove(&[State::Done, State::Cancelled])),
        ];
        for columns in [Columns::All, Columns::Lean] {
            all.push((format!("ids {columns:?}"), self.by_ids(columns)));
            all.push((format!("keys {columns:?}"), self.by_keys(columns)));
            let ranges = super::tests::forms::ranges();
            all.extend(ranges.map(|range| (format!("{range:?} {columns:?}"), self.range(&range, columns))));
        }
        for state in State::ALL {
            all.push((format!("kinds {state:?}"), self.kinds_after()));
            all.push((format!("count {state:?}"), self.count(state)));
        }
        all
    }
}
