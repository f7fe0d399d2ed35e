//! One process: a scheduler or two, a worker, callers, handlers and a check.

use std::sync::Arc;
use std::time::Duration;

use delayline::backend::Backend;
use delayline::clock::Clock;
use delayline::expected::{Check, Expected};
use delayline::{Context, Failure, Key, Outcome, Scheduler, Worker};
use tokio::sync::Notify;

use crate::callers::call;
use crate::gate::{Gate, GatedBackend, GatedStore, GatedTransaction, Hearer};
use crate::ledger::{CameOfIt, Handling};
use crate::plan::{KINDS, Precise};
use crate::world::World;

/// What a process needs to know of itself.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) world: Arc<World>,
    pub(crate) gate: Arc<Gate>,
    /// Its own, skewed, and suspended with it.
    pub(crate) clock: Clock,
    /// Which share of the tasks it schedules first, if any.
    pub(crate) script: Option<u64>,
    /// The place of this process among those that live.
    pub(crate) place: u64,
    /// It is to end in peace.
    pub(crate) stop: Arc<Notify>,
}

impl Process {
    pub(crate) fn backend(&self, role: &'static str, resending: bool) -> Option<Arc<dyn Backend>> {
        let backend = match role {
            "levels" => self.world.levels.clone()?,
            _ => self.world.precise.clone(),
        };
        Some(Arc::new(GatedBackend {
            gate: Arc::clone(&self.gate),
            backend,
            role,
            resending,
            hang: self.world.plan.store.hang,
        }))
    }

    fn scheduler(&self, hearer: Hearer) -> Scheduler {
        let plan = &self.world.plan;
        let store = Arc::new(GatedStore(Arc::clone(&self.gate), hearer));
        let mut builder = Scheduler::builder(store)
            .routing(plan.routing)
            .clock(self.clock.clone());
        if plan.precise != Precise::Table
            && let Some(precise) = self.backend("precise", false)
        {
            builder = builder.precise(precise);
        }
        if let Some(levels) = self.backend("levels", false) {
            builder = builder.carrier(levels);
        }
        if plan.follows {
            let process = self.clone();
            let check = Check::new(move |keys| check(process.clone(), keys)).every(plan.every);
            builder = builder.follow(KINDS[2], check);
        }
        builder.build().unwrap()
    }

    /// Lives until it is dropped, or has come to its end.
    pub(crate) async fn run(self) {
        let (plan, ledger) = (&self.world.plan, &self.world.ledger);
        let scheduler = self.scheduler(Hearer::Worker);
        // Perhaps another scheduler beside it, over the same store.
        let (another, hearer) = match self.clock.random_below(3) {
            0 => (self.scheduler(Hearer::Other), Hearer::Other),
            _ => (scheduler.clone(), Hearer::Worker),
        };
        let counting = Counting(Arc::clone(&self.world), scheduler.clone());
        let calling = self.clock.spawn(call(self.clone(), another.clone(), hearer));
        let mut worker = Worker::new(&scheduler)
            .name(self.gate.life.to_string())
            .lease(plan.lease)
            .sweep_every(plan.sweep_every)
            .stop_timeout(Duration::from_secs(2));
        // Of several, the last has no handlers for some kinds, but moves the hops of all; and one only calls.
        let handled = match self.place {
            place if place == 0 || plan.calm || place + 1 < plan.processes => KINDS.len(),
            _ => self.world.handled_by_last,
        };
        for kind in &KINDS[..handled] {
            let process = self.clone();
            worker = worker.handle_with(*kind, plan.policy(), move |number: u64, context| {
                handle(process.clone(), number, context)
            });
        }
        if handled == 0 {
            return std::future::pending().await;
        }
        let stop = Arc::clone(&self.stop);
        let life = self.gate.life;
        let ending = Arc::clone(ledger);
        let stopped = async move {
            stop.notified().await;
            ending.stopping(life);
        };
        if let Err(error) = worker.run_until(stopped).await {
            ledger.broken("0 the worker", format!("the worker ended: {error}"));
        }
        let _ = tokio::join!(biased; scheduler.close(), another.close());
        drop((calling, counting));
    }
}

/// Keeps what a process has counted when it ends, or dies.
struct Counting(Arc<World>, Scheduler);

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.counted.lock().unwrap().push(self.1.stats());
    }
}

type Answered = Result<Outcome, Failure>;

