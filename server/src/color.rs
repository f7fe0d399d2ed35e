//! Whether what is printed has colours.

use anstream::ColorChoice;
use clap::ValueEnum as _;

/// When there are colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// Has all that is printed go by it.
    pub(crate) fn apply(self) {
        match self {
            Self::Auto => ColorChoice::Auto,
            Self::Always => ColorChoice::Always,
            Self::Never => ColorChoice::Never,
        }
        .write_global();
    }

    /// What the command line says, where the help is shown in place of its arguments.
    pub(crate) fn asked() -> Self {
        let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let word = words.find(|word| word == "--color" || word.starts_with("--color="));
        let value = match word.as_deref().and_then(|word| word.split_once('=')) {
            Some((_, value)) => value.to_owned(),
            None => words.next().unwrap_or_default(),
        };
        Self::from_str(&value, false).unwrap_or_default()
    }
}

/// Whether what is written to a stream has colours.
#[cfg(feature = "_servers")]
pub(crate) fn has_colours<S: anstream::stream::RawStream>(stream: &S) -> bool {
    anstream::AutoStream::choice(stream) != ColorChoice::Never
}
