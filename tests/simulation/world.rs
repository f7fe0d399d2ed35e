//! One history: its processes, callers and handlers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use delayline::backend::{Backend, Delays, Reach};
use delayline::delay::{Hop, Routing, plan};
use delayline::store::{MemoryStore, Store};
use delayline::testing::{Faults, FaultyBackend};
use delayline::{
    Clock, Context, Expect, Failure, NewTask, Outcome, Policy, Scheduler, Shift, State, Stats, TaskId,
    Worker, defaults,
};

use crate::gate::{Gate, GatedBackend, GatedStore};
use crate::history::{History, KINDS, every_row, short};

/// What came of one history, or of many.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) lines: Vec<String>,
    pub(crate) broken: Vec<String>,
    deaths: usize,
    tasks: usize,
    starts: usize,
    hops: u64,
    stale: u64,
    swept: u64,
    expired: u64,
    rerouted: u64,
    lost_claims: u64,
    no_room: u64,
    dead: u64,
    retried: u64,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Self) {
        self.deaths += other.deaths;
        self.tasks += other.tasks;
        self.starts += other.starts;
        self.hops += other.hops;
        self.stale += other.stale;
        self.swept += other.swept;
        self.expired += other.expired;
        self.rerouted += other.rerouted;
        self.lost_claims += other.lost_claims;
        self.no_room += other.no_room;
        self.dead += other.dead;
        self.retried += other.retried;
    }

    fn add_stats(&mut self, stats: &Stats) {
        self.hops += stats.hops;
        self.stale += stats.stale;
        self.swept += stats.claimed_by_sweep;
        self.expired += stats.expired;
        self.rerouted += stats.rerouted;
        self.lost_claims += stats.lost_claims;
        self.no_room += stats.no_room;
        self.dead += stats.dead;
        self.retried += stats.retried;
    }

    pub(crate) fn summary(&self) -> String {
        format!(
            "{} tasks, {} handler starts, {} deaths, {} hops, {} stale wake-ups, {} claimed by the sweep, {} leases \
             expired, {} wake-ups rerouted, {} claims lost, {} times no room, {} dead, {} retried",
            self.tasks,
            self.starts,
            self.deaths,
            self.hops,
            self.stale,
            self.swept,
            self.expired,
            self.rerouted,
            self.lost_claims,
            self.no_room,
            self.dead,
            self.retried
        )
    }

    pub(crate) fn assert_eventful(&self) {
        let counts = [
            self.hops,
            self.stale,
            self.swept,
            self.expired,
            self.rerouted,
            self.lost_claims,
        ];
        let more = [self.no_room, self.dead, self.retried, self.deaths as u64];
        assert!(
            counts.iter().chain(&more).all(|&count| count > 0),
            "{}",
            self.summary()
        );
    }
}

/// What a history draws from its seed before it begins.
#[derive(Clone, Debug)]
struct Plan {
    processes: u64,
    deaths: bool,
    store_fails: u64,
    faults: Faults,
    /// Whether nothing goes wrong at all, so that the plan of each chain is kept to the letter.
    calm: bool,
    /// Whether the precise backend is the table, and not one that fails.
    table: bool,
    routing: Routing,
    /// What the level backend has, if there is one: levels, or timers as late as a broker's.
    levels: Option<Delays>,
    lease: Duration,
    policy: Policy,
    concurrency: usize,
    prefetch: usize,
    tasks: u64,
    actions: u64,
    longest: Duration,
    skewed: bool,
}

/// What processes share: all of it outlives them.
struct World {
    clock: Clock,
    plan: Plan,
    store: Arc<MemoryStore>,
    levels: Option<Arc<FaultyBackend>>,
    precise: Arc<FaultyBackend>,
    history: Arc<History>,
    deaths: AtomicUsize,
}

/// Runs the history of `seed`, on a virtual clock.
pub(crate) fn run(seed: u64) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(history(seed))
}

