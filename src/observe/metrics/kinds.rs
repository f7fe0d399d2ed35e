//! Which kinds are told apart.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use metrics::SharedString;

use crate::Kind;

/// What all those are called together that are not told apart.
pub(crate) const OTHER: SharedString = SharedString::const_str("other");

/// Gives names to a bounded number of kinds, first come, first served: callers may make as many kinds as they like, and each
/// would be some hundred series.
#[derive(Debug)]
pub(super) struct Kinds {
    own: RwLock<BTreeMap<Kind, SharedString>>,
    most: usize,
}

impl Kinds {
    pub(super) fn new(most: usize) -> Self {
        Self {
            own: RwLock::default(),
            most,
        }
    }

    /// The name by which a kind is told. `is_first` is called with it when it is given.
    pub(super) fn name(&self, kind: &Kind, is_first: impl FnOnce(&SharedString)) -> SharedString {
        {
            let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
            match own.get(kind) {
                Some(name) => return name.clone(),
                None if own.len() >= self.most => return OTHER,
                None => {}
            }
        }
        let mut own = self.own.write().unwrap_or_else(PoisonError::into_inner);
        match own.get(kind) {
            Some(name) => return name.clone(),
            None if own.len() >= self.most => return OTHER,
            None => {}
        }
        let name = SharedString::from_shared(Arc::from(kind.as_str()));
        is_first(&name);
        own.insert(kind.clone(), name.clone());
        name
    }

    /// Those that have a name of their own.
    pub(super) fn own(&self) -> Vec<Kind> {
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        own.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_kinds_have_names_of_their_own_and_keep_them() {
        let kinds = Kinds::new(2);
        let mut first = Vec::new();
        let mut names = Vec::new();
        for kind in ["b", "a", "c", "b", "d", "a"] {
            names.push(kinds.name(&kind.into(), |name| first.push(name.to_string())));
        }
        assert_eq!(
            names,
            ["b", "a", "other", "b", "other", "a"].map(SharedString::from)
        );
        assert_eq!(first, ["b", "a"]);
        assert_eq!(kinds.own(), ["a", "b"].map(Kind::from));
    }
}
