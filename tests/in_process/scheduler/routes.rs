//! Where wake-ups go when all is well, and what becomes of tasks when a backend is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use delayline::backend::{Arrival, Backend, Delays, Departure, SendError, Wake, WokenBy};
use delayline::delay::{Routing, plan};
use delayline::testing::{Faults, FaultyBackend};
use delayline::{Error, NewTask, Scheduled, Scheduler, State, Worker, defaults};

use crate::support::{KIND, ROCKETMQ, Running, Setup, World, at, ms, secs};

const REFUSING: Faults = Faults {
    lose: 0,
    double: 0,
    late: 0,
    early: 0,
    refuse: 100,
    forget: 0,
    usual: std::time::Duration::ZERO,
};

/// Up to what was measured of a broker.
const LATE_AS_TIMERS: Faults = Faults {
    refuse: 0,
    usual: std::time::Duration::from_millis(1_119),
    ..REFUSING
};

/// A carrier that is down for as long as it is told.
#[derive(Debug)]
struct Down {
    backend: Arc<FaultyBackend>,
    down: &'static AtomicBool,
    /// Sends asked of it, also when it is down.
    sends: &'static AtomicUsize,
    /// Whether it hangs, rather than says no.
    hangs: bool,
}

#[async_trait]
impl Backend for Down {
    fn name(&self) -> &'static str {
        "down"
    }

    fn delays(&self) -> Delays {
        self.backend.delays()
    }

    async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        self.sends.fetch_add(1, Ordering::Relaxed);
        match self.health().await {
            Ok(()) => self.backend.send(batch).await,
            Err(cause) => Err(SendError::all(batch.len(), cause)),
        }
    }

    async fn remove(&self, wakes: &[Wake]) -> Result<(), Error> {
        self.health().await?;
        self.backend.remove(wakes).await
    }

    async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        self.backend.receive(max).await
    }

    async fn acknowledge(&self, arrivals: Vec<Arrival>) {
        self.backend.acknowledge(arrivals).await;
    }

    async fn health(&self) -> Result<(), Error> {
        if !self.down.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Err(Error::Backend {
            backend: "down",
            transient: true,
            source: "down".into(),
        })
    }

    async fn close(&self) -> Result<(), Error> {
        self.health().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_takes_the_hops_of_its_plan_and_lands_on_its_time() {
    for seconds in [1, 4, 40, 61, 200, 3_600, 5_025, 20_399] {
        let world = World::with_levels(ROCKETMQ);
        let _worker = world.work();
        let row = world
            .scheduler
            .schedule(NewTask::new(KIND, &1).after(secs(seconds)));
        let id = row.await.unwrap().task().id;
        world.pass(secs(seconds + 1)).await;
        let levels = world.levels.as_ref().unwrap();
        let planned = plan(secs(seconds), &Routing::default(), Some(&levels.delays()));
        let taken = levels.log().len();
        assert_eq!(taken, planned.hops.len(), "{planned}");
        assert_eq!(
            world.runs.times(),
            [i64::try_from(seconds).unwrap() * 1_000],
            "{planned}"
        );
        let row = world.row(id).await;
        assert_eq!(row.hop as usize, planned.hops.len() - 1, "{planned}");
        let stats = world.scheduler.stats();
        assert_eq!(stats.sent_by_carrier, planned.hops.len() as u64);
        assert_eq!(
            (stats.sent_precise, stats.rerouted, stats.left_to_sweep),
            (0, 0, 0)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_due_soon_or_far_away_goes_to_the_precise_backend() {
    let world = Setup {
        table: Some(ROCKETMQ),
        horizon: secs(3_600),
        ..Setup::default()
    }
    .build();
    let _worker = world.work();
    for delay in [ms(999), secs(3_601)] {
        world
            .scheduler
            .schedule(NewTask::new(KIND, &1).after(delay))
            .await
            .unwrap();
    }
    world.pass(secs(4_000)).await;
    assert_eq!(world.runs.times(), [999, 3_601_000]);
    assert!(world.levels.unwrap().log().is_empty());
    assert_eq!(world.precise.log().len(), 2);
    assert_eq!(world.scheduler.stats().rerouted, 0);
}

#[tokio::test(start_paused = true)]
async fn any_delay_that_one_timer_holds_takes_one_and_is_precise_for_all_that() {
    for seconds in [4, 6, 900, 3_601] {
        let world = Setup {
            timers: Some(secs(10_800)),
            horizon: secs(3_600),
            level_faults: LATE_AS_TIMERS,
            ..Setup::default()
        }
        .build();
        let _worker = world.work();
        let row = world
            .scheduler
            .schedule(NewTask::new(KIND, &1).after(secs(seconds)));
        let id = row.await.unwrap().task().id;
        world.pass(secs(seconds + 1)).await;
        assert_eq!(world.runs.times(), [i64::try_from(seconds).unwrap() * 1_000]);
        assert_eq!(world.runs.all()[0].woken_by, WokenBy::Precise);
        assert_eq!(world.levels.as_ref().unwrap().log().len(), 1, "{seconds} s");
        assert_eq!(world.row(id).await.hop, 1);
        let stats = world.scheduler.stats();
        assert_eq!((stats.sent_by_carrier, stats.sent_precise), (1, 1));
        assert_eq!((stats.rerouted, stats.left_to_sweep), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_timer_is_worth_or_several_would_carry_beyond_the_horizon_is_precise_all_the_way() {
    let world = Setup {
        timers: Some(secs(3_600)),
        horizon: secs(3_600),
        level_faults: LATE_AS_TIMERS,
        ..Setup::default()
    }
    .build();
    let _worker = world.work();
    for delay in [ms(3_399), secs(3_600 + 3)] {
        let new = NewTask::new(KIND, &1).after(delay);
        world.scheduler.schedule(new).await.unwrap();
    }
    world.pass(secs(4_000)).await;
    assert_eq!(world.runs.times(), [3_399, 3_603_000]);
    assert!(world.levels.unwrap().log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn timers_are_chained_up_to_the_horizon() {
    let world = Setup {
        timers: Some(secs(300)),
        horizon: secs(3_600),
        level_faults: LATE_AS_TIMERS,
        ..Setup::default()
    }
    .build();
    let _worker = world.work();
    let new = NewTask::new(KIND, &1).after(secs(3_600));
    world.scheduler.schedule(new).await.unwrap();
    world.pass(secs(3_601)).await;
    assert_eq!(world.runs.times(), [3_600_000]);
    assert_eq!(world.levels.unwrap().log().len(), 12);
}

#[tokio::test(start_paused = true)]
async fn what_the_level_backend_refuses_goes_to_the_precise_one_at_once() {
    let world = Setup {
        table: Some("1s 5s 10s"),
        level_faults: REFUSING,
        ..Setup::default()
    }
    .build();
    let _worker = world.work();
    let tasks: Vec<_> = [1_000, 5_000, 7_300, 15_000]
        .map(|delay| NewTask::new(KIND, &1).after(ms(delay)))
        .into();
    let answers = world.scheduler.schedule_all(tasks).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Scheduled::New(_))));
    world.pass(ms(1)).await;
    assert_eq!(world.precise.log().len(), 4, "at once");
    let stats = world.scheduler.stats();
    assert_eq!(
        (stats.rerouted, stats.sent_precise, stats.sent_by_carrier),
        (4, 4, 0)
    );
    world.settle().await;
    // To the millisecond: the precise one has all of the remaining time.
    assert_eq!(world.runs.times(), [1_000, 5_000, 7_300, 15_000]);
    assert_eq!(world.scheduler.stats().left_to_sweep, 0);
}

#[tokio::test(start_paused = true)]
async fn with_every_backend_refusing_the_sweep_runs_each_task_within_a_second() {
    let world = Setup {
        table: Some("1s 5s 10s"),
        level_faults: REFUSING,
        precise_faults: Faults {
            lose: 100,
            ..REFUSING
        },
        ..Setup::default()
    }
    .build();
    world.levels.as_ref().unwrap().set_faults(Faults {
        lose: 100,
        ..REFUSING
    });
    let _worker = world.work();
    let delays: Vec<u64> = vec![0, 300, 1_000, 1_900, 5_000, 7_300, 15_000, 41_000];
    let tasks: Vec<_> = delays
        .iter()
        .map(|&delay| NewTask::new(KIND, &1).after(ms(delay)))
        .collect();
    world.scheduler.schedule_all(tasks).await.unwrap();
    world.settle().await;
    let runs = world.runs.all();
    assert_eq!(runs.len(), delays.len());
    for run in runs {
        assert!(run.lateness <= secs(1), "{run:?}");
    }
    let stats = world.scheduler.stats();
    assert_eq!(stats.received, 0);
    assert_eq!(
        stats.claimed_by_sweep + stats.claimed_when_ready,
        delays.len() as u64
    );
    assert!(stats.left_to_sweep >= delays.len() as u64, "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn an_ill_level_backend_is_spared_and_gets_its_traffic_back_by_itself() {
    static DOWN: AtomicBool = AtomicBool::new(false);
    static SENDS: AtomicUsize = AtomicUsize::new(0);
    let world = Setup {
        table: Some("1s 5s 10s"),
        wrap_levels: |backend| {
            Arc::new(Down {
                backend,
                down: &DOWN,
                sends: &SENDS,
                hangs: false,
            })
        },
        ..Setup::default()
    }
    .build();
    let _worker = world.work();
    let levels = world.levels.clone().unwrap();
    let schedule = async || {
        let task = NewTask::new(KIND, &1).after(secs(5));
        world.scheduler.schedule(task).await.unwrap();
        world.pass(ms(1)).await;
    };
    schedule().await;
    assert_eq!((levels.log().len(), SENDS.load(Ordering::Relaxed)), (1, 1));

    // One failure is not yet an illness: it was tried again at once.
    DOWN.store(true, Ordering::Relaxed);
    schedule().await;
    DOWN.store(false, Ordering::Relaxed);
    schedule().await;
    assert_eq!((levels.log().len(), SENDS.load(Ordering::Relaxed)), (2, 3));

    DOWN.store(true, Ordering::Relaxed);
    for _ in 0..10 {
        schedule().await;
        world.pass(ms(700)).await;
    }
    // Some found out; the others did not try.
    let enough = defaults::UNWELL_AFTER as usize;
    assert_eq!(
        (levels.log().len(), SENDS.load(Ordering::Relaxed)),
        (2, 3 + enough)
    );
    assert_eq!(world.scheduler.stats().rerouted, 11);

    DOWN.store(false, Ordering::Relaxed);
    world.pass(ms(2_001)).await;
    schedule().await;
    assert_eq!(
        (levels.log().len(), SENDS.load(Ordering::Relaxed)),
        (3, 4 + enough)
    );

    // And falls ill once more, as it did the first time.
    DOWN.store(true, Ordering::Relaxed);
    for _ in 0..=enough {
        schedule().await;
    }
    assert_eq!(SENDS.load(Ordering::Relaxed), 4 + 2 * enough);
    world.settle().await;
    assert_eq!(world.runs.count(), 15 + enough);
    assert!(world.runs.all().iter().all(|run| run.lateness.is_zero()));
}

#[tokio::test(start_paused = true)]
async fn a_level_backend_that_hangs_costs_precision_and_no_task_and_no_verb() {
    static DOWN: AtomicBool = AtomicBool::new(true);
    static SENDS: AtomicUsize = AtomicUsize::new(0);
    let world = Setup {
        table: Some("1s 5s 10s"),
        wrap_levels: |backend| {
            Arc::new(Down {
                backend,
                down: &DOWN,
                sends: &SENDS,
                hangs: true,
            })
        },
        ..Setup::default()
    }
    .build();
    let _worker = world.work();
    // In one batch: the one that is due soon does not wait for the answer that the others wait for.
    let tasks = [5_000, 300, 1_000, 12_000].map(|delay| NewTask::new(KIND, &1).after(ms(delay)));
    let asked = world.now();
    world.scheduler.schedule_all(tasks).await.unwrap();
    assert_eq!(world.now(), asked, "the verb waits for no backend");
    world.settle().await;
    assert_eq!(world.runs.times(), [300, 1_000, 5_000, 12_000]);
}

#[tokio::test(start_paused = true)]
async fn when_too_many_wake_ups_wait_a_verb_waits_little_and_no_task_is_lost() {
    static DOWN: AtomicBool = AtomicBool::new(true);
    static SENDS: AtomicUsize = AtomicUsize::new(0);
    let world = Setup {
        wrap_precise: |backend| {
            Arc::new(Down {
                backend,
                down: &DOWN,
                sends: &SENDS,
                hangs: true,
            })
        },
        ..Setup::default()
    }
    .build();
    let mut longest = 0;
    for _ in 0..30 {
        let tasks = (0..500).map(|n| NewTask::new(KIND, &n).after(secs(1)));
        let asked = world.now();
        world.scheduler.schedule_all(tasks).await.unwrap();
        longest = longest.max(world.now() - asked);
    }
    assert_eq!(longest, 50, "it waited, and not for longer than that");
    let left = world.scheduler.stats().left_to_sweep;
    // 10,000 wait, and one batch is being sent.
    assert!((4_500..=5_000).contains(&left), "{left}");
    assert_eq!(world.count(State::Scheduled).await, 15_000);
    let _worker = world.work();
    world.settle().await;
    assert_eq!(world.runs.count(), 15_000);
    let mut ids = world.runs.ids();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 15_000, "each once");
}

#[tokio::test(start_paused = true)]
async fn a_time_by_the_calendar_is_kept_by_the_stores_clock_however_wrong_the_schedulers_is() {
    for ahead in [600_000, -600_000] {
        let world = Setup {
            table: Some(ROCKETMQ),
            store_ahead: ahead,
            ..Setup::default()
        }
        .build();
        let _worker = world.work();
        let due = at(ahead + 900_000);
        let row = world
            .scheduler
            .schedule(NewTask::new(KIND, &1).at(due))
            .await
            .unwrap();
        let row = row.task().clone();
        assert_eq!(row.due_at, due);
        // The first wake-up is looked for when the first hop is over, by the same clock.
        assert_eq!(row.wake_at, Some(at(ahead + 600_200)));
        world.pass(secs(901)).await;
        assert_eq!(world.runs.times(), [ahead + 900_000]);
        assert_eq!(world.runs.all()[0].lateness, ms(0));
        // 15 min = 10 min + 5 min, and nothing besides.
        assert_eq!(world.levels.as_ref().unwrap().log().len(), 2);
        assert_eq!(world.row(row.id).await.hop, 1);
        assert!(world.precise.log().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn without_any_backend_the_store_itself_is_precise() {
    let world = World::new();
    let scheduler = Scheduler::builder(world.store.clone())
        .clock(world.clock.clone())
        .build()
        .unwrap();
    let worker = Worker::new(&scheduler).handle(KIND, world.runs.handler(&world.store_clock));
    let _worker = Running::start(worker);
    for delay in [0, 1, 700, 1_999, 2_000, 2_001, 600_000] {
        scheduler
            .schedule(NewTask::new(KIND, &1).after(ms(delay)))
            .await
            .unwrap();
    }
    world.settle().await;
    assert_eq!(world.runs.times(), [0, 1, 700, 1_999, 2_000, 2_001, 600_000]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_to_be_sent_is_sent_before_the_backends_are_closed() {
    let world = World::with_levels("1s");
    let tasks = (0..2_000).map(|n| NewTask::new(KIND, &n).after(secs(1)));
    world.scheduler.schedule_all(tasks).await.unwrap();
    world.scheduler.close().await.unwrap();
    assert_eq!(world.levels.unwrap().log().len(), 2_000);
    assert_eq!(world.scheduler.stats().left_to_sweep, 0);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_hangs_keeps_no_process_from_ending() {
    static DOWN: AtomicBool = AtomicBool::new(true);
    static SENDS: AtomicUsize = AtomicUsize::new(0);
    let world = Setup {
        wrap_precise: |backend| {
            Arc::new(Down {
                backend,
                down: &DOWN,
                sends: &SENDS,
                hangs: true,
            })
        },
        ..Setup::default()
    }
    .build();
    world
        .scheduler
        .schedule_all((0..10_000).map(|n| NewTask::new(KIND, &n)))
        .await
        .unwrap();
    let asked = world.now();
    let error = world.scheduler.close().await.unwrap_err();
    assert_eq!(error.to_string(), "backend down: not closed within 30s");
    // As long for what waits to be sent, and as long for the backend.
    assert!(world.now() - asked <= 60_000, "{}", world.now() - asked);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_cannot_do_what_it_was_given_for_is_refused_by_name() {
    let world = World::with_levels("1s");
    let levels = world.levels.clone().unwrap();
    let cases = [
        (
            Scheduler::builder(world.store.clone()).precise(levels.clone()),
            "precise",
            "any delay",
        ),
        (
            Scheduler::builder(world.store.clone())
                .routing(Routing::default().handoff(secs(2)).horizon(secs(1))),
            "handoff",
            "at most the horizon",
        ),
    ];
    for (builder, field, allowed) in cases {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.starts_with(field) && error.contains(allowed), "{error}");
    }
}
