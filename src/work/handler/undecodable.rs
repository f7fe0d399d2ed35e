//! Why a payload cannot be decoded, without what is in it.

use serde_json::error::Category;

/// What a decoder says begins so, and then has the names of the type only.
const OF_THE_TYPE: [&str; 4] = [
    "missing field `",
    "duplicate field `",
    "invalid length ",
    "data did not match any variant of untagged enum ",
];
/// The longest name of a field that is repeated.
const LONGEST_NAME: usize = 64;

/// What the decoder says, and where. What it repeats of the payload is left out: that may be anything.
pub(super) fn why(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let at = format!(" at line {} column {}", error.line(), error.column());
    let said = text.strip_suffix(&at).unwrap_or(&text);
    let said = match error.classify() {
        Category::Data => without_values(said),
        // It is no JSON, and the decoder says which sign it misses.
        Category::Io | Category::Syntax | Category::Eof => said.to_owned(),
    };
    let said = said.replace('`', "\"");
    match error.line() {
        0 => said,
        line => format!("{said} (line {line}, column {})", error.column()),
    }
}

fn without_values(said: &str) -> String {
    if OF_THE_TYPE.iter().any(|begin| said.starts_with(begin)) {
        return said.to_owned();
    }
    let expected = said.rfind(", expected ").map_or("", |at| &said[at..]);
    for begin in ["invalid type: ", "invalid value: "] {
        if let Some(found) = said.strip_prefix(begin) {
            // `string "…"`, ``integer `…` ``: up to what stands in the payload.
            let end = found.find(['"', '`', ',']).unwrap_or(found.len());
            return format!("{begin}{}{expected}", found[..end].trim_end());
        }
    }
    if let Some((name, _)) = said
        .strip_prefix("unknown field `")
        .and_then(|rest| rest.split_once('`'))
    {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        return match name.len() <= LONGEST_NAME && name.chars().all(is_name) {
            true => format!("unknown field `{name}`{expected}"),
            false => format!("unknown field{expected}"),
        };
    }
    match said.starts_with("unknown variant ") {
        true => format!("unknown variant{expected}"),
        false => "a value that the type refuses".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Order {
        order_id: u64,
        way: Option<Way>,
        note: Option<String>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Way {
        Post,
        Mail,
    }

    #[derive(Debug)]
    struct Picky;

    impl<'de> Deserialize<'de> for Picky {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            Err(serde::de::Error::custom(format!("{text} is no date")))
        }
    }

    #[track_caller]
    fn said<T: DeserializeOwned + std::fmt::Debug>(payload: &str) -> String {
        why(&serde_json::from_str::<T>(payload).unwrap_err())
    }

    #[test]
    fn the_field_and_what_was_expected_are_told_and_no_value() {
        for (payload, told) in [
            (
                r#"{"note":"s3cret"}"#,
                r#"missing field "order_id" (line 1, column 17)"#,
            ),
            (
                r#"{"order_id":1,"order_id":2}"#,
                r#"duplicate field "order_id" (line 1, column 24)"#,
            ),
            (
                r#"{"order_id":"s3cret, expected `s3cret`"}"#,
                "invalid type: string, expected u64 (line 1, column 39)",
            ),
            (
                r#"{"order_id":-5}"#,
                "invalid value: integer, expected u64 (line 1, column 14)",
            ),
            (
                r#"{"order_id":null}"#,
                "invalid type: null, expected u64 (line 1, column 16)",
            ),
            (
                r#"{"orderId":1}"#,
                r#"unknown field "orderId", expected one of "order_id", "way", "note" (line 1, column 10)"#,
            ),
            (
                r#"{"s3cret of a customer":1}"#,
                r#"unknown field, expected one of "order_id", "way", "note" (line 1, column 23)"#,
            ),
            (
                r#"{"way":"s3cret"}"#,
                r#"unknown variant, expected "post" or "mail" (line 1, column 15)"#,
            ),
            ("{\"order_id\":", "EOF while parsing a value (line 1, column 12)"),
            ("s3cret", "expected value (line 1, column 1)"),
        ] {
            assert_eq!(said::<Order>(payload), told, "{payload}");
        }
        assert_eq!(said::<Picky>("\"s3cret\""), "a value that the type refuses");
    }
}
