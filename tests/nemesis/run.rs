//! One run: load, faults, calm, and then the audit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use delayline::store::Page;
use delayline::{State, Task, TaskId};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, sleep_until};

use crate::audit::Audit;
use crate::callers::Callers;
use crate::home::{AGAIN, Home, KINDS, Kept};
use crate::ledger::Ledger;
use crate::operator::{Operator, resume_all};
use crate::pauses::Pauses;
use crate::place::{Place, WakesInRedis};
use crate::plan::{Planned, QUIET, plan};
use crate::setting::setting;
use crate::world::{World, start_brokers};
use crate::{ends, starts};

/// How many seconds faults happen, by default.
const SECONDS: u64 = 120;
/// How soon fewer tasks are left after the faults, again and again until all have ended. How many are left by then depends on
/// the machine.
const FEWER_WITHIN: Duration = Duration::from_secs(90);
/// How long these are not counted: that costs a call for each page, in a Cluster for each shard.
const PAUSE: Duration = Duration::from_secs(2);
/// By how much the memory of a worker may grow.
const GROWTH: u64 = 64 << 20;
/// How many histories are shown.
const SHOWN: usize = 5;

/// Runs load and faults over a store.
///
/// `start` gets whether its server is to be hostile, as far as it can be.
pub(crate) async fn run<P: Place + 'static>(kept: Kept, start: impl FnOnce(bool) -> P) {
    let brokers = block_in_place(start_brokers);
    let span = Duration::from_secs(setting("DELAYLINE_NEMESIS_SECONDS").unwrap_or(SECONDS));
    let seed = setting("DELAYLINE_NEMESIS_SEED").unwrap_or_else(|| fastrand::u64(..));
    let name = std::any::type_name::<P>().rsplit("::").next().unwrap();
    tell!("{name}: {span:?} of faults; again by DELAYLINE_NEMESIS_SEED={seed}");

    let is_hostile = seed / 2 % 2 == 1;
    let store = Box::new(block_in_place(|| start(is_hostile)));
    let precise = seed
        .is_multiple_of(2)
        .then(|| block_in_place(WakesInRedis::start));
    tell!(
        "{name}: wake-ups in levels and in {}{}",
        if precise.is_some() { "Redis" } else { "the table" },
        match kept {
            Kept::Postgres | Kept::MariaDb if is_hostile => "; its settings are hostile",
            _ => "",
        }
    );
    let mut world = World::start(kept, store, precise, brokers).await;
    let home = Home::open(world.for_test.clone()).await;
    home.prepare().await;
    world.start_workers();
    let ledger = Arc::new(Ledger::default());
    // A file has one writer at a time, and writers in other processes wait for it by polling.
    let rate = if kept == Kept::Sqlite { 40 } else { 200 };
    let callers = Home::open(world.for_callers.clone()).await;
    let callers = Callers::start(callers, ledger.clone(), seed, rate);
    let pauses = Arc::new(Pauses::default());
    let operator = Operator::start(&home, &pauses, seed);
    let began = Instant::now();
    let plan = plan(seed, span, &world.possible());
    let before = happen(&mut world, began, plan).await;
    callers.stop().await;
    operator.stop().await;

    let calm = Instant::now();
    let (mut left, mut fewer_at) = (live(&home).await, calm);
    while left > 0 && fewer_at.elapsed() < FEWER_WITHIN {
        tell!(
            "{name}: {left} have not ended {:.1?} after the last fault",
            calm.elapsed()
        );
        resume_all(&home).await;
        sleep(PAUSE).await;
        let now = live(&home).await;
        if now < left {
            (left, fewer_at) = (now, Instant::now());
        }
    }
    tell!(
        "{name}: {left} had not ended {:.1?} after the last fault",
        calm.elapsed()
    );
    world.assert_workers_live();
    let memory = world.memory_of_workers();
    world.end_workers();
    let audit = Audit {
        starts: starts::noted(&world.starts()),
        ends: ends::noted(&world.ends()),
        rows: rows(&home).await,
        held: pauses.held(),
        stops: world.stops(),
        effects: home.effects().await,
        has_transactions: home.has_transactions(),
        asked: Arc::into_inner(ledger).unwrap().into_all(),
    };
    tell!("{name}: {audit}");
    tell!(
        "{name}: a worker has {} MiB, {} MiB before the faults",
        memory >> 20,
        before >> 20
    );
    let findings = audit.findings();
    if !findings.is_empty() {
        let mut count = BTreeMap::<_, usize>::new();
        for (wrong, id) in &findings {
            let seen = count.entry(*wrong).or_default();
            *seen += 1;
            if *seen <= SHOWN {
                tell!("{wrong:?}: {}", audit.history(*id));
            }
        }
        panic!("{name}: {count:?} with DELAYLINE_NEMESIS_SEED={seed}");
    }
    assert!(
        memory <= before + GROWTH,
        "{name}: the memory of a worker grew, with DELAYLINE_NEMESIS_SEED={seed}"
    );
}

/// Runs the faults; returns how much memory a worker had before.
async fn happen(world: &mut World, began: Instant, plan: Vec<Planned>) -> u64 {
    sleep_until(began + QUIET).await;
    let memory = world.memory_of_workers();
    let mut moments: Vec<_> = plan
        .iter()
        .flat_map(|planned| [(planned.begins, true, planned), (planned.ends, false, planned)])
        .collect();
    moments.sort_by_key(|(at, ..)| *at);
    // A fault that takes long, as a broker that restarts on a busy machine, delays all later ones.
    let mut put_off = Duration::ZERO;
    for (at, begins, Planned { fault, .. }) in moments {
        sleep_until(began + put_off + at).await;
        let when = began.elapsed();
        if begins {
            world.apply(*fault).await;
        } else {
            world.undo(*fault).await;
        }
        put_off = put_off.max(began.elapsed() - at);
        let what = if begins { "begins" } else { "ends" };
        tell!(
            "{when:7.1?} {what} {fault:?}, which took {:.1?}",
            began.elapsed() - when
        );
    }
    memory
}

/// All rows of a state.
async fn all(home: &Home, state: State) -> Vec<Task> {
    let mut rows = Vec::new();
    for kind in KINDS {
        let mut page = Page::new(kind, state).limit(500);
        loop {
            // A Cluster elects masters for a while after the last fault.
            let found = match home.scheduler.list(&page).await {
                Err(error) if error.is_transient() => {
                    sleep(AGAIN).await;
                    continue;
                }
                found => found.unwrap(),
            };
            let Some(last) = found.last() else { break };
            page.after = Some((last.due_at, last.id));
            rows.extend(found);
        }
    }
    rows
}

/// How many rows wait or run.
async fn live(home: &Home) -> usize {
    all(home, State::Scheduled).await.len() + all(home, State::Running).await.len()
}

async fn rows(home: &Home) -> BTreeMap<TaskId, Task> {
    let mut rows = BTreeMap::new();
    for state in State::ALL {
        rows.extend(all(home, state).await.into_iter().map(|row| (row.id, row)));
    }
    rows
}
