//! How the log is written: to standard error, as the environment variable `RUST_LOG` says, else from `info` on.

use std::io;

use tracing_subscriber::EnvFilter;

/// One event a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people
    Lines,
    /// For machines
    Json,
}

pub(crate) fn start(format: Format) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,rocketmq=off"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(crate::color::has_colours(&io::stderr()));
    match format {
        Format::Lines => log.init(),
        Format::Json => log.json().init(),
    }
}
