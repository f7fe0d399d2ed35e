//! Appointments whose reminders move with them: a day before and two hours before, by the customer's own clock,
//! and never at night.
//!
//! With no server at all, three days in some ten seconds:
//!
//! ```sh
//! cargo run --example reminders
//! ```
//!
//! To look at the tasks while it goes on, keep them in a file, go slowly, and ask from another terminal, or open the
//! pages, which are of that file unless a configuration says otherwise:
//!
//! ```sh
//! cargo run --example reminders -- --file delayline.db --hour 5000
//! cargo run -p delayline-server -- tasks list appointment.remind --store delayline.db
//! cargo run -p delayline-server -- serve   # http://127.0.0.1:7700/tasks?kind=appointment.remind
//! ```
//!
//! It ends by counting: each reminder was sent once, for the time that the appointment had last, and none for one that was
//! cancelled.

mod book;
mod calendar;
mod pace;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use delayline::store::{SqliteStore, Store};
use jiff::Zoned;
use tracing::info;
use tracing_subscriber::EnvFilter;

use crate::book::{A_DAY, Book};
use crate::pace::Pace;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Reminds people of appointments, some of which are moved and struck out meanwhile.
#[derive(Debug, Parser)]
#[command(name = "reminders")]
struct Options {
    /// Keep the tasks in this file, and not in one that goes with the program.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// How long an hour of the story is, in ms.
    #[arg(long, value_name = "MS", default_value = "150", value_parser = clap::value_parser!(u16).range(1..))]
    hour: u16,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let shown = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(shown)
        .with_target(false)
        .with_timer(tracing_subscriber::fmt::time::uptime())
        .with_ansi(std::io::stdout().is_terminal())
        .init();
    match run(&options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reminders: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<(), Error> {
    if let Some(file) = &options.file {
        return story(file, options.hour).await;
    }
    let folder = tempfile::tempdir()?;
    story(&folder.path().join("reminders.db"), options.hour).await
}

/// Three days with a doctor, a vet and a barber; the clocks go forward in Berlin on the last.
async fn story(file: &Path, hour: u16) -> Result<(), Error> {
    let at = |text: &str| text.parse::<Zoned>();
    let store = Arc::new(SqliteStore::open(file).await?);
    let first = at("2026-03-26T09:00[Europe/Berlin]")?;
    let pace = Pace::new(store.now().await?, &first, hour);
    let book = Book::open(store, pace)?;
    let working = book.work();

    book.put("Ada's doctor", &at("2026-03-28T15:00[Europe/Berlin]")?)
        .await?;
    // Two hours before is at night in Tokyo, and the morning is too late: so on the evening before.
    book.put("Kim's barber", &at("2026-03-28T08:30[Asia/Tokyo]")?)
        .await?;
    // A day before is at night in New York: so in the morning.
    book.put("Bo's vet", &at("2026-03-28T23:30[America/New_York]")?)
        .await?;
    book.put("Lee's barber", &at("2026-03-28T11:00[Europe/Berlin]")?)
        .await?;

    // A reminder that was sent already is sent again for the new time.
    book.until_told("Lee's barber", A_DAY).await;
    book.until_told("Ada's doctor", A_DAY).await;
    book.put("Ada's doctor", &at("2026-03-29T10:00[Europe/Berlin]")?)
        .await?;
    book.strike("Lee's barber").await?;
    // It is too late to remind of this one a day before.
    book.put("Lee's doctor", &at("2026-03-28T12:00[Europe/Berlin]")?)
        .await?;

    book.all_told().await;
    working.stop().await?;
    let told = book.expected().settle()?;
    info!("{told} reminders were told, each in time and by day");
    Ok(())
}
