//! `delayline probe`: reports what brokers are, and how late their levels are.

mod choice;
mod flights;
mod lateness;
mod picture;
mod progress;
mod report;
mod run;
mod text;
mod warnings;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write as _};
use std::str::FromStr;
use std::sync::Arc;

use delayline::backend::{Backend as _, RocketMqBackend};
use delayline::rocketmq::{RocketMqOptions, Scratch, Survey};

use self::lateness::Probed;
use self::progress::Progress;
use self::report::Report;
pub(crate) use self::run::{Order, probe};
use crate::color::has_colours;
use crate::field::by_flag;
use crate::interrupt::interrupted;
use crate::whole::{digits, whole};
use crate::{Failure, in_runtime, print};

/// The beginning of the topic's and the group's names.
const NAME: &str = "delayline_probe";
/// The environment variable with the account's secret key: an argument would show in the list of processes.
const SECRET: &str = "DELAYLINE_ROCKETMQ_SECRET";
/// How many messages are sent for each master before the probes, to know that it delivers: two for each queue.
const WARM_UP: usize = 16;
/// What flags are in the library's errors.
const FLAGS: &[(&str, &str)] = &[("nameservers", "--nameserver"), ("tls authorities", "--tls-ca")];

/// Ask RocketMQ brokers what they are, and measure how late their delay levels are.
///
/// The probes are small messages, sent at an even pace (at most 1,000 a second) through each of the levels at the same
/// time, so a run takes a few seconds longer than its longest level. How late one is counts from the moment at which
/// its send was asked for. One that is not confirmed is sent again,
/// five times in all, and counts from its last try. A probe that has not come 10 s after the last one was due counts as lost. Their topic and
/// their consumer group are made for the run and deleted after it.
///
/// The exit status is 0 if every probe arrived, warnings or not; 1 if the brokers could not be asked, or a probe could
/// not be sent or was lost; 2 if an argument cannot be used.
#[derive(Debug, clap::Args)]
pub(crate) struct Probe {
    /// The nameservers, several separated by semicolons
    #[arg(long, value_name = "HOST:PORT")]
    nameserver: String,
    /// The numbers of the levels to probe, such as 1,2,3; otherwise those of at most 10s
    #[arg(long, value_name = "NUMBERS", allow_hyphen_values = true)]
    levels: Option<Numbers>,
    /// How many probes to send through each level, up to 100000
    #[arg(long, value_name = "N", value_parser = whole(1..=100_000_usize), default_value = "200", allow_hyphen_values = true)]
    count: usize,
    /// The account to ask as; its secret key is taken from the environment, from DELAYLINE_ROCKETMQ_SECRET
    #[arg(long, value_name = "KEY")]
    access_key: Option<String>,
    /// Speak TLS, and trust the authorities in this PEM file
    #[cfg(feature = "rocketmq-tls")]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<std::path::PathBuf>,
    /// Print JSON, with every duration in milliseconds
    #[arg(long)]
    json: bool,
}

/// The numbers of levels.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(BTreeSet<usize>);

impl FromStr for Numbers {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| digits(text).filter(|&number| number > 0);
        let numbers: Option<_> = text
            .split(',')
            .map(|text| number(text.trim_matches(' ')))
            .collect();
        numbers
            .map(Self)
            .ok_or("allowed are the numbers of levels, from 1, separated by commas, such as 1,2,3")
    }
}

impl Probe {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let report = in_runtime(self.until_interrupted())??;
        print(&match self.json {
            true => report.json()?,
            false => report.text(has_colours(&io::stdout())),
        })?;
        report.verdict()
    }

    fn options(&self) -> Result<RocketMqOptions, Failure> {
        let mut options = RocketMqOptions::new(&self.nameserver).topic(NAME).group(NAME);
        if let Some(access_key) = &self.access_key {
            let secret = std::env::var(SECRET).map_err(|_| {
                Failure::Argument(format!(
                    "--access-key is given, and {SECRET} is not set: it must hold the account's secret key"
                ))
            })?;
            options = options.credentials(access_key, secret);
        }
        #[cfg(feature = "rocketmq-tls")]
        if let Some(authorities) = &self.tls_ca {
            options = options.tls(authorities);
        }
        Ok(options)
    }

    async fn until_interrupted(&self) -> Result<Report, Failure> {
        let survey = Survey::take(self.options()?)
            .await
            .map_err(|error| by_flag(error, FLAGS))?;
        let table = survey.levels();
        let mut warnings = warnings::of_survey(&survey);
        let levels = match &self.levels {
            Some(Numbers(numbers)) => choice::named(&table, numbers, &mut warnings)?,
            None => choice::short(&table, &mut warnings),
        };
        let order = Order {
            levels: &levels,
            count: self.count,
            warm_up: choice::shortest(&table).map(|level| (level, WARM_UP * survey.masters.len())),
        };
        let probed = match levels.as_slice() {
            [] => Ok(Vec::new()),
            _ => self.probe(&order, &mut warnings).await,
        };
        let (probed, failed) = match probed {
            Ok(probed) => (probed, false),
            // The brokers' own report may say why.
            Err(Failure::Server(error)) => {
                warnings.push(format!("the brokers could not be probed: {error}"));
                (Vec::new(), true)
            }
            Err(failure) => return Err(failure),
        };
        warnings.extend(warnings::of_probes(&probed));
        let report = Report::new(&survey, order.pace(), probed, warnings);
        Ok(if failed { report.failed() } else { report })
    }

    async fn probe(&self, order: &Order<'_>, warnings: &mut Vec<String>) -> Result<Vec<Probed>, Failure> {
        let interrupted = interrupted()?;
        // Not abandoned once it has begun, as what it makes would stay.
        let scratch = Scratch::make(self.options()?).await?;
        warnings.extend(scratch.refusals().iter().map(ToString::to_string));
        let probed = match RocketMqBackend::connect(scratch.options().clone()).await {
            Ok(backend) => {
                let backend = Arc::new(backend);
                let probed = tokio::select! {
                    probed = probe(backend.clone(), order, progress()) => probed.map_err(Failure::from),
                    signal = interrupted => Err(signal),
                };
                backend.close().await?;
                probed
            }
            Err(error) => Err(error.into()),
        };
        if let Err(error) = scratch.delete().await {
            warnings.push(format!(
                "not everything that was made for the probes is deleted: {error}"
            ));
        }
        probed
    }
}

/// Shows the progress on a terminal.
fn progress() -> impl FnMut(Progress) {
    let watched = is_for_eyes(&io::stderr());
    move |progress| {
        if watched {
            // An error here does not matter.
            let _ = match progress {
                Progress::Ended => write!(io::stderr(), "\r\x1b[K"),
                progress => write!(io::stderr(), "\r{progress}\x1b[K"),
            };
        }
    }
}

/// Says whether it is a terminal that can erase.
fn is_for_eyes(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}
