//! Removes from answers what they repeat of the URL that was posted to, as a secret may be in it.

use std::borrow::Cow;
use std::cmp::Reverse;

use percent_encoding::percent_decode_str;
use url::{Position, Url};

/// A shorter text is no secret, and may be part of any word.
const SHORTEST: usize = 8;

/// What an answer may repeat of a URL: its path, its query, and each part of them.
pub(super) struct Repeated(Vec<String>);

impl Repeated {
    pub(super) fn of(url: &Url) -> Self {
        let query = url.query().unwrap_or_default();
        let values = query
            .split('&')
            .map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
        let texts = [
            &url[Position::BeforePath..Position::AfterQuery],
            url.path(),
            query,
        ]
        .into_iter()
        .chain(url.path().split('/'))
        .chain(values);
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        // As a reader of forms has them, which takes a plus for a space.
        let pairs = url.query_pairs();
        let pairs = pairs.map(|(name, value)| if value.is_empty() { name } else { value });
        let mut texts: Vec<_> = texts
            .flat_map(|text| [text.to_owned(), decoded(text)])
            .chain(pairs.map(Cow::into_owned))
            .filter(|text| text.len() >= SHORTEST)
            .collect();
        // The longer ones first: of one whose part is gone the rest would stay.
        texts.sort_by_key(|text| Reverse(text.len()));
        Self(texts)
    }

    /// Removes them from a text of a receiver.
    pub(super) fn hide(&self, text: String) -> String {
        self.0.iter().fold(text, |text, part| text.replace(part, "…"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_secret_of_a_url_is_hidden_however_it_is_repeated() {
        let url = "https://h.example/hooks/T0/XoP4%202pQ9%2F?token=hunter2&signature=aGk+dGhlcmU=";
        let url = Url::parse(url).unwrap();
        let repeated = Repeated::of(&url);
        let whole = &url[Position::BeforePath..];
        for (said, kept) in [
            (format!("Cannot POST {whole}"), "Cannot POST …"),
            (format!("Cannot POST {}", url.path()), "Cannot POST …"),
            (
                "no route hooks/T0/XoP4%202pQ9%2F".to_owned(),
                "no route hooks/T0/…",
            ),
            (
                r"no route hooks\/T0\/XoP4 2pQ9/".to_owned(),
                r"no route hooks\/T0\/…",
            ),
            ("no user is XoP4 2pQ9/".to_owned(), "no user is …"),
            ("wrong signature aGk+dGhlcmU=".to_owned(), "wrong signature …"),
            ("wrong signature aGk dGhlcmU=".to_owned(), "wrong signature …"),
            (format!("wrong {}", url.query().unwrap()), "wrong …"),
            ("no hooks at T0".to_owned(), "no hooks at T0"),
        ] {
            assert_eq!(repeated.hide(said.clone()), kept, "{said}");
        }
    }

    #[test]
    fn of_a_url_without_a_path_nothing_is_hidden() {
        let repeated = Repeated::of(&Url::parse("http://h.example").unwrap());
        assert_eq!(
            repeated.hide("no page / at h.example".to_owned()),
            "no page / at h.example"
        );
    }
}
