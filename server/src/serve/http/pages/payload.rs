//! The payload of a task, as text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// How many bytes of a payload are shown.
const SHOWN: usize = 64 << 10;
/// How many bytes of it are edited: in a form each of them may take three.
const EDITED: usize = 16 << 10;

/// A payload as a page has it: what it is, and its text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PayloadView {
    pub(super) what: &'static str,
    pub(super) text: String,
    /// Whether there is more of it.
    pub(super) is_cut: bool,
}

/// What a payload is that is JSON.
const JSON: &str = "JSON";

impl PayloadView {
    /// Returns the text, if it is all of a payload in JSON, and not too long for a form.
    pub(super) fn editable(&self) -> Option<&str> {
        (self.what == JSON && self.text.len() <= EDITED).then_some(&self.text)
    }

    pub(super) fn of(payload: &[u8]) -> Self {
        let is_cut = payload.len() > SHOWN;
        let (what, text) = match std::str::from_utf8(payload) {
            Ok(text) if !is_cut && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => {
                (JSON, indented(text))
            }
            Ok(text) => {
                let end = text.floor_char_boundary(SHOWN);
                ("text", text[..end].to_owned())
            }
            Err(_) => {
                let end = payload.len().min(SHOWN);
                ("bytes, in Base64", STANDARD.encode(&payload[..end]))
            }
        };
        Self { what, text, is_cut }
    }
}

/// JSON on several lines; all else is as it was written, such as the digits of a number.
fn indented(json: &str) -> String {
    let mut text = String::with_capacity(json.len() * 2);
    let mut depth = 0_usize;
    let mut texts = Texts::default();
    let line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.extend(std::iter::repeat_n("  ", depth.min(32)));
    };
    let mut rest = json.chars().peekable();
    while let Some(c) = rest.next() {
        if texts.have(c) {
            text.push(c);
            continue;
        }
        match c {
            '{' | '[' => {
                text.push(c);
                while rest.next_if(char::is_ascii_whitespace).is_some() {}
                // What is empty stays on its line.
                if let Some(end) = rest.next_if(|next| matches!(next, '}' | ']')) {
                    text.push(end);
                } else {
                    depth += 1;
                    line(&mut text, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut text, depth);
                text.push(c);
            }
            ',' => {
                text.push(c);
                line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => text.push(c),
        }
    }
    text
}

/// JSON without white space beside its texts.
pub(super) fn compact(json: &str) -> String {
    let mut texts = Texts::default();
    let is_kept = |c: &char| texts.have(*c) || !c.is_ascii_whitespace();
    json.chars().filter(is_kept).collect()
}

/// Tells what is within the texts of JSON, sign by sign.
#[derive(Default)]
struct Texts {
    is_within: bool,
    is_escaped: bool,
}

impl Texts {
    /// Whether the next sign is of a text, or one of its quotation marks.
    fn have(&mut self, sign: char) -> bool {
        let was_within = self.is_within;
        if sign == '"' && !self.is_escaped {
            self.is_within = !was_within;
        }
        self.is_escaped = was_within && sign == '\\' && !self.is_escaped;
        was_within || self.is_within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_and_else_as_it_was_written() {
        let json = r#"{"a":[1,2.50,{}, [ ]],"b\"":"x: {\\","c":12345678901234567890123}"#;
        let shown = PayloadView::of(json.as_bytes());
        assert_eq!(shown.what, "JSON");
        assert_eq!(
            shown.text,
            "{\n  \"a\": [\n    1,\n    2.50,\n    {},\n    []\n  ],\n  \"b\\\"\": \"x: {\\\\\",\n  \"c\": \
             12345678901234567890123\n}"
        );
        let stored = r#"{"a":[1,2.50,{},[]],"b\"":"x: {\\","c":12345678901234567890123}"#;
        assert_eq!(compact(&shown.text), stored);
    }

    #[test]
    fn what_is_no_json_is_text_or_bytes_and_long_ones_are_cut() {
        assert_eq!(PayloadView::of(b"{no").what, "text");
        let bytes = PayloadView::of(&[0xff, 0]);
        assert_eq!((bytes.what, bytes.text.as_str()), ("bytes, in Base64", "/wA="));
        let long = PayloadView::of("ä".repeat(SHOWN).as_bytes());
        assert_eq!((long.text.len(), long.is_cut), (SHOWN, true));
    }

    #[test]
    fn only_all_of_a_json_that_fits_a_form_is_edited() {
        let edited = |payload: &[u8]| PayloadView::of(payload).editable().map(str::len);
        let text = |length: usize| format!("\"{}\"", "ä".repeat(length / 2 - 1));
        assert_eq!(edited(text(EDITED).as_bytes()), Some(EDITED));
        assert_eq!(edited(text(EDITED + 2).as_bytes()), None);
        assert_eq!(edited(b"{no"), None);
        assert_eq!(edited(&[0xff]), None);
    }
}
