//! Which kinds a token is for.

use serde::Deserialize;

/// Names of kinds, each as it is or, with a `*` at its end, as what they begin with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub(crate) struct KindPatterns(Vec<String>);

impl KindPatterns {
    pub(crate) fn allow(&self, kind: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => kind.starts_with(beginning),
            None => kind == pattern,
        })
    }
}

impl TryFrom<Vec<String>> for KindPatterns {
    type Error = String;

    fn try_from(patterns: Vec<String>) -> Result<Self, String> {
        const ALLOWED: &str = "allowed are one or more names of kinds, each of 1 to 100 bytes without control characters, and a * \
                               at its end for whatever follows, such as \"order.*\"";
        let is_pattern = |pattern: &String| {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            (1..=100).contains(&pattern.len()) && !name.contains(|c: char| c == '*' || c.is_control())
        };
        match patterns.iter().find(|pattern| !is_pattern(pattern)) {
            Some(pattern) => Err(format!("kinds has {pattern:?}: {ALLOWED}")),
            None if patterns.is_empty() => Err(format!("kinds is empty: {ALLOWED}")),
            None => Ok(Self(patterns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Result<KindPatterns, String> {
        KindPatterns::try_from(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_kind_is_named_as_it_is_or_by_how_it_begins() {
        let kinds = patterns(&["order.*", "report"]).unwrap();
        for (kind, is_allowed) in [
            ("order.cancel", true),
            ("order.", true),
            ("order", false),
            ("orders", false),
            ("report", true),
            ("report.build", false),
            ("Order.cancel", false),
        ] {
            assert_eq!(kinds.allow(kind), is_allowed, "{kind}");
        }
        assert!(patterns(&["*"]).unwrap().allow("whatever"));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for wrong in [
            &[][..],
            &[""],
            &["a", "a*b"],
            &["**"],
            &["a\n"],
            &[&"k".repeat(101)],
        ] {
            assert!(patterns(wrong).is_err(), "{wrong:?}");
        }
    }
}
