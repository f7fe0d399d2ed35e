//! What a chain of hops costs beside the broker alone, measured in turns in one run.
//!
//! ```sh
//! scripts/rocketmq start rmq --levels "1s 2s 1h"; scripts/redis start redis 16379
//! cargo bench --bench chains --features rocketmq,redis -- "$(cat rmq/namesrv)" redis://127.0.0.1:16379
//! ```
//!
//! The table must be this one: so 8 s are four hops, of which the last may overshoot by the tolerance. The bare sides are a plain
//! producer and a plain push consumer of the same client, and a loop of one Lua call over a ZSET. Rows are in SQLite.
//! Each figure is the median of three runs; only figures of one run of this program can be compared.

// For the client's own types.
#![recursion_limit = "512"]

mod bare;
mod client;
mod ours;

use std::time::Duration;

type Error = Box<dyn std::error::Error + Send + Sync>;

const ROUNDS: usize = 3;
/// The level that hops take.
const LEVEL: Duration = Duration::from_secs(2);
/// A steady load: one task each 2 ms, for 10 s.
const EVERY: Duration = Duration::from_millis(2);
const STEADY: usize = 5_000;
const BURST: usize = 20_000;
const CALLERS: usize = 64;
/// How long callers go on.
const SUSTAINED: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"));
    let (Some(rocketmq), Some(redis)) = (arguments.next(), arguments.next()) else {
        return Err("needed are the HOST:PORT of a RocketMQ nameserver and the URL of a Redis".into());
    };
    let only: Vec<String> = arguments.collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|only| only == name);
    let bare = bare::RocketMq::start(&rocketmq).await?;
    // A broker's Java is several times slower until it has been used for a while.
    println!("warming up");
    for _ in 0..2 {
        bare.sent(Duration::from_secs(3)).await?;
        bare.drained(BURST).await?;
    }
    if wanted("steady") {
        steady(&bare, &rocketmq, &redis).await?;
    }
    if wanted("schedule") {
        schedule(&bare, &rocketmq, &redis).await?;
    }
    if wanted("burst") {
        burst(&bare, &rocketmq, &redis).await?;
    }
    bare.close().await;
    Ok(())
}

/// Lateness at 500/s, for each length of chain.
async fn steady(bare: &bare::RocketMq, rocketmq: &str, redis: &str) -> Result<(), Error> {
    println!("\n500/s for 10 s: late, in ms            p50     p99     max");
    let mut level = Vec::new();
    let mut zset = Vec::new();
    let mut chains = [const { Vec::new() }; 3];
    let mut precise = Vec::new();
    for _ in 0..ROUNDS {
        level.push(Late::of(bare.late().await?));
        zset.push(Late::of(bare::zset(redis).await?));
        for (late, hops) in chains.iter_mut().zip([1, 2, 4]) {
            let side = ours::Side::on_levels(rocketmq, redis).await?;
            late.push(Late::of(side.late(LEVEL * hops, hops).await?));
            side.close().await?;
        }
        let side = ours::Side::on_handoff(rocketmq, redis).await?;
        precise.push(Late::of(side.late(LEVEL * 4, 2).await?));
        side.close().await?;
    }
    Late::print("one level, bare client", level);
    for (late, hops) in chains.into_iter().zip([1, 2, 4]) {
        Late::print(&format!("a chain of {hops}"), late);
    }
    Late::print("a bare ZSET loop", zset);
    Late::print("two hops, handoff 5s, tolerance 0s", precise);
    Ok(())
}

/// How fast 64 callers get rows and wake-ups in place.
async fn schedule(bare: &bare::RocketMq, rocketmq: &str, redis: &str) -> Result<(), Error> {
    let (mut plain, mut scheduled) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(bare.sent(SUSTAINED).await?);
        let side = ours::Side::on_levels(rocketmq, redis).await?;
        scheduled.push(side.scheduled(SUSTAINED).await?);
        side.close().await?;
    }
    compare(
        "64 callers, wake-ups on the broker/s",
        median(plain),
        median(scheduled),
    );
    Ok(())
}

/// How long a burst through one level takes.
async fn burst(bare: &bare::RocketMq, rocketmq: &str, redis: &str) -> Result<(), Error> {
    let (mut drained, mut ran, mut hopped) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        drained.push(bare.drained(BURST).await?);
        let side = ours::Side::on_levels(rocketmq, redis).await?;
        ran.push(side.burst(BURST, LEVEL).await?);
        side.close().await?;
        let side = ours::Side::on_levels(rocketmq, redis).await?;
        hopped.push(side.burst(BURST, 2 * LEVEL).await?);
        side.close().await?;
    }
    let drained = median(drained);
    compare("20,000 at one level until run, ms", drained, median(ran));
    compare("20,000 at one level until hopped on, ms", drained, median(hopped));
    Ok(())
}

fn compare(what: &str, bare: f64, ours: f64) {
    println!(
        "{what:<42} bare {bare:>8.0}   delayline {ours:>8.0}   ratio {:.2}",
        ours / bare
    );
}

/// How late a run was, in ms.
#[derive(Clone, Copy)]
struct Late {
    p50: i64,
    p99: i64,
    max: i64,
}

impl Late {
    fn of(mut late: Vec<i64>) -> Self {
        late.sort_unstable();
        let at = |percent: usize| {
            let place = (late.len() * percent).div_ceil(100).saturating_sub(1);
            late.get(place).copied().unwrap_or_default()
        };
        Self {
            p50: at(50),
            p99: at(99),
            max: at(100),
        }
    }

    /// The run whose p99 is the median.
    fn print(what: &str, mut runs: Vec<Self>) {
        runs.sort_by_key(|late| late.p99);
        let Some(Self { p50, p99, max }) = runs.get(runs.len() / 2) else {
            return;
        };
        println!("{what:<34} {p50:>7} {p99:>7} {max:>7}");
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
