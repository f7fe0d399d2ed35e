//! Lets two servers, their broker and their database fail at moments from a seed, while a producer sends messages of keys
//! that come again, workers claim, and operators change tasks in bulk and pause kinds; then checks that what each was
//! answered is what happened.
//!
//! `DELAYLINE_NEMESIS_SECONDS` sets for how long things fail (default 20), and `DELAYLINE_NEMESIS_SEED` repeats what a run has
//! printed.

mod claims_audit;
mod http_callers;
mod keys_audit;
mod plan;
mod producer;
mod rows;
mod way;
mod world;

use std::io::Write;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use self::http_callers::HttpCallers;
use self::plan::{Planned, plan};
use self::producer::Producer;
use self::rows::Kept;
use self::world::World;
use crate::brokers::fresh;
use crate::setting::setting;

/// For how many seconds things fail, by default.
const SECONDS: u64 = 20;
/// Within this all has ended when nothing fails any more: a lease of a server that was killed has 30 s.
const ENDS_WITHIN: Duration = Duration::from_secs(120);
/// How many histories are shown of what is wrong.
const SHOWN: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_and_bulk_changes_keep_what_they_answer() {
    let span = Duration::from_secs(setting("DELAYLINE_NEMESIS_SECONDS").unwrap_or(SECONDS));
    let seed = setting("DELAYLINE_NEMESIS_SEED").unwrap_or_else(|| fastrand::u64(..));
    let kept = Kept::by(seed).await;
    tell(&format!(
        "{span:?} of faults over {kept}; again by DELAYLINE_NEMESIS_SEED={seed}"
    ));
    let name = fresh("shop");
    let mut world = World::start(&kept, &name);
    let producer = Producer::open(world.nameserver(), &name).await;
    let callers = HttpCallers::start(world.way(), seed);
    let producing = producer.start(seed);
    happen(&mut world, plan(seed, span, kept.has_sessions())).await;

    let calm = Instant::now();
    producer.stop(producing).await;
    callers.stop_calling().await;
    let scheduler = kept.open().await;
    let mut left = rows::live(&scheduler).await;
    while left > 0 && calm.elapsed() < ENDS_WITHIN {
        sleep(Duration::from_millis(300)).await;
        left = rows::live(&scheduler).await;
    }
    println!("{left} had not ended {:.1?} after the last fault", calm.elapsed());
    let called = callers.stop().await;
    let seen = producer
        .all_published(&rows::of(&scheduler, rows::MESSAGE).await)
        .await;
    let messages = rows::of(&scheduler, rows::MESSAGE).await;
    let mut wrong = keys_audit::Audit::of(&seen, &messages, &called.pauses).findings();
    wrong.extend(claims_audit::findings(
        &called,
        &rows::of(&scheduler, rows::JOB).await,
        &rows::of(&scheduler, rows::BULK).await,
    ));
    println!("{}\n{called}", seen.summary(&messages));
    for (what, history) in wrong.iter().take(SHOWN) {
        println!("{what}\n{history}");
    }
    let what: Vec<_> = wrong.iter().map(|(what, _)| what).collect();
    assert!(wrong.is_empty(), "with DELAYLINE_NEMESIS_SEED={seed}: {what:#?}");
}

/// Lets all of it happen. What takes long, as a broker that starts again, puts off all that comes after it.
async fn happen(world: &mut World<'_>, plan: Vec<Planned>) {
    let began = Instant::now();
    let mut put_off = Duration::ZERO;
    for Planned { at, fault, begins } in plan {
        sleep_until(began + put_off + at).await;
        let when = began.elapsed();
        world.apply(fault, begins).await;
        put_off = put_off.max(began.elapsed() - at);
        let what = if begins { "begins" } else { "ends" };
        let took = began.elapsed() - when;
        tell(&format!("{when:7.1?} {what} {fault:?}, which took {took:.1?}"));
    }
}

/// Writes past what the test runner keeps until a test has ended, so that a run that is stopped has told its seed, too.
fn tell(what: &str) {
    std::io::stderr()
        .write_all(format!("{what}\n").as_bytes())
        .unwrap();
}
