//! How kinds share the places of one take.

use std::collections::BTreeMap;

use crate::Kind;

/// The kinds of a take that may still have due tasks, in the order in which they come.
///
/// A store bounds a claim for each kind by itself. So each kind has a share, all of which are together no more than the
/// take, and what a kind does not need the others share in the next call.
pub(super) struct Shares(Vec<Kind>);

impl Shares {
    /// Among `kinds`, of which another is first each time: else the last would get nothing where there are few places.
    pub(super) fn among<'a>(kinds: impl IntoIterator<Item = &'a Kind>, turn: usize) -> Self {
        let mut kinds: Vec<_> = kinds.into_iter().cloned().collect();
        if !kinds.is_empty() {
            let first = turn % kinds.len();
            kinds.rotate_left(first);
        }
        Self(kinds)
    }

    /// The places of each kind in the next call, as evenly as can be; none if nothing more is due.
    pub(super) fn of(&self, places: usize) -> BTreeMap<Kind, usize> {
        let count = self.0.len().max(1);
        let (each, rest) = (places / count, places % count);
        let share = |(at, kind): (usize, &Kind)| (kind.clone(), each + usize::from(at < rest));
        let shares = self.0.iter().enumerate().map(share);
        shares.filter(|(_, places)| *places > 0).collect()
    }

    /// Records how many tasks of each kind a call with these shares has claimed. A kind that did not fill its share has
    /// nothing more; one that had no share comes first the next time.
    pub(super) fn brought(&mut self, shares: &BTreeMap<Kind, usize>, of: impl Fn(&Kind) -> usize) {
        self.0
            .retain(|kind| shares.get(kind).is_none_or(|&share| of(kind) >= share));
        self.0.sort_by_key(|kind| shares.contains_key(kind));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(shares: &[(&str, usize)]) -> BTreeMap<Kind, usize> {
        shares
            .iter()
            .map(|&(kind, places)| (kind.into(), places))
            .collect()
    }

    #[test]
    fn places_are_shared_evenly_and_another_is_first_each_time() {
        let kinds: [Kind; 3] = ["a".into(), "b".into(), "c".into()];
        let of = |turn, places| Shares::among(&kinds, turn).of(places);
        assert_eq!(of(0, 9), shares(&[("a", 3), ("b", 3), ("c", 3)]));
        assert_eq!(of(0, 10), shares(&[("a", 4), ("b", 3), ("c", 3)]));
        assert_eq!(of(1, 10), shares(&[("a", 3), ("b", 4), ("c", 3)]));
        assert_eq!(of(2, 2), shares(&[("a", 1), ("c", 1)]));
        assert_eq!(of(usize::MAX, 0), shares(&[]));
        assert_eq!(Shares::among(&[], 1).of(5), shares(&[]));
    }

    #[test]
    fn what_a_kind_does_not_need_goes_to_those_that_may_have_more() {
        let kinds: [Kind; 3] = ["a".into(), "b".into(), "c".into()];
        let mut among = Shares::among(&kinds, 0);
        let first = among.of(2);
        assert_eq!(first, shares(&[("a", 1), ("b", 1)]));
        // Nothing of a; and c, which had no share, comes before b.
        among.brought(&first, |kind| usize::from(kind.as_str() == "b"));
        assert_eq!(among.of(1), shares(&[("c", 1)]));
        assert_eq!(among.of(4), shares(&[("b", 2), ("c", 2)]));
        among.brought(&shares(&[("b", 2), ("c", 2)]), |_| 0);
        assert_eq!(among.of(4), shares(&[]));
    }
}
