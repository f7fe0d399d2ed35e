//! What carrying wake-ups in Redis, and keeping rows there, costs beside the bare commands of the same client: the ratio of
//! the two, measured in turns.
//!
//! ```sh
//! cargo bench --bench redis --features redis -- redis://127.0.0.1:6379
//! ```
//!
//! `wakes` or `rows` after the URL measures one of the two, and a name after that only the figures that begin so: `rows W2`.
//! The server must be one that nobody else uses: it is emptied
//! again and again. Everything of the library has its default
//! settings. Each figure is the median of three runs; only figures of one run of this program can be compared.

mod bare;
mod bare_rows;
mod idle;
mod our_rows;
mod ours;
mod side;
mod work;

use redis::aio::MultiplexedConnection;

use crate::bare::Bare;
use crate::bare_rows::BareRows;
use crate::our_rows::OurRows;
use crate::ours::Ours;
use crate::side::Side;
use crate::work::Figure;

type Error = Box<dyn std::error::Error + Send + Sync>;

const ROUNDS: usize = 3;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"));
    let url = arguments.next();
    let url = url.ok_or("the URL of a server that nobody else uses is missing")?;
    let only = arguments.next();
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    let name = arguments.next().unwrap_or_default();
    let figures = || {
        work::FIGURES
            .iter()
            .filter(|figure| figure.names[0].starts_with(&name))
    };
    let is_idle_wanted = idle::NAMES[0].starts_with(&name);
    if wanted("wakes") {
        heading("wake-ups alone");
        for figure in figures() {
            compare::<Bare, Ours>(&url, figure).await?;
        }
        if is_idle_wanted {
            idle(&url, async |url| idle::wakes(url).await).await?;
        }
    }
    if wanted("rows") {
        heading("rows in Redis");
        for figure in figures() {
            compare::<BareRows, OurRows>(&url, figure).await?;
        }
        if is_idle_wanted {
            idle(&url, async |url| idle::rows(url).await).await?;
        }
    }
    Ok(())
}

fn heading(what: &str) {
    println!("\n{what:<58} {:>10} {:>10} {:>7}", "bare", "delayline", "ratio");
}

/// Measures both sides in turns, each on an empty server.
async fn compare<B: Side, O: Side>(url: &str, figure: &Figure) -> Result<(), Error> {
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(figure.of(&fresh::<B>(url).await?).await?);
        ours.push(figure.of(&fresh::<O>(url).await?).await?);
    }
    for (at, name) in figure.names.iter().enumerate() {
        let [bare, ours] =
            [&bare, &ours].map(|values| median(values.iter().map(|values| values[at]).collect()));
        println!("{name:<58} {bare:>10.1} {ours:>10.1} {:>7.2}", ours / bare);
    }
    Ok(())
}

/// What has no bare command to be compared to.
async fn idle(url: &str, measure: impl AsyncFn(&str) -> Result<Vec<f64>, Error>) -> Result<(), Error> {
    let mut figures = Vec::new();
    for _ in 0..ROUNDS {
        empty(url).await?;
        figures.push(measure(url).await?);
    }
    for (at, name) in idle::NAMES.iter().enumerate() {
        let figure = median(figures.iter().map(|figures| figures[at]).collect());
        println!("{name:<58} {:>10} {figure:>10.2}", "");
    }
    Ok(())
}

async fn fresh<S: Side>(url: &str) -> Result<S, Error> {
    empty(url).await?;
    S::open(url).await
}

async fn connection(url: &str) -> Result<MultiplexedConnection, Error> {
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let client = redis::Client::open(url)?;
    Ok(client
        .get_multiplexed_async_connection_with_config(&config)
        .await?)
}

async fn empty(url: &str) -> Result<(), Error> {
    let mut connection = connection(url).await?;
    redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await?;
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
