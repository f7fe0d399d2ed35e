//! Wake-ups: early, twice, lost, foreign, or of a kind that no worker here handles.

use std::sync::Mutex;

use async_trait::async_trait;
use delayline::backend::{Arrival, Backend, Delays, Departure, SendError, Wake, WokenBy};
use delayline::testing::{Faults, FaultyBackend};
use delayline::{Error, Kind, NewTask, Outcome, State, Task, Worker};

use crate::support::{KIND, Op, Running, Setup, World, at, ms, secs};

async fn schedule(world: &World, kind: &str, delay: u64) -> Task {
    let task = NewTask::new(kind, &1).after(ms(delay));
    world.scheduler.schedule(task).await.unwrap().task().clone()
}

/// A wake-up out of the blue.
async fn send(world: &World, wake: Wake) {
    let delay = ms(0);
    world.precise.send(&[Departure { wake, delay }]).await.unwrap();
    world.pass(ms(1)).await;
}

fn wake(row: &Task, version: u64) -> Wake {
    Wake {
        id: row.id,
        kind: row.kind.clone(),
        version,
    }
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_that_comes_twice_runs_its_task_once() {
    let world = Setup {
        precise_faults: Faults {
            double: 100,
            usual: ms(30),
            ..Faults::default()
        },
        ..Setup::default()
    }
    .build();
    let _worker = world.work();
    world.pass(ms(1)).await;
    for n in 0..200 {
        schedule(&world, KIND, n % 10 * 100).await;
    }
    world.settle().await;
    world.pass(secs(5)).await;
    assert_eq!(world.runs.count(), 200);
    let stats = world.scheduler.stats();
    assert_eq!((stats.received, stats.stale), (400, 200));
}

#[tokio::test(start_paused = true)]
async fn of_wake_ups_of_one_task_in_one_batch_the_newest_counts() {
    let world = World::new();
    let _worker = Running::start(world.worker().sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    let row = schedule(&world, KIND, 60_000).await;
    assert!(
        world
            .scheduler
            .reschedule(row.id, secs(10))
            .await
            .unwrap()
            .is_done()
    );
    // After the old one was removed; the older versions come first, and the new one comes twice more.
    tokio::task::yield_now().await;
    for (version, delay) in [(1, 7), (1, 8), (2, 10), (2, 10)] {
        let wake = wake(&row, version);
        let delay = secs(delay);
        world.precise.send(&[Departure { wake, delay }]).await.unwrap();
    }
    // While both receivers are busy with other wake-ups they gather.
    world.store.hold(Op::Arrive);
    let one = schedule(&world, KIND, 5_000).await;
    let other = schedule(&world, KIND, 6_000).await;
    world.pass_until(11_000).await;
    assert_eq!(world.store.waiting(Op::Arrive), 2);
    world.store.free(Op::Arrive);
    world.pass(ms(1)).await;
    // The two do not wait for each other.
    let (mut ran, mut expected) = (world.runs.ids(), [one.id, other.id, row.id]);
    ran.sort();
    expected.sort();
    assert_eq!(ran, expected);
    let stats = world.scheduler.stats();
    assert_eq!((stats.received, stats.stale), (7, 4), "one of five was the one");
    assert_eq!(world.store.calls(Op::Arrive), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_or_past_or_future_wake_up_is_dropped() {
    let world = World::new();
    let _worker = world.work();
    let row = schedule(&world, KIND, 60_000).await;
    let done = schedule(&world, KIND, 0).await;
    let cancelled = schedule(&world, KIND, 60_000).await;
    assert!(world.scheduler.cancel(cancelled.id).await.unwrap().is_done());
    world.pass(ms(1)).await;
    let before = world.every_row().await;
    let unknown = Wake {
        id: world.clock.new_id(),
        kind: Kind::from("unknown"),
        version: 1,
    };
    let foreign = [
        unknown,
        wake(&row, 0),
        wake(&row, 2),
        wake(&row, i64::MAX as u64),
        wake(&done, 1),
        wake(&done, 3),
        wake(&cancelled, 1),
        wake(&cancelled, 2),
    ];
    let count = foreign.len() as u64;
    for wake in foreign {
        send(&world, wake).await;
    }
    assert_eq!(world.scheduler.stats().stale, count);
    assert_eq!(world.every_row().await, before);
    assert_eq!(world.runs.ids(), [done.id]);
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_that_names_the_wrong_kind_still_finds_its_task() {
    let world = World::new();
    let _worker = Running::start(world.worker().sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    let row = schedule(&world, KIND, 60_000).await;
    assert!(world.scheduler.run_now(row.id).await.unwrap().is_done());
    let mut wrong = wake(&row, 2);
    wrong.kind = "another".into();
    send(&world, wrong).await;
    assert_eq!(world.runs.ids(), [row.id]);
}

#[tokio::test(start_paused = true)]
async fn an_early_wake_up_hops_on_with_the_next_version() {
    let world = World::new();
    let _worker = world.work();
    let row = schedule(&world, KIND, 10_000).await;
    world.pass_until(4_000).await;
    send(&world, wake(&row, 1)).await;
    let hopped = world.row(row.id).await;
    assert_eq!(
        (hopped.version, hopped.hop, hopped.state),
        (2, 1, State::Scheduled)
    );
    // When the next one will be overdue: 6 s and the usual lateness.
    assert_eq!((hopped.due_at, hopped.wake_at), (at(10_000), Some(at(10_050))));
    assert_eq!(world.precise.log().last(), Some(&wake(&row, 2)));
    world.settle().await;
    world.pass(secs(5)).await;
    assert_eq!(world.runs.times(), [10_000]);
    let stats = world.scheduler.stats();
    // The first wake-up's own arrival, at its time, is the stale one.
    assert_eq!((stats.hops, stats.stale, stats.received), (1, 1, 3));
}

#[tokio::test(start_paused = true)]
async fn however_often_they_come_there_is_one_chain() {
    let world = Setup {
        table: Some("1s"),
        level_faults: Faults {
            double: 100,
            early: 30,
            usual: ms(100),
            ..Faults::default()
        },
        ..Setup::default()
    }
    .build();
    world.store.take(ms(5));
    let _workers = [
        world.work(),
        Running::start(Worker::new(&world.scheduler).handle(KIND, world.runs.handler(&world.store_clock))),
    ];
    for _ in 0..20 {
        schedule(&world, KIND, 10_000).await;
    }
    world.settle().await;
    assert_eq!(world.runs.count(), 20);
    let mut log = world.levels.as_ref().unwrap().log();
    let sent = log.len();
    log.sort();
    log.dedup();
    assert_eq!(log.len(), sent, "no wake-up was sent twice");
    let hops: u32 = world.every_row().await.iter().map(|row| row.hop).sum();
    assert_eq!(world.scheduler.stats().hops, u64::from(hops));
}

#[tokio::test(start_paused = true)]
async fn a_hop_is_recorded_before_it_is_sent() {
    for (lost_answer, sent) in [(false, 2), (true, 1)] {
        let world = Setup {
            table: Some("5s"),
            ..Setup::default()
        }
        .build();
        let _worker = world.work();
        if lost_answer {
            world.store.lose_answers(Op::Hop, 1);
        } else {
            world.store.fail(Op::Hop, 1);
        }
        let row = schedule(&world, KIND, 10_000).await;
        world.pass_until(5_001).await;
        let log = || world.levels.as_ref().unwrap().log().len() + world.precise.log().len();
        assert_eq!(log(), 1, "nothing goes on that is not known to be recorded");
        world.pass_until(5_100).await;
        assert_eq!(log(), sent, "lost answer: {lost_answer}");
        assert_eq!(world.row(row.id).await.version, 2);
        world.settle().await;
        // A wake-up whose answer was lost is not sent on: it is not known which has won. The sweep goes on from there.
        let times = world.runs.times();
        assert!(matches!(times[..], [10_000..=11_000]), "{times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_wake_ups_cost_a_second_at_the_most() {
    let world = Setup {
        table: Some("1s 5s 10s"),
        level_faults: Faults {
            lose: 100,
            ..Faults::default()
        },
        precise_faults: Faults {
            lose: 100,
            ..Faults::default()
        },
        ..Setup::default()
    }
    .build();
    let _worker = world.work();
    for delay in [0, 400, 1_000, 6_500, 10_000, 31_000] {
        schedule(&world, KIND, delay).await;
    }
    world.settle().await;
    let runs = world.runs.all();
    assert_eq!(runs.len(), 6);
    for run in &runs {
        assert!(run.lateness <= secs(1), "{run:?}");
    }
    assert_eq!(world.scheduler.stats().received, 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_of_a_kind_without_a_handler_waits_for_a_worker_that_has_it() {
    let world = World::with_levels("1s");
    let _worker = world.work();
    let row = schedule(&world, "other", 3_000).await;
    world.pass_until(2_500).await;
    // A worker without a handler for its kind sends its wake-ups on all the same.
    assert_eq!(world.row(row.id).await.hop, 2);
    world.pass_until(60_000).await;
    let waiting = world.row(row.id).await;
    assert_eq!((waiting.state, waiting.attempt), (State::Scheduled, 0));
    let stats = world.scheduler.stats();
    assert!(stats.no_handler >= 1, "{stats:?}");
    assert_eq!((stats.no_room, stats.started), (0, 0));

    let other = world.another_scheduler();
    let handler = world.runs.handler(&world.store_clock);
    let _other = Running::start(Worker::new(&other).handle("other", handler));
    world.pass(ms(1_500)).await;
    assert_eq!(world.runs.ids(), [row.id]);
    assert!(world.runs.times()[0] <= 61_000);
    // And what becomes due while it is there runs on time, also if the wake-up goes to the one that cannot run it.
    for _ in 0..20 {
        schedule(&world, "other", 2_000).await;
    }
    world.pass(secs(4)).await;
    let runs = world.runs.all();
    assert_eq!(runs.len(), 21);
    assert!(runs[1..].iter().all(|run| run.lateness <= secs(1)), "{runs:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_due_before_a_worker_started_is_run_at_once() {
    let world = World::new();
    for _ in 0..3 {
        schedule(&world, KIND, 1_000).await;
    }
    world.pass_until(5_000).await;
    // Not by its sweep, and not by its wake-ups.
    world.store.hold(Op::Sweep);
    world.store.hold(Op::Arrive);
    let _worker = world.work();
    world.pass(ms(1)).await;
    assert_eq!(world.runs.times(), [5_000; 3]);
    assert_eq!(world.scheduler.stats().claimed_when_ready, 3);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_when_wake_ups_arrive_is_asked_again() {
    let world = World::new();
    let _worker = Running::start(world.worker().sweep_every(secs(1_000)));
    world.pass(ms(1)).await;
    world.store.fail(Op::Arrive, 2);
    schedule(&world, KIND, 999).await;
    world.settle().await;
    assert_eq!(world.runs.times(), [1_300], "after 50 and 250 ms");
    // Away for longer: the wake-ups are let go, and the sweep finds their tasks.
    let world = World::new();
    let _worker = world.work();
    world.store.fail(Op::Arrive, 1_000);
    schedule(&world, KIND, 1_000).await;
    world.settle().await;
    let times = world.runs.times();
    assert!(matches!(times[..], [1_000..=2_000]), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_when_there_is_room_is_asked_again() {
    let world = World::new();
    for _ in 0..3 {
        schedule(&world, KIND, 0).await;
    }
    world.store.fail(Op::Ready, 1);
    world.store.hold(Op::Sweep);
    world.store.hold(Op::Arrive);
    let _worker = world.work();
    world.pass(ms(501)).await;
    assert_eq!(world.runs.times(), [500; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_told_what_woke_its_task() {
    let world = World::with_levels("1s");
    let (send, mut told) = tokio::sync::mpsc::unbounded_channel();
    let worker = Worker::new(&world.scheduler).handle(KIND, move |_: u64, context| {
        let send = send.clone();
        async move {
            send.send(context.woken_by())?;
            Ok(Outcome::Done)
        }
    });
    let losing = Faults {
        lose: 100,
        ..Faults::default()
    };
    world.precise.set_faults(losing);
    schedule(&world, KIND, 0).await;
    world.pass(ms(1)).await;
    world.precise.set_faults(Faults::default());
    // It was due before there was a worker.
    let _worker = Running::start(worker);
    assert_eq!(told.recv().await, Some(WokenBy::Room));
    schedule(&world, KIND, 1_000).await;
    assert_eq!(told.recv().await, Some(WokenBy::Carrier));
    schedule(&world, KIND, 999).await;
    assert_eq!(told.recv().await, Some(WokenBy::Precise));
    world.precise.set_faults(losing);
    schedule(&world, KIND, 999).await;
    assert_eq!(told.recv().await, Some(WokenBy::Sweep));
}

/// A backend that cannot receive at first, and notes what is acknowledged.
#[derive(Debug)]
struct Watched {
    backend: std::sync::Arc<FaultyBackend>,
    failing: Mutex<usize>,
    acknowledged: &'static Mutex<Vec<Arrival>>,
}

#[async_trait]
impl Backend for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }

    fn delays(&self) -> Delays {
        self.backend.delays()
    }

    async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        self.backend.send(batch).await
    }

    async fn remove(&self, wakes: &[Wake]) -> Result<(), Error> {
        self.backend.remove(wakes).await
    }

    async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        {
            let mut failing = self.failing.lock().unwrap();
            if *failing > 0 {
                *failing -= 1;
                return Err(Error::Backend {
                    backend: "watched",
                    transient: true,
                    source: "cannot receive".into(),
                });
            }
        }
        self.backend.receive(max).await
    }

    async fn acknowledge(&self, arrivals: Vec<Arrival>) {
        self.acknowledged.lock().unwrap().extend(arrivals);
    }

    async fn health(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_cannot_receive_is_asked_again_and_every_arrival_is_acknowledged() {
    static ACKNOWLEDGED: Mutex<Vec<Arrival>> = Mutex::new(Vec::new());
    let world = Setup {
        precise_faults: Faults {
            double: 100,
            ..Faults::default()
        },
        wrap_precise: |backend| {
            std::sync::Arc::new(Watched {
                backend,
                failing: Mutex::new(6),
                acknowledged: &ACKNOWLEDGED,
            })
        },
        ..Setup::default()
    }
    .build();
    let _worker = Running::start(world.worker().sweep_every(secs(1_000)));
    let row = schedule(&world, KIND, 2_500).await;
    world.pass(secs(5)).await;
    // Each of the two receivers failed three times, a second apart each.
    assert_eq!(world.runs.times(), [3_000]);
    // The one that counted, its double, and one that the store could not be asked about.
    world.store.fail(Op::Arrive, 1_000);
    world.precise.set_faults(Faults::default());
    let second = schedule(&world, KIND, 0).await;
    world.pass(secs(5)).await;
    let acknowledged: Vec<_> = ACKNOWLEDGED
        .lock()
        .unwrap()
        .iter()
        .map(|arrival| arrival.wake.id)
        .collect();
    assert_eq!(acknowledged, [row.id, row.id, second.id]);
}