fn draw(clock: &Clock) -> Plan {
    let chance = |percent| clock.random_below(100) < percent;
    let calm = chance(15);
    let up_to = |most| {
        if calm || chance(40) {
            0
        } else {
            clock.random_below(most)
        }
    };
    let tables = ["1s 5s 10s 30s 1m 2m", "3s 1s 2s", "1s", "2s 1s 4s 4s 8s 16s"];
    let table = clock.random_below(tables.len() as u64 + 2) as usize;
    let levels = match tables.get(table) {
        Some(table) => Some(Delays {
            reach: Reach::Levels(table.parse().unwrap()),
            usual_lateness: defaults::LEVELS_LATENESS,
        }),
        None if table == tables.len() => Some(Delays {
            reach: Reach::Any {
                max: Duration::from_secs([5, 40, 259_200][clock.random_below(3) as usize]),
            },
            usual_lateness: defaults::TIMERS_LATENESS,
        }),
        None => None,
    };
    let concurrency = 1 + clock.random_below(3) as usize;
    let prefetch = clock.random_below(4) as usize;
    Plan {
        calm,
        table: chance(25),
        processes: 1 + clock.random_below(3),
        deaths: !calm && chance(60),
        store_fails: up_to(20),
        faults: Faults {
            lose: up_to(40),
            double: up_to(60),
            late: up_to(30),
            early: up_to(30),
            refuse: up_to(30),
            forget: up_to(10),
            usual: Duration::from_millis(100),
        },
        routing: Routing {
            handoff: Duration::from_millis([200, 1_000, 5_000][clock.random_below(3) as usize]),
            tolerance: Duration::from_millis([0, 200, 200, 900][clock.random_below(4) as usize]),
            horizon: Duration::from_secs([20, 3_600][clock.random_below(2) as usize]),
        },
        levels,
        lease: Duration::from_secs([1, 5, 30][clock.random_below(3) as usize]),
        concurrency,
        prefetch,
        policy: Policy::new()
            .concurrency(concurrency)
            .prefetch(prefetch)
            .max_attempts(1 + clock.random_below(6) as u32)
            .backoff(Duration::from_millis(100), Duration::from_secs(10))
            .execution_timeout(Duration::from_secs(1 + clock.random_below(20))),
        tasks: 1 + clock.random_below(6),
        actions: if calm { 0 } else { clock.random_below(8) },
        longest: Duration::from_secs(1 + clock.random_below(60)),
        skewed: chance(50),
    }
}

