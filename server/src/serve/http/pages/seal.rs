//! Sessions, which a browser keeps and only servers can read or make.

use std::fmt;

use aes_gcm::aead::{Aead as _, KeyInit as _};
use aes_gcm::{Aes256Gcm, Key, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use delayline::Timestamp;
use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::super::access::Access;

const NONCE: usize = 12;

/// Seals sessions, and knows the forms of its own pages again.
///
/// A session is the token that its visitor signed in with, sealed with the time of its end. So servers with the same tokens
/// know each other's sessions and keep none; a token that is taken out of the configuration ends its sessions at once; the
/// digests in a configuration, from which the key is made, are not enough to make a session; and who finds a session has no
/// token.
pub(super) struct Seal {
    sessions: Aes256Gcm,
    forms: Hmac<Sha256>,
}

impl Seal {
    pub(super) fn new(access: &Access) -> Result<Self, getrandom::Error> {
        let mut digests = access.digests();
        if digests.is_empty() {
            // There are no sessions then, and forms are known again until the server is started anew.
            let mut chance = [0; 32];
            getrandom::fill(&mut chance)?;
            digests.push(chance);
        }
        digests.sort_unstable();
        let key = |purpose: &str| {
            let mut key = Sha256::new_with_prefix(purpose);
            digests.iter().for_each(|digest| key.update(digest));
            <[u8; 32]>::from(key.finalize())
        };
        // A shorter key stands for one with zeros at its end.
        let mut forms = [0; 64];
        forms[..32].copy_from_slice(&key("delayline forms\n"));
        Ok(Self {
            sessions: Aes256Gcm::new(&Key::<Aes256Gcm>::from(key("delayline sessions\n"))),
            forms: hmac::KeyInit::new(&forms.into()),
        })
    }

    /// A session of who has a token, until a time.
    pub(super) fn close(&self, token: &str, until: Timestamp) -> Option<String> {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).ok()?;
        let text = format!("{}.{token}", until.as_millis());
        let sealed = self.sessions.encrypt(&Nonce::from(nonce), text.as_bytes()).ok()?;
        Some(URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    /// The token of a session that has not ended, and when it ends.
    pub(super) fn open(&self, session: &str, now: Timestamp) -> Option<(String, Timestamp)> {
        let bytes = URL_SAFE_NO_PAD.decode(session).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE>()?;
        let text = self.sessions.decrypt(&Nonce::from(*nonce), sealed).ok()?;
        let text = String::from_utf8(text).ok()?;
        let (until, token) = text.split_once('.')?;
        let until = Timestamp::from_millis(until.parse().ok()?);
        (now < until).then(|| (token.to_owned(), until))
    }

    /// What the forms of a session have in them: another page can have a browser send a form, but not read this.
    pub(super) fn form(&self, session: &str) -> String {
        let mut mac = self.forms.clone();
        mac.update(session.as_bytes());
        URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
    }

    pub(super) fn is_form(&self, session: &str, given: &str) -> bool {
        self.form(session).as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not shown, as it is a secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::config::{Digest, Token};

    fn seal(digests: &[u8]) -> Seal {
        let token = |&byte: &u8| Token {
            name: byte.to_string(),
            sha256: Digest([byte; 32]),
            may: [].into(),
            kinds: None,
        };
        Seal::new(&Access::new(digests.iter().map(token), Default::default())).unwrap()
    }

    const LATER: Timestamp = Timestamp::from_millis(2);
    const NOW: Timestamp = Timestamp::from_millis(1);

    #[test]
    fn servers_with_the_same_tokens_know_each_others_sessions_until_they_end() {
        let session = seal(&[1, 2]).close("a token", LATER).unwrap();
        assert_eq!(
            seal(&[2, 1]).open(&session, NOW),
            Some(("a token".to_owned(), LATER)),
            "whatever their order"
        );
        assert_eq!(seal(&[1, 2]).open(&session, LATER), None, "it has ended");
        assert_eq!(seal(&[1, 3]).open(&session, NOW), None, "of other tokens");
        assert!(!session.contains("token"));
    }

    #[test]
    fn a_session_that_was_changed_is_none() {
        let seal = seal(&[1]);
        let session = URL_SAFE_NO_PAD
            .decode(seal.close("a token", LATER).unwrap())
            .unwrap();
        for at in 0..session.len() {
            let mut session = session.clone();
            session[at] ^= 1;
            assert_eq!(seal.open(&URL_SAFE_NO_PAD.encode(session), NOW), None);
        }
        for text in ["", "AAAA", "no base64", &"A".repeat(100)] {
            assert_eq!(seal.open(text, NOW), None);
        }
    }

    #[test]
    fn forms_are_those_of_their_session() {
        let seal = seal(&[]);
        assert!(seal.is_form("one", &seal.form("one")));
        assert!(!seal.is_form("one", &seal.form("another")));
        assert!(!seal.is_form("one", ""));
        assert!(
            !super::tests::seal(&[]).is_form("one", &seal.form("one")),
            "its key is by chance"
        );
    }
}
