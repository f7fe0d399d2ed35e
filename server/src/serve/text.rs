//! Texts of the configuration, with what the environment adds.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A text of the file in which each `${NAME}` stands for a variable of the environment, and `$${` for `${`. It may be a
/// secret, so it is shown only to who asks for it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Text(String);

impl Text {
    /// A text that is no secret and has no variables.
    pub(crate) fn plain(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// `variable` gives the value of a variable of the environment.
    fn expand(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, name)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('$') {
                expanded.push_str(before);
                expanded.push_str("${");
                rest = name;
                continue;
            }
            expanded.push_str(before);
            let (name, after) = name
                .split_once('}')
                .ok_or("a \"${\" has no \"}\": allowed is ${NAME}, a variable of the environment")?;
            let is_name = !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !is_name {
                return Err(
                    "between \"${\" and \"}\" is no name: allowed are letters, digits and _".to_owned(),
                );
            }
            let value = variable(name);
            expanded.push_str(
                &value
                    .ok_or_else(|| format!("the environment has no variable {name}, or it is not UTF-8"))?,
            );
            rest = after;
        }
        expanded.push_str(rest);
        Ok(Self(expanded))
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not shown, as it may be a secret")
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Expanding;
        impl Visitor<'_> for Expanding {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Text::expand(text, |name| std::env::var(name).ok()).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Expanding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<String, String> {
        let variable = |name: &str| match name {
            "SECRET" => Some("s\"3 ${A}".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        Text::expand(text, variable).map(|text| text.reveal().to_owned())
    }

    #[test]
    fn variables_are_put_in_as_they_are_and_once() {
        assert_eq!(expanded("plain $5 }").as_deref(), Ok("plain $5 }"));
        assert_eq!(
            expanded("a${SECRET}b${EMPTY}${SECRET}").as_deref(),
            Ok("as\"3 ${A}bs\"3 ${A}")
        );
        assert_eq!(
            expanded("$${SECRET}$$$${}${EMPTY}").as_deref(),
            Ok("${SECRET}$$${}")
        );
    }

    #[test]
    fn what_is_no_variable_is_refused_by_name_and_without_the_text() {
        for (text, said) in [
            ("pw:${NONE}", "no variable NONE"),
            ("pw:${SECRET", "has no \"}\""),
            ("pw:${}", "no name"),
            ("pw:${A B}", "no name"),
        ] {
            let error = expanded(text).unwrap_err();
            assert!(error.contains(said) && !error.contains("pw"), "{error}");
        }
    }
}