async fn history(seed: u64) -> Report {
    let clock = Clock::simulated(seed);
    let plan = draw(&clock);
    // A claim whose answer was lost is nobody's until its lease ends.
    let capacity = (plan.store_fails == 0).then_some(plan.concurrency + plan.prefetch);
    let history = Arc::new(History::new(clock.clone(), capacity));
    history.note(format!("{plan:?}"));
    let faulty = |delays, usual| {
        let faults = Faults { usual, ..plan.faults };
        Arc::new(FaultyBackend::new(delays, faults, clock.clone()))
    };
    let world = Arc::new(World {
        store: Arc::new(MemoryStore::with_clock(clock.clone())),
        levels: plan.levels.clone().map(|delays| {
            let usual = match delays.reach {
                Reach::Levels(_) => Duration::from_millis(100),
                Reach::Any { .. } => Duration::from_millis(1_100),
            };
            faulty(delays, usual)
        }),
        precise: faulty(
            Delays {
                reach: Reach::Any {
                    max: Duration::from_secs(if plan.calm { 1 << 30 } else { 40 }),
                },
                usual_lateness: defaults::PRECISE_LATENESS,
            },
            Duration::from_millis(5),
        ),
        history: Arc::clone(&history),
        deaths: AtomicUsize::new(0),
        clock: clock.clone(),
        plan,
    });

    let mut processes = Vec::new();
    for number in 0..world.plan.processes {
        let (world, healed) = (
            Arc::clone(&world),
            Arc::new(tokio::sync::watch::Sender::new(false)),
        );
        let stats = Arc::new(std::sync::Mutex::new(Stats::default()));
        let task = clock.spawn(live(number, world, Arc::clone(&healed), Arc::clone(&stats)));
        processes.push((task, healed, stats));
    }
    // The turmoil, which covers every due time; then the world is healed and everything must come to its end.
    clock.sleep(world.plan.longest + Duration::from_secs(30)).await;
    history.note("healed");
    for backend in world.levels.iter().chain([&world.precise]) {
        backend.set_faults(Faults {
            usual: Duration::from_millis(5),
            ..Faults::default()
        });
    }
    for (_, healed, _) in &processes {
        healed.send_replace(true);
    }
    for _ in 0..2_000 {
        if every_row(&*world.store)
            .await
            .iter()
            .all(|row| !row.state.is_live())
        {
            break;
        }
        clock.sleep(Duration::from_millis(500)).await;
    }

    let rows = every_row(&*world.store).await;
    let mut sent = vec![("precise", world.precise.log())];
    sent.extend(world.levels.iter().map(|levels| ("levels", levels.log())));
    history.check_end(&rows, &sent);
    let mut report = Report::default();
    for (_, _, stats) in &processes {
        report.add_stats(&stats.lock().unwrap());
    }
    check_chains(&world);
    report.tasks = rows.len();
    report.starts = history.starts().len();
    report.deaths = world.deaths.load(Ordering::Relaxed);
    (report.lines, report.broken) = history.result();
    report
}

/// One process after the other under the same number: each lives until its gate kills it, or to the end.
async fn live(
    number: u64,
    world: Arc<World>,
    healed: Arc<tokio::sync::watch::Sender<bool>>,
    stats: Arc<std::sync::Mutex<Stats>>,
) {
    let mut healed = healed.subscribe();
    let mut first = true;
    loop {
        let is_healed = *healed.borrow();
        let dies = world.plan.deaths && !is_healed;
        let life = if dies {
            world.clock.random_below(150)
        } else {
            u64::MAX
        };
        let failing = if is_healed { 0 } else { world.plan.store_fails };
        let gate = Arc::new(Gate::new(
            world.clock.clone(),
            Arc::clone(&world.history),
            life,
            failing,
        ));
        let skew = if world.plan.skewed {
            world.clock.random_below(1_200_000) as i64 - 600_000
        } else {
            0
        };
        world.history.note(format!(
            "process {number} starts, dies after {life} steps, skew {skew} ms"
        ));
        let process = world.clock.spawn(process(
            Arc::clone(&world),
            Arc::clone(&gate),
            world.clock.skewed(skew),
            if first { number } else { u64::MAX },
            Arc::clone(&stats),
        ));
        first = false;
        tokio::select! {
            biased;
            () = gate.death() => {
                drop(process);
                world.history.note(format!("process {number} died"));
                world.deaths.fetch_add(1, Ordering::Relaxed);
                let pause = world.clock.random_below(5_000);
                world.clock.sleep(Duration::from_millis(pause)).await;
            }
            () = async { drop(healed.wait_for(|&healed| healed).await) } => {
                gate.heal();
                // Held until the history is over.
                let _process = process;
                return std::future::pending().await;
            }
        }
    }
}

