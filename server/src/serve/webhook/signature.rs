//! Signs messages, so that receivers can verify the server: <https://www.standardwebhooks.com>.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::de::value::{SeqAccessDeserializer, StrDeserializer};
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use sha2::Sha256;

use crate::serve::text::Text;

/// The prefix of the Base64 of a secret.
const PREFIX: &str = "whsec_";
/// How many bytes a secret has.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A secret that is shared with a receiver.
#[derive(Clone, serde::Deserialize)]
#[serde(try_from = "Text")]
struct Secret {
    /// Without its prefix.
    text: String,
    key: Hmac<Sha256>,
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl TryFrom<Text> for Secret {
    type Error = &'static str;

    fn try_from(text: Text) -> Result<Self, &'static str> {
        const ALLOWED: &str = "secret is not shown: allowed is whsec_ and the Base64 of 24 to 64 bytes, such as \
                               `echo whsec_$(openssl rand -base64 32)` prints, or a list of these";
        let text = text.reveal().strip_prefix(PREFIX).ok_or(ALLOWED)?;
        let bytes = STANDARD.decode(text).map_err(|_| ALLOWED)?;
        if !BYTES.contains(&bytes.len()) {
            return Err(ALLOWED);
        }
        Ok(Self {
            text: text.to_owned(),
            key: Hmac::new_from_slice(&bytes).map_err(|_| ALLOWED)?,
        })
    }
}

/// One secret, or several while receivers change from one to another.
#[derive(Clone, PartialEq)]
pub(crate) struct Secrets(Vec<Secret>);

impl Secrets {
    /// Makes the signatures of a message, in the header's form: one by each secret.
    pub(super) fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let sign = |secret: &Secret| {
            let mut mac = secret.key.clone();
            for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
                mac.update(part);
            }
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        };
        self.0.iter().map(sign).collect::<Vec<_>>().join(" ")
    }

    /// Removes the secrets from a text of a receiver.
    pub(super) fn hide(&self, text: &str) -> String {
        let hide = |text: String, secret: &Secret| text.replace(&secret.text, "…");
        self.0.iter().fold(text.to_owned(), hide)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} that are not shown", self.0.len())
    }
}

impl<'de> Deserialize<'de> for Secrets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Secrets;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Secrets, E> {
                let secret = Secret::deserialize(StrDeserializer::new(text))?;
                Ok(Secrets(vec![secret]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Secrets, A::Error> {
                let secrets: Vec<_> = Vec::deserialize(SeqAccessDeserializer::new(seq))?;
                match secrets.is_empty() {
                    true => Err(de::Error::custom(
                        "secret is an empty list: allowed is one or more",
                    )),
                    false => Ok(Secrets(secrets)),
                }
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

#[cfg(test)]
impl Secrets {
    pub(super) fn of(texts: &[&str]) -> Self {
        let secret = |text: &&str| Secret::try_from(Text::plain(text)).unwrap();
        Self(texts.iter().map(secret).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHED: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    /// The example in the tests of the specification's own libraries.
    #[test]
    fn the_published_example_is_signed_as_published() {
        let signature = Secrets::of(&[PUBLISHED]).sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn each_secret_signs() {
        let other = format!("whsec_{}", STANDARD.encode([7; 64]));
        let sign = |secrets: &[&str]| Secrets::of(secrets).sign("id", "1", b"body");
        let both = format!("{} {}", sign(&[PUBLISHED]), sign(&[&other]));
        assert_eq!(sign(&[PUBLISHED, &other]), both);
    }

    #[test]
    fn a_secret_of_another_form_is_refused_and_not_shown() {
        let encoded = |bytes: usize| STANDARD.encode(vec![0xfb; bytes]);
        for text in [
            String::new(),
            "whsec_".to_owned(),
            encoded(32),
            format!("whsec_{}", encoded(23)),
            format!("whsec_{}", encoded(65)),
            format!("WHSEC_{}", encoded(32)),
            format!("whsec_{}", encoded(32).trim_end_matches('=')),
            format!("whsec_{}", encoded(32).replace('+', "-")),
            format!("whsec_{} ", encoded(32)),
            format!("whsk_{}", encoded(32)),
        ] {
            let refused = Secret::try_from(Text::plain(&text)).err().unwrap();
            assert!(
                refused.starts_with("secret is not shown: allowed is whsec_"),
                "{text}"
            );
        }
        for bytes in [24, 64] {
            assert!(Secret::try_from(Text::plain(&format!("whsec_{}", encoded(bytes)))).is_ok());
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let secrets = Secrets::of(&[PUBLISHED]);
        assert_eq!(format!("{secrets:?}"), "1 that are not shown");
        assert_eq!(
            secrets.hide(&format!("not {PUBLISHED}, is it?")),
            "not whsec_…, is it?"
        );
    }
}
