//! One history: what its processes share, how they live and die, and what happens to them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::backend::{Backend, Delays, Reach, WheelBackend};
use delayline::clock::Clock;
use delayline::defaults;
use delayline::stats::Stats;
use delayline::testing::{Faults, FaultyBackend};
use tokio::sync::{Notify, watch};

use crate::gate::{Gate, Gates};
use crate::ground::Ground;
use crate::ledger::Ledger;
use crate::operator::Operator;
use crate::plan::{Plan, Precise};
use crate::process::Process;
use crate::report::Report;

/// What processes share: all of it outlives them.
pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) plan: Arc<Plan>,
    pub(crate) ground: Arc<Ground>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) levels: Option<Arc<dyn Backend>>,
    pub(crate) precise: Arc<dyn Backend>,
    /// What each process that has ended had counted.
    pub(crate) counted: Mutex<Vec<Stats>>,
    /// How many kinds the last of several processes has handlers for.
    pub(crate) handled_by_last: usize,
    faulty: Vec<Arc<FaultyBackend>>,
    gates: Gates,
    lives: AtomicU64,
    deaths: AtomicU64,
    healed: AtomicBool,
    closing: AtomicBool,
    /// How many callers wait for an answer.
    acting: AtomicU64,
}

/// A caller that waits for an answer.
pub(crate) struct Acting(Arc<World>);

