//! Texts for people, which may be longer than is good for a statement.

/// How many bytes of an error are kept: a claim must be able to end whatever its handler had to say.
const LONGEST: usize = 256 << 10;

/// The beginning of a text, all of it unless it is too long.
pub(in crate::store) fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}
