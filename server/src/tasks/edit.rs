//! `delayline tasks edit`: another payload, another time, or both.

use std::path::PathBuf;

use delayline::Timestamp;
use serde_json::value::RawValue;

use super::change::{Told, hinted, print_outcome};
use super::{One, missing, when};
use crate::Failure;
use crate::span::Span;
use crate::{input, operations};

/// Give a scheduled task another payload, another time, or both; what is not given stays as it is.
#[derive(Debug, clap::Args)]
pub(super) struct Edit {
    #[command(flatten)]
    one: One,
    /// Its new payload, which is JSON
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    payload: Option<String>,
    /// A file with its new payload, or - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "payload", value_hint = clap::ValueHint::FilePath)]
    payload_file: Option<PathBuf>,
    /// Its new time, such as 2026-12-24T18:00:00Z
    #[arg(
        long,
        value_name = "TIME",
        conflicts_with = "after",
        allow_hyphen_values = true
    )]
    at: Option<Timestamp>,
    /// Its new time, from now, such as 15m
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    after: Option<Span>,
    #[command(flatten)]
    told: Told,
}

impl Edit {
    pub(super) fn run(self) -> Result<(), Failure> {
        let target = self.one.needed()?;
        let (given_by, text) = match (self.payload, self.payload_file) {
            (Some(text), _) => ("--payload".to_owned(), Some(text)),
            (None, Some(path)) => {
                let text = input::read(&path).map_err(|cause| {
                    Failure::Argument(format!(
                        "--payload-file is {path:?}: allowed is the path of a file with JSON that can be read ({cause})"
                    ))
                })?;
                (format!("--payload-file ({path:?})"), Some(text))
            }
            (None, None) => (String::new(), None),
        };
        let payload = text.map(|text| json(&given_by, text)).transpose()?;
        let due = when(self.at, self.after);
        if payload.is_none() && due.is_none() {
            let allowed = "allowed are --payload or --payload-file, and --at or --after";
            return Err(missing("nothing to change is given", allowed));
        }
        let Told { reason, place, json } = self.told;
        let outcome = crate::in_runtime(async {
            let client = place.client().await?;
            let edit = operations::Edit { payload, due };
            let outcome = client.edit(target.clone(), edit, reason).await?;
            Ok::<_, Failure>(hinted(&client, &target, outcome).await)
        })??;
        print_outcome(&target, &outcome, json, ("edit", "scheduled"))
    }
}

/// A payload without the spaces around it. It is not shown, as it may hold what is for its worker alone.
fn json(given_by: &str, text: String) -> Result<Box<RawValue>, Failure> {
    RawValue::from_string(text.trim().to_owned())
        .map_err(|cause| Failure::Argument(format!("{given_by} is not shown: allowed is JSON ({cause})")))
}
