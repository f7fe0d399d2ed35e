//! Where the pages begin.

use serde::Deserialize;

use crate::serve::text::Text;

/// Where all pages begin: `/`, or a path such as `/delayline`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Text")]
pub(crate) struct BasePath(String);

impl BasePath {
    /// Without the last slash: empty for `/`.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<Text> for BasePath {
    type Error = String;

    fn try_from(text: Text) -> Result<Self, String> {
        let path = text.reveal();
        let is_plain = |part: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            !matches!(part, "" | "." | "..") && part.bytes().all(plain)
        };
        let parts = path
            .strip_prefix('/')
            .map(|path| path.strip_suffix('/').unwrap_or(path));
        match parts {
            Some("") => Ok(Self(String::new())),
            Some(parts) if parts.split('/').all(is_plain) => Ok(Self(format!("/{parts}"))),
            _ => Err(format!(
                "base_path is {path:?}: allowed is / or a path such as /delayline"
            )),
        }
    }
}