async fn process(
    world: Arc<World>,
    gate: Arc<Gate>,
    clock: Clock,
    script: u64,
    stats: Arc<std::sync::Mutex<Stats>>,
) {
    let store: Arc<dyn Store> = Arc::new(GatedStore {
        gate: Arc::clone(&gate),
        store: world.store.clone(),
    });
    let gated = |backend: &Arc<FaultyBackend>| -> Arc<dyn Backend> {
        Arc::new(GatedBackend {
            gate: Arc::clone(&gate),
            backend: backend.clone(),
        })
    };
    let mut builder = Scheduler::builder(store)
        .routing(world.plan.routing)
        .clock(clock.clone());
    if !world.plan.table {
        builder = builder.precise(gated(&world.precise));
    }
    if let Some(levels) = &world.levels {
        builder = builder.levels(gated(levels));
    }
    let scheduler = builder.build().unwrap();
    let mut worker = Worker::new(&scheduler).lease(world.plan.lease);
    // The last process handles only one of the kinds, but moves the hops of both.
    let handled = if !world.plan.calm && world.plan.processes > 1 && script == world.plan.processes - 1 {
        1
    } else {
        KINDS.len()
    };
    for kind in &KINDS[..handled] {
        let handler = handler(Arc::clone(&world), Arc::clone(&gate));
        worker = worker.handle_with(*kind, world.plan.policy.clone(), handler);
    }
    let callers = clock.spawn(call(Arc::clone(&world), scheduler.clone(), script));
    let counting = {
        let (clock, scheduler) = (clock.clone(), scheduler.clone());
        clock.clone().spawn(async move {
            // What earlier processes of this number counted is forgotten; the totals show only that things happen.
            loop {
                clock.sleep(Duration::from_secs(1)).await;
                *stats.lock().unwrap() = scheduler.stats();
            }
        })
    };
    if let Err(error) = worker.run().await {
        world.history.broken(format!("the worker ended: {error}"));
    }
    drop((callers, counting));
}

type Answer = std::pin::Pin<Box<dyn Future<Output = Result<Outcome, Failure>> + Send>>;

fn handler(world: Arc<World>, gate: Arc<Gate>) -> impl Fn(u64, Context) -> Answer + Send + Sync {
    move |_, context| {
        let (world, gate) = (Arc::clone(&world), Arc::clone(&gate));
        Box::pin(async move {
            world.history.started(&*world.store, &context).await;
            let calm = world.plan.calm;
            let working = if calm {
                0
            } else {
                [0, 0, 100, 3_000, 40_000][gate.clock.random_below(5) as usize]
            };
            gate.clock
                .sleep(Duration::from_millis(gate.clock.random_below(working + 1)))
                .await;
            let soon = Duration::from_millis(gate.clock.random_below(8_000));
            match gate.clock.random_below(if calm { 1 } else { 20 }) {
                1 | 2 => Err("failed by chance".into()),
                3 => Ok(Outcome::Snooze(soon)),
                4 => Ok(Outcome::Again(soon)),
                5 => Ok(Outcome::Discard("by chance".into())),
                6 => Ok(Outcome::Retry("by chance".into())),
                7 => std::panic::resume_unwind(Box::new("by chance")),
                _ => Ok(Outcome::Done),
            }
        })
    }
}

