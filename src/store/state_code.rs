//! The number of each state, by which every store keeps it: in columns, conditions of indexes, names of keys and heads of rows.
//!
//! SQL and Lua say `0` and `1` where they mean scheduled and running. No number may ever be given to another state.

use crate::State;

/// Returns the number of a state.
pub(super) const fn of(state: State) -> u8 {
    match state {
        State::Scheduled => 0,
        State::Running => 1,
        State::Done => 2,
        State::Dead => 3,
        State::Cancelled => 4,
    }
}

/// Returns the state of a number.
pub(super) fn state(number: impl Into<i64>) -> Option<State> {
    let number = number.into();
    State::ALL.into_iter().find(|one| i64::from(of(*one)) == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_what_they_are() {
        assert_eq!(State::ALL.map(of), [0, 1, 2, 3, 4]);
        assert_eq!(State::ALL.map(|one| state(of(one))), State::ALL.map(Some));
        assert_eq!([-1, 5].map(state), [None, None]);
    }
}
