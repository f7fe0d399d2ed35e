//! `delayline redis rebuild`: sends wake-ups to a Redis that has lost them.

use super::Place;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
use super::{
    Rows, refused,
    resend::{Resent, resend},
};
use crate::Failure;

/// Send a wake-up for every scheduled task of a database into a Redis that came back empty, while workers run.
///
/// Not needed for safety: every worker finds tasks whose wake-up did not come, each up to a second late. This spares many
/// tasks that second.
///
/// Under a prefix that was never used it also makes the shards, which is how their number is changed: fill a new prefix,
/// and then let the processes use that.
#[derive(Debug, clap::Args)]
pub(crate) struct Rebuild {
    #[command(flatten)]
    place: Place,
    /// Over how many shards wake-ups are to be spread, 1 to 1024; an error if there is another number already
    #[arg(long, value_name = "N", value_parser = crate::whole::whole(1..=1_024_u16), allow_negative_numbers = true)]
    shards: Option<u16>,
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
    #[command(flatten)]
    rows: Rows,
}

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
impl Rebuild {
    pub(crate) fn run(self) -> Result<(), Failure> {
        use indicatif::{ProgressBar, ProgressStyle};

        let address = self.place.address()?;
        let mut builder = self.place.backend(&address);
        if let Some(shards) = self.shards {
            builder = builder.shards(shards);
        }
        let refused = |error| refused(&address, error);
        let backend = builder.build().map_err(refused)?;
        let bar = ProgressBar::new(0);
        // Counting the rows would take as long as sending.
        let style = ProgressStyle::with_template("[{bar:30}] kind {pos} of {len}: {msg} {elapsed}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        let progress = |so_far: &Resent| {
            bar.set_length(so_far.of_kinds as u64);
            bar.set_position(so_far.kinds as u64);
            bar.set_message(format!("{} wake-ups sent", so_far.sent));
        };
        let done = crate::in_runtime(async {
            let store = self.rows.open().await?;
            resend(&*store, &backend, progress)
                .await
                .map_err(|error| match error {
                    // Of the rows' server.
                    error @ delayline::Error::Store { .. } => error.into(),
                    error => refused(error),
                })
        })??;
        bar.finish_and_clear();
        crate::print(&format!(
            "{} wake-ups were sent, of {} kinds\n",
            done.sent, done.kinds
        ))
    }
}

#[cfg(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")))]
impl Rebuild {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let _ = (self.place, self.shards);
        Err(Failure::Argument("this build knows no database".to_owned()))
    }
}
