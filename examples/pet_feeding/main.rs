//! A game with pets: one that was fed is hungry 4 hours later, and a card makes it hungry 2 hours sooner.
//!
//! With no server at all, in a few seconds (an hour of the game is half a second):
//!
//! ```sh
//! cargo run --example pet_feeding
//! ```
//!
//! The same with its tasks in a Redis, rows and all:
//!
//! ```sh
//! cargo run --example pet_feeding --features redis -- --redis redis://127.0.0.1:6379
//! ```
//!
//! Players throw cards at the same moment, throw the same card twice, and throw them when the pet is just getting hungry.
//! The game ends by counting: every pet got hungry once for each time it was fed, at the time that its cards say, and each
//! card either counted once or came back to its player.

mod game;
mod ledger;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use delayline::store::{SqliteStore, Store};
use tokio::task::JoinSet;
use tracing_subscriber::EnvFilter;

use crate::game::Game;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Feeds pets, throws cards at them, and waits until all are hungry.
#[derive(Debug, Parser)]
#[command(name = "pet_feeding")]
struct Options {
    /// Keep the tasks in this Redis.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// How many players there are, each with three pets.
    #[arg(long, value_name = "N", default_value = "20")]
    players: usize,
    /// How long an hour of the game is, in ms.
    #[arg(long, value_name = "MS", default_value = "500")]
    hour: u64,
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
            eprintln!("pet_feeding: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<(), Error> {
    let hour = Duration::from_millis(options.hour);
    match &options.redis {
        #[cfg(feature = "redis")]
        Some(url) => {
            let store = delayline::store::RedisStore::builder(url)
                .prefix("pet_feeding")
                .build()?;
            play(Arc::new(store), options.players, hour).await
        }
        #[cfg(not(feature = "redis"))]
        Some(_) => Err("--redis needs the feature: --features redis".into()),
        None => {
            let folder = tempfile::tempdir()?;
            let store = SqliteStore::open(folder.path().join("pets.db")).await?;
            play(Arc::new(store), options.players, hour).await
        }
    }
}

/// Every player feeds three pets and throws cards; then all wait until the pets are hungry.
async fn play(store: Arc<dyn Store>, players: usize, hour: Duration) -> Result<(), Error> {
    let game = Arc::new(Game::open(store, hour).await?);
    let working = game.work();
    let mut playing = JoinSet::new();
    for number in 0..players {
        let game = Arc::clone(&game);
        playing.spawn(async move { evening(&game, &format!("player {number}")).await });
    }
    while let Some(played) = playing.join_next().await {
        played??;
    }
    game.all_hungry().await?;
    working.stop().await?;
    game.ledger().settle()
}

/// The moves of one player in an evening.
async fn evening(game: &Game, player: &str) -> Result<(), Error> {
    let [calm, teased, late] = [(player, "Calm"), (player, "Teased"), (player, "Late")];
    for pet in [calm, teased, late] {
        game.feed(pet).await?;
    }
    // Two friends throw a card each at the same moment: both count, whichever comes first.
    tokio::try_join!(game.throw_card(teased), game.throw_card(teased))?;

    // A slow connection: the same card arrives twice, and counts once.
    game.throw_card_twice(calm).await?;
    game.show(player, &[calm.1, teased.1, late.1]).await?;

    // Cards at the very moment at which the pet gets hungry: in time, or back to the player.
    game.about_when_hungry(late).await?;
    tokio::try_join!(game.throw_card(late), game.throw_card(late))?;

    // One is fed again when it is hungry, and while it is not: then it is another 4 hours from now.
    game.until_hungry(teased).await?;
    game.feed(teased).await?;
    game.feed(teased).await?;
    game.show(player, &[calm.1, teased.1, late.1]).await
}