impl Drop for Acting {
    fn drop(&mut self) {
        self.0.acting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl World {
    /// A caller is about to do something, unless it is too late for that.
    pub(crate) fn acting(self: &Arc<Self>) -> Option<Acting> {
        if self.closing.load(Ordering::Relaxed) {
            return None;
        }
        self.acting.fetch_add(1, Ordering::Relaxed);
        Some(Acting(Arc::clone(self)))
    }

    pub(crate) fn is_healed(&self) -> bool {
        self.healed.load(Ordering::Relaxed)
    }
}

/// Runs the history of `seed`, on a virtual clock.
pub(crate) fn run(seed: u64, verbose: bool) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(history(seed, verbose))
}

async fn history(seed: u64, verbose: bool) -> Report {
    let clock = Clock::simulated(seed);
    let plan = Arc::new(Plan::draw(&clock));
    let ledger = Arc::new(Ledger::new(Arc::clone(&plan), verbose));
    ledger.note(|| format!("{plan:?}"));
    let mut faulty = Vec::new();
    let mut backend = |delays, usual| {
        let faults = Faults { usual, ..plan.faults };
        let backend = Arc::new(FaultyBackend::new(delays, faults, clock.clone()));
        faulty.push(Arc::clone(&backend));
        backend as Arc<dyn Backend>
    };
    let levels = plan.levels.clone().map(|delays| {
        let usual = match delays.reach {
            Reach::Levels(_) => Duration::from_millis(100),
            Reach::Any { .. } => Duration::from_millis(1_100),
        };
        backend(delays, usual)
    });
    let precise = match plan.precise {
        Precise::Table | Precise::Wheel => {
            Arc::new(WheelBackend::with_clock(clock.clone())) as Arc<dyn Backend>
        }
        Precise::Faulty => {
            let max = Duration::from_secs(if plan.calm { 1 << 30 } else { 40 });
            let delays = Delays {
                reach: Reach::Any { max },
                usual_lateness: defaults::PRECISE_LATENESS,
            };
            backend(delays, Duration::from_millis(5))
        }
    };
    let ground = Ground::new(clock.skewed(0), plan.history, Arc::clone(&ledger));
    let world = Arc::new(World {
        ground: Arc::new(ground),
        levels,
        precise,
        counted: Mutex::default(),
        handled_by_last: clock.random_below(4) as usize,
        faulty,
        gates: Mutex::default(),
        lives: AtomicU64::new(0),
        deaths: AtomicU64::new(0),
        healed: AtomicBool::new(false),
        closing: AtomicBool::new(false),
        acting: AtomicU64::new(0),
        clock: clock.clone(),
        ledger: Arc::clone(&ledger),
        plan: Arc::clone(&plan),
    });

    let healing = watch::Sender::new(false);
    let mut places = Vec::new();
    for place in 0..plan.processes {
        places.push(clock.spawn(live(place, Arc::clone(&world), healing.subscribe())));
    }
    // The turmoil, which covers most due times; then the world is healed and everything must come to its end.
    let turmoil = plan.longest + Duration::from_secs(5);
    let mut weather = Vec::new();
    for what in [Weather::Suspension, Weather::Outage, Weather::Step] {
        weather.push(clock.spawn(rough(what, turmoil, Arc::clone(&world))));
    }
    let operator = Arc::new(Operator::new(&world));
    let operating = Arc::clone(&operator);
    let operating = clock.spawn(async move { operating.operate().await });
    clock.sleep(turmoil).await;
    drop((weather, operating));
    operator.resume_all().await;
    heal(&world, &healing);
    // Callers go on for a while.
    clock.sleep(Duration::from_secs(2)).await;
    world.closing.store(true, Ordering::Relaxed);
    for round in 0..4_000 {
        let is_over = world.ground.every_row_has_ended() && world.acting.load(Ordering::Relaxed) == 0;
        if is_over || ledger.is_broken() {
            break;
        }
        if plan.steps > 0 && round == 400 {
            // What was written by a time from before a step may be looked at that much later; not for ever.
            step(&world, 3_700_000);
        }
        clock.sleep(Duration::from_millis(250)).await;
    }
    if !ledger.is_broken() {
        ledger.check_end(&world.ground.rows_at_the_end());
    }
    let (lines, broken) = ledger.result();
    // Those that still live are gone when it is their turn.
    drop(places);
    clock.sleep(Duration::from_millis(1)).await;
    let mut report = Report::default();
    for stats in world.counted.lock().unwrap().drain(..) {
        report.add_stats(&stats);
    }
    report.tasks = ledger.tasks() as u64;
    report.starts = ledger.starts() as u64;
    report.pauses = ledger.pauses() as u64;
    report.deaths = world.deaths.load(Ordering::Relaxed);
    (report.lines, report.broken) = (lines, broken);
    report
}

/// Steps the store's clock by so many ms.
fn step(world: &World, millis: i64) {
    world.ledger.stepped(world.ground.clock.now(), millis);
    world.ground.clock.step(millis);
}

fn heal(world: &World, healing: &watch::Sender<bool>) {
    world.healed.store(true, Ordering::Relaxed);
    // A clock that was set back is set right, or tasks would be late by as much.
    let now = world.ground.clock.now();
    let behind = world.ledger.highest().max(world.clock.now()).millis_since(now);
    if behind > 0 {
        step(world, behind);
    }
    world.ledger.healed();
    if !world.plan.backends_stay_ill {
        for backend in &world.faulty {
            backend.set_faults(Faults {
                usual: Duration::from_millis(5),
                ..Faults::default()
            });
        }
    }
    healing.send_replace(true);
}

/// Something that happens to processes, at random moments.
#[derive(Clone, Copy)]
enum Weather {
    Suspension,
    Outage,
    Step,
}

async fn rough(what: Weather, turmoil: Duration, world: Arc<World>) {
    let (plan, clock) = (&world.plan, &world.clock);
    let times = match what {
        Weather::Suspension => plan.suspensions,
        Weather::Outage => plan.outages,
        Weather::Step => plan.steps,
    };
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap();
    for _ in 0..times {
        clock
            .sleep(Duration::from_millis(clock.random_below(millis(turmoil))))
            .await;
        let longest =
            [1_000, millis(plan.lease) * 2, millis(plan.lease) + 10_000][clock.random_below(3) as usize];
        let span = Duration::from_millis(clock.random_below(longest + 1));
        // One process, or all.
        let one = (clock.random_below(3) > 0).then(|| clock.random_below(plan.processes));
        let gates = world.gates.lock().unwrap().clone();
        let hit = gates
            .iter()
            .filter(|(place, _)| one.is_none_or(|one| one == **place));
        match what {
            Weather::Suspension => {
                for (place, (_, clock)) in hit {
                    world
                        .ledger
                        .note(|| format!("process at {place} is suspended for {span:?}"));
                    clock.suspend(span);
                }
            }
            Weather::Outage => {
                let refuses = clock.random_below(2) == 0;
                for (place, (gate, _)) in hit {
                    world
                        .ledger
                        .note(|| format!("the store is away for {span:?} at {place}"));
                    gate.cut_off(span, refuses);
                }
            }
            Weather::Step => {
                let by =
                    [1_000, 2 * millis(plan.lease), 61_000, 3_600_000][clock.random_below(4) as usize] as i64;
                step(&world, if clock.random_below(2) == 0 { by } else { -by });
            }
        }
    }
}

/// One process after the other at the same place: each lives until its gate kills it or it ends in peace, or to the end.
async fn live(place: u64, world: Arc<World>, mut healing: watch::Receiver<bool>) {
    let mut script = Some(place);
    let clock = &world.clock;
    loop {
        let is_healed = *healing.borrow();
        let dies = world.plan.deaths && !is_healed && clock.random_below(8) > 0;
        let steps = if dies { clock.random_below(200) } else { u64::MAX };
        let in_peace = dies && clock.random_below(4) == 0;
        let faults = if is_healed {
            Default::default()
        } else {
            world.plan.store
        };
        let life = world.lives.fetch_add(1, Ordering::Relaxed) + 1;
        let gate = Arc::new(Gate::new(
            life,
            clock.clone(),
            Arc::clone(&world.ground),
            steps,
            faults,
        ));
        let skew = match world.plan.skewed {
            true => clock.random_below(1_200_000) as i64 - 600_000,
            false => 0,
        };
        let own_clock = clock.skewed(skew);
        world.ledger.born(life, &own_clock);
        world
            .ledger
            .note(|| format!("process {life} starts at {place}, dies after {steps} steps, skew {skew} ms"));
        world
            .gates
            .lock()
            .unwrap()
            .insert(place, (Arc::clone(&gate), own_clock.clone()));
        let stop = Arc::new(Notify::new());
        let process = Process {
            world: Arc::clone(&world),
            gate: Arc::clone(&gate),
            clock: own_clock.clone(),
            script: script.take(),
            place,
            stop: Arc::clone(&stop),
        };
        let ended = Arc::new(Notify::new());
        let running = {
            let ended = Arc::clone(&ended);
            own_clock.spawn(async move {
                process.run().await;
                ended.notify_one();
            })
        };
        let mut is_stopping = false;
        let stopping = async {
            if !in_peace {
                return std::future::pending().await;
            }
            clock
                .sleep(Duration::from_millis(clock.random_below(10_000)))
                .await;
            is_stopping = true;
            stop.notify_one();
            ended.notified().await;
        };
        tokio::select! {
            biased;
            () = gate.death() => {}
            () = stopping => {}
            () = async { drop(healing.wait_for(|&healed| healed).await) } => {
                gate.heal();
                if !is_stopping {
                    // Held until the history is over.
                    let _running = running;
                    return std::future::pending().await;
                }
                ended.notified().await;
            }
        }
        world.ledger.died(life);
        drop(running);
        world.deaths.fetch_add(1, Ordering::Relaxed);
        let pause = [500, 5_000, 5_000, 20_000][clock.random_below(4) as usize];
        clock
            .sleep(Duration::from_millis(clock.random_below(pause)))
            .await;
    }
}
