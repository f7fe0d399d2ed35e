//! Ranges of all forms, for tests of how databases go about them.

use std::time::Duration;

use crate::store::table::{By, Range, Start};
use crate::{State, TaskId, Timestamp};

/// Ranges of every form.
pub(in crate::store) fn ranges() -> impl Iterator<Item = Range> {
    let froms = [
        Start::First,
        Start::Ago(Duration::ZERO),
        Start::After(Timestamp::MIN, TaskId::from_bytes([0; 16])),
    ];
    let forms = State::ALL
        .into_iter()
        .flat_map(move |state| froms.map(|from| (state, from)));
    forms.flat_map(|(state, from)| {
        let wake = Range {
            from,
            ..Range::overdue(state, 9)
        };
        let all_due = Range {
            by: By::Due,
            ..wake.clone()
        };
        let due = Range {
            kind: Some("k".into()),
            ..all_due.clone()
        };
        let fitting = Range {
            bytes: 9,
            ..due.clone()
        };
        let listed = Range {
            within: None,
            ..due.clone()
        };
        let last = Range {
            within: None,
            backwards: true,
            ..wake.clone()
        };
        let is_wakes = matches!(from, Start::After(..));
        let of_wakes = [wake, last].into_iter().filter(move |_| !is_wakes);
        of_wakes.chain([all_due, due, fitting, listed])
    })
}
