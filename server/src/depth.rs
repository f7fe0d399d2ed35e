//! How deeply JSON is nested.

/// So many arrays and objects may be in each other in a payload. Many parsers take 128 in all, and what an answer puts
/// around a payload counts as well.
pub(crate) const DEEPEST: usize = 120;

/// Refuses JSON that is deeper.
pub(crate) fn check(json: &str) -> Result<(), delayline::Error> {
    match depth(json.as_bytes()) {
        ..=DEEPEST => Ok(()),
        deep => Err(delayline::Error::Invalid {
            field: "payload",
            value: format!("{deep} levels of arrays and objects"),
            allowed: format!(
                "allowed are up to {DEEPEST} levels, as workers in other languages read no more"
            ),
        }),
    }
}

/// How many arrays and objects are in each other, of JSON that is well-formed.
pub(crate) fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_text, mut is_escaped) = (false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_each_other_counts_and_what_is_in_a_text_does_not() {
        for (json, expected) in [
            ("1", 0),
            ("[]", 1),
            (r#"[[], {"a": [1]}, []]"#, 3),
            (r#"{"[[[": "{{{\"[[["}"#, 1),
            (r#"["\\", [1]]"#, 2),
        ] {
            assert_eq!(depth(json.as_bytes()), expected, "{json}");
        }
    }
}
