//! What is overdue and what comes up, of many kinds by one statement.

/// For how many kinds there are statements of [`lanes`].
pub(super) const WIDTHS: [usize; 3] = [4, 16, 64];

/// What is overdue in two states, up to a limit of each kind and state, the longest ago first; what comes up; and which
/// kinds there are. For so many kinds, each with its values; the kind that is not there finds nothing.
///
/// MySQL has no search from which each of many kinds would take only its first rows that MariaDB has too, and neither
/// can be made to jump from kind to kind in an index. So each kind has searches of its own, by values; and for each
/// it is asked which kind is the next in the index, so that one that was not thought of comes to light.
pub(super) fn lanes(states: [u8; 2], ahead: bool, kinds: usize) -> String {
    // A union of a NULL and an unsigned number would be a decimal one.
    let mut parts = vec![format!(
        "SELECT {}, NULL, NULL, NULL, {}, NULL, NULL, NULL",
        part::NOW,
        now!()
    )];
    for _ in 0..kinds {
        for (place, state) in states.into_iter().enumerate() {
            parts.push(format!(
                "(SELECT {}, t.kind, NULL, NULL, NULL, NULL, NULL, NULL FROM delayline_tasks t FORCE INDEX (`wake`) \
                 WHERE t.state = {state} AND t.kind > ? ORDER BY t.kind LIMIT 1)",
                part::KIND
            ));
            parts.push(format!(
                "(SELECT {}, t.kind, t.id, CAST(t.version AS SIGNED), t.due_at, t.`key`, t.planned_at, CAST(t.size AS SIGNED) FROM delayline_tasks t FORCE INDEX (`wake`) \
                 WHERE t.state = {state} AND t.kind = ? AND t.wake_at <= {now}{ended} ORDER BY t.wake_at LIMIT ?)",
                part::OVERDUE[place],
                now = now!(),
                ended = if state == 1 { ENDED } else { "" },
            ));
        }
        if ahead {
            parts.push(format!(
                "(SELECT {}, t.kind, t.id, CAST(t.version AS SIGNED), t.due_at, t.`key`, t.planned_at, NULL FROM delayline_tasks t FORCE INDEX (`due`) \
                 WHERE t.kind = ? AND t.state = 0 AND t.due_at BETWEEN {now} - {since} AND {now} + ? \
                 ORDER BY t.due_at, t.id LIMIT ?)",
                part::AHEAD,
                now = now!(),
                since = crate::store::Ahead::SINCE.as_millis()
            ));
        }
    }
    if ahead {
        // Leases that a renewal has made shorter.
        parts.push(format!(
            "(SELECT {}, t.kind, t.id, CAST(t.version AS SIGNED), t.due_at, t.`key`, t.planned_at, CAST(t.size AS SIGNED) \
             FROM delayline_tasks_leases l FORCE INDEX (`until`) \
             STRAIGHT_JOIN delayline_tasks t FORCE INDEX (PRIMARY) ON t.id = l.id \
             WHERE l.until <= {now} AND t.version = l.version AND t.state = 1 AND t.wake_at > {now} \
             ORDER BY l.until LIMIT ?)",
            part::OVERDUE[1],
            now = now!()
        ));
    }
    parts.join(" UNION ALL ")
}

/// Of a row that runs: whether its lease has ended, though its claim may have been renewed. Those that were renewed take
/// no place of those that were not.
const ENDED: &str = concat!(
    " AND COALESCE((SELECT r.until FROM delayline_tasks_leases r FORCE INDEX (PRIMARY) \
     WHERE r.id = t.id AND r.version = t.version), 0) <= ",
    now!()
);

/// Which part of [`lanes`] a row of its answer is from.
pub(in crate::store::mysql) mod part {
    /// The time, in the last column.
    pub(crate) const NOW: i64 = 0;
    /// A kind that is there.
    pub(crate) const KIND: i64 = 1;
    /// Overdue in the first or the second state.
    pub(crate) const OVERDUE: [i64; 2] = [2, 3];
    /// What comes up.
    pub(crate) const AHEAD: i64 = 4;
}