/// Schedules this process's share of the tasks, then changes tasks at random.
async fn call(world: Arc<World>, scheduler: Scheduler, script: u64) {
    let clock = &world.clock;
    let most = u64::try_from(world.plan.longest.as_millis()).unwrap();
    if script != u64::MAX {
        // One after the other, or all at once and so in few calls of the store.
        let at_once = clock.random_below(2) == 0;
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..world.plan.tasks {
            let task = || {
                let kind = KINDS[clock.random_below(2) as usize];
                let delay = Duration::from_millis(clock.random_below(most));
                NewTask::new(kind, &1_u64).after(delay)
            };
            let id = clock.new_id();
            let mut new = task().id(id);
            if clock.random_below(3) == 0 {
                new = new.key(["x", "y"][clock.random_below(2) as usize]);
                if clock.random_below(2) == 0 {
                    new = new.replace();
                }
            }
            let (scheduler, history) = (scheduler.clone(), Arc::clone(&world.history));
            callers.spawn(async move {
                history.note(match scheduler.schedule(new).await {
                    Ok(scheduled) => {
                        format!(
                            "scheduled {} v{}",
                            short(scheduled.task().id),
                            scheduled.task().version
                        )
                    }
                    Err(error) => format!("schedule {}: {error}", short(id)),
                });
            });
            if !at_once {
                callers.join_next().await;
            }
        }
        while callers.join_next().await.is_some() {}
    }
    for _ in 0..world.plan.actions {
        clock.sleep(Duration::from_millis(clock.random_below(most))).await;
        let rows = every_row(&*world.store).await;
        if rows.is_empty() {
            continue;
        }
        let row = &rows[clock.random_below(rows.len() as u64) as usize];
        let target: TaskId = row.id;
        let by = Duration::from_millis(clock.random_below(most));
        let (verb, answer) = match clock.random_below(6) {
            0 => ("cancel", scheduler.cancel(target).await),
            1 => ("run now", scheduler.run_now(target).await),
            2 => ("reschedule", scheduler.reschedule(target, by).await),
            3 => ("later", scheduler.shift(target, Shift::Later(by)).await),
            4 => {
                let expect = Expect::Due(row.due_at);
                (
                    "earlier",
                    scheduler.shift_if(target, expect, Shift::Earlier(by)).await,
                )
            }
            _ if row.state == State::Dead => ("redrive", scheduler.redrive(target).await),
            _ => (
                "at",
                scheduler.reschedule(target, world.clock.now().after(by)).await,
            ),
        };
        match answer {
            Ok(answer) => world
                .history
                .answered(&format!("{verb} {}", short(target)), &answer),
            Err(error) => world.history.note(format!("{verb} {}: {error}", short(target))),
        }
    }
}

/// In a calm history every chain takes the hops of its plan, and is as late as its last hop.
fn check_chains(world: &World) {
    if !world.plan.calm {
        return;
    }
    for start in world.history.starts() {
        let versions = world.history.versions(start.task.id);
        // A replaced task took another plan half-way.
        let replaced = versions.values().any(|row| row.due_at != start.task.due_at);
        if replaced || start.task.attempt > 1 {
            continue;
        }
        let asked = duration_between(start.task.created_at.as_millis(), start.task.due_at.as_millis());
        // The first wake-up is sent some ms after the row was written, perhaps on the other side of a limit.
        let plans = [0, 25].map(|sent_after| {
            let remaining = asked.saturating_sub(Duration::from_millis(sent_after));
            (
                remaining,
                plan(remaining, &world.plan.routing, world.plan.levels.as_ref()),
            )
        });
        let most = plans.iter().map(|(_, plan)| plan.hops.len()).max().unwrap_or(0);
        // A level is up to 100 ms late here and the steps in between some ms. A chain is whole as long as its
        // lateness in all fits into the tolerance, of which the plan itself may use a part.
        let used = plans.iter().map(|(remaining, plan)| {
            let hops: Duration = plan.hops.iter().map(Hop::delay).sum();
            (hops + plan.precise).saturating_sub(*remaining)
        });
        let lateness = Duration::from_millis(110) * u32::try_from(most).unwrap_or(u32::MAX);
        if lateness + used.max().unwrap_or_default() < world.plan.routing.tolerance {
            let taken = versions
                .values()
                .filter(|row| row.hop > 0 && row.state == State::Scheduled)
                .count();
            if taken > most {
                world.history.broken(format!(
                    "5 one chain: {taken} hops, planned {most}: {:?}",
                    start.task
                ));
            }
        }
        let late = start.at.millis_since(start.task.due_at);
        let tolerance = world.plan.routing.tolerance.as_millis() as i64;
        if late > tolerance + 100 + 100 {
            world.history.broken(format!(
                "6 lateness does not add up: {late} ms late: {:?}",
                start.task
            ));
        }
    }
}

fn duration_between(from: i64, to: i64) -> Duration {
    Duration::from_millis(u64::try_from(to - from).unwrap_or(0))
}
