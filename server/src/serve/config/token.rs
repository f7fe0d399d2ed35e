//! The tokens of the configuration: what each is good for, and of which kinds.

use std::collections::BTreeSet;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::KindPatterns;
use crate::serve::text::Text;

/// A bearer token, of which only the SHA-256 is kept.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    /// The name of its owner: written into history and logs.
    pub(crate) name: String,
    pub(crate) sha256: Digest,
    pub(crate) may: BTreeSet<Right>,
    /// Of which kinds it may see, change and claim tasks; none: of all.
    #[serde(default)]
    pub(crate) kinds: Option<KindPatterns>,
}

/// What a token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Right {
    /// See tasks, kinds and figures.
    Read,
    /// Schedule tasks.
    Schedule,
    /// Move, cancel, run, redrive and dismiss them.
    Change,
    /// Claim tasks that are due, and end the claims.
    Work,
    /// See the figures of `/metrics`, and nothing else.
    Scrape,
}

impl Right {
    /// As `may` names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Schedule => "schedule",
            Self::Change => "change",
            Self::Work => "work",
            Self::Scrape => "scrape",
        }
    }
}

/// The SHA-256 of a token, in 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Text")]
pub(crate) struct Digest(pub(crate) [u8; 32]);

impl TryFrom<Text> for Digest {
    type Error = String;

    fn try_from(text: Text) -> Result<Self, String> {
        const ALLOWED: &str = "sha256 is not shown: allowed are 64 hexadecimal digits, such as `printf %s \"$TOKEN\" | sha256sum` prints";
        let digits = text.reveal().as_bytes();
        let mut digest = [0; 32];
        if digits.len() != 64 {
            return Err(ALLOWED.to_owned());
        }
        for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
            let value = |digit: u8| char::from(digit).to_digit(16);
            let (Some(high), Some(low)) = (value(pair[0]), value(pair[1])) else {
                return Err(ALLOWED.to_owned());
            };
            *byte = u8::try_from(high * 16 + low).map_err(|_| ALLOWED.to_owned())?;
        }
        // What is hashed where the variable with the token is not set, with and without the line break of `echo`.
        match NO_TOKENS
            .iter()
            .find(|(text, _)| Sha256::digest(text)[..] == digest)
        {
            Some((_, what)) => Err(format!(
                "sha256 is that of {what}: allowed is that of a token, such as `openssl rand -base64 32` prints"
            )),
            None => Ok(Self(digest)),
        }
    }
}

/// What is no token, and what it is called.
const NO_TOKENS: [(&str, &str); 3] = [
    ("", "an empty token"),
    ("\n", "a line break alone"),
    ("\r\n", "a line break alone"),
];