async fn handle(process: Process, number: u64, context: Context) -> Answered {
    let Process {
        world, gate, clock, ..
    } = &process;
    let mut handling = Handling::begin(&world.ground, gate.life, clock, &context);
    if context.payload() != number.to_string().as_bytes() {
        world.ledger.broken(
            "4 one owner",
            format!("the payload of {:?} is {number}", context.task()),
        );
    }
    let (came_of_it, answer) = work(&process, &context, &mut handling).await;
    handling.came_of_it(came_of_it);
    match answer {
        Some(answer) => answer,
        None => std::panic::resume_unwind(Box::new("by chance")),
    }
}

/// What comes of a handler; no answer: it panics.
async fn work(process: &Process, context: &Context, handling: &mut Handling) -> (CameOfIt, Option<Answered>) {
    let Process { world, clock, .. } = process;
    let gentle = world.plan.calm || world.is_healed();
    let longest = match (gentle, clock.random_below(6)) {
        (true, _) | (false, 0 | 1) => 0,
        (false, 2 | 3) => 100,
        (false, 4) => 3_000,
        (false, _) => 40_000,
    };
    if longest > 0 {
        clock
            .sleep(Duration::from_millis(clock.random_below(longest + 1)))
            .await;
    }
    let soon = Duration::from_millis(clock.random_below(8_000));
    match clock.random_below(if gentle { 12 } else { 26 }) {
        0 | 1 if !world.plan.calm => finish(process, context, handling).await,
        12 | 13 => (CameOfIt::Failed, Some(Err("failed by chance".into()))),
        14 => (CameOfIt::Snoozed(soon), Some(Ok(Outcome::Snooze(soon)))),
        15 => (CameOfIt::Again(soon), Some(Ok(Outcome::Again(soon)))),
        16 => (
            CameOfIt::Discarded,
            Some(Ok(Outcome::Discard("by chance".into()))),
        ),
        17 => (CameOfIt::Failed, Some(Ok(Outcome::Retry("by chance".into())))),
        18 => (CameOfIt::Failed, None),
        _ => (CameOfIt::Done, Some(Ok(Outcome::Done))),
    }
}

/// Finishes the task in a transaction, perhaps with other verbs in it.
async fn finish(
    process: &Process,
    context: &Context,
    handling: &mut Handling,
) -> (CameOfIt, Option<Answered>) {
    let Process {
        world, gate, clock, ..
    } = process;
    let mut transaction = GatedTransaction::begin(gate, Hearer::Other);
    handling.finishes(true);
    let finished = context.finish_in(&mut transaction).await;
    if let Err(error) = finished {
        handling.finishes(false);
        drop(transaction);
        // After a claim was lost, or an answer: the attempt has failed.
        return (CameOfIt::Failed, Some(Err(error.into())));
    }
    // From here on the row may be done.
    handling.came_of_it(CameOfIt::Finished);
    let dallying = clock.random_below(4) == 0 && !world.is_healed();
    if dallying {
        clock
            .sleep(Duration::from_millis(clock.random_below(4_000)))
            .await;
    }
    match clock.random_below(5) {
        0 => {
            drop(transaction);
            (CameOfIt::Finished, Some(Ok(Outcome::Done)))
        }
        1 => {
            let _ = transaction.commit().await;
            (CameOfIt::Finished, Some(Err("failed after its commit".into())))
        }
        _ => match transaction.commit().await {
            Ok(()) => (CameOfIt::Finished, Some(Ok(Outcome::Done))),
            Err(error) => (CameOfIt::Finished, Some(Err(error.into()))),
        },
    }
}

/// The service's own table is asked; now and then it does not answer as it should.
async fn check(process: Process, keys: Vec<Key>) -> Result<Vec<Expected>, Failure> {
    let Process {
        world, gate, clock, ..
    } = &process;
    let ill = !world.plan.calm && !world.is_healed();
    clock.sleep(Duration::from_millis(clock.random_below(4))).await;
    match clock.random_below(if ill { 20 } else { 1 }) {
        1 => return Err("the table is away".into()),
        2 => return Ok(Vec::new()),
        3 => std::panic::resume_unwind(Box::new("by chance")),
        4 => std::future::pending().await,
        5 => {
            clock
                .sleep(Duration::from_millis(clock.random_below(2_000)))
                .await
        }
        _ => {}
    }
    let answers = keys.iter().map(|key| {
        let expected = world.ledger.expected(key);
        world.ledger.asked(gate.life, key, expected);
        expected
    });
    Ok(answers.collect())
}
