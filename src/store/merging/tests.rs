//! Concurrent callers share calls of a store, and notice nothing of it but that it is quick. What holds for new rows holds
//! for changes, which go the same way.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::store::{Expect, MemoryStore, Note, Store, Target, Verb, When};
use crate::{Kind, TaskId};

type Caller = JoinHandle<Result<Answers<Scheduled>, Error>>;

/// Rows in memory, and calls that do what they are for and then wait until they are let go.
struct Held<const CALLS: usize> {
    rows: MemoryStore,
    clock: Clock,
    held: watch::Sender<bool>,
    waiting: AtomicUsize,
    /// How many items each call had.
    calls: Mutex<Vec<usize>>,
    /// A row that cannot be written, nor any with it; for good, unless the store is away.
    spoilt: Mutex<Option<TaskId>>,
    is_away: bool,
    /// A row that a stranger keeps locked, and how often it was waited for.
    locked: Option<TaskId>,
    waits: Mutex<Vec<usize>>,
}

impl<const CALLS: usize> Held<CALLS> {
    async fn write(&self, rows: Vec<NewRow>) -> Result<Answers<Scheduled>, Error> {
        let count = rows.len();
        self.calls.lock().unwrap().push(count);
        let spoilt = *self.spoilt.lock().unwrap();
        if rows.iter().any(|row| Some(row.id) == spoilt) {
            return Err(Error::Store {
                store: "held",
                transient: self.is_away,
                source: "refused".into(),
            });
        }
        let answers = self.rows.insert(rows).await?;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.held.subscribe().wait_for(|held| !held).await.unwrap();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Ok(answers)
    }
}

#[async_trait]
impl<const CALLS: usize> Batched for Held<CALLS> {
    fn name(&self) -> &'static str {
        "held"
    }

    fn calls(&self) -> usize {
        CALLS
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    async fn insert_alone(&self, rows: Vec<NewRow>) -> Result<Answers<Scheduled>, Error> {
        self.waits.lock().unwrap().push(rows.len());
        self.write(rows).await
    }

    async fn change_alone(&self, changes: Vec<Change>, _: Duration) -> Result<Answers<Answer>, Error> {
        self.calls.lock().unwrap().push(changes.len());
        self.rows.change(changes).await
    }

    async fn insert_at_once(&self, rows: Vec<NewRow>) -> Result<AnswersAtOnce<NewRow, Scheduled>, Error> {
        let is_locked = |row: &NewRow| Some(row.id) == self.locked;
        let free = rows.iter().filter(|row| !is_locked(row)).cloned().collect();
        let Stamped { now, found } = self.write(free).await?;
        let mut found = found.into_iter();
        let each = rows.into_iter().map(|row| match is_locked(&row) {
            true => AtOnce::Locked(row),
            false => AtOnce::Answered(found.next().unwrap()),
        });
        let found = each.collect();
        Ok(Stamped { now, found })
    }
}

struct World<const CALLS: usize> {
    store: Arc<Held<CALLS>>,
    merging: Arc<Merging>,
}

impl<const CALLS: usize> World<CALLS> {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Held<CALLS>)) -> Self {
        let mut store = Held {
            rows: MemoryStore::new(),
            clock: Clock::system(),
            held: watch::Sender::new(false),
            waiting: AtomicUsize::new(0),
            calls: Mutex::default(),
            spoilt: Mutex::default(),
            is_away: false,
            locked: None,
            waits: Mutex::default(),
        };
        change(&mut store);
        Self {
            store: Arc::new(store),
            merging: Arc::default(),
        }
    }

    /// A caller of its own for these rows.
    fn caller(&self, rows: Vec<NewRow>) -> Caller {
        let (store, merging) = (Arc::clone(&self.store), Arc::clone(&self.merging));
        tokio::spawn(async move { merging.insert(&store, rows).await })
    }

    /// A caller for the row of each number.
    fn callers(&self, numbers: Range<u64>) -> Vec<Caller> {
        numbers.map(|number| self.caller(vec![row(number)])).collect()
    }

    /// Holds the calls, and has as many in flight as may be, of one caller each.
    async fn busy(&self) -> Vec<Caller> {
        self.hold(true);
        let mut busy = Vec::new();
        for number in 0..CALLS as u64 {
            busy.extend(self.callers(1_000_000 + number..1_000_001 + number));
            settled().await;
        }
        assert_eq!(self.waiting(), CALLS);
        self.store.calls.lock().unwrap().clear();
        busy
    }

    fn hold(&self, held: bool) {
        self.store.held.send_replace(held);
    }

    /// How many calls are in flight.
    fn waiting(&self) -> usize {
        self.store.waiting.load(Ordering::Relaxed)
    }

    fn calls(&self) -> Vec<usize> {
        self.store.calls.lock().unwrap().clone()
    }

    async fn is_there(&self, number: u64) -> bool {
        let found = self.store.rows.find(&Target::Id(id(number))).await;
        found.unwrap().is_some()
    }
}

fn id(number: u64) -> TaskId {
    TaskId::from_bytes(u128::from(number).to_be_bytes())
}

fn row(number: u64) -> NewRow {
    NewRow {
        id: id(number),
        kind: Kind::from("order"),
        key: None,
        payload: Vec::new(),
        headers: Default::default(),
        due: When::After(Duration::from_secs(10)),
        look_in: Duration::from_secs(10),
        max_attempts: None,
        replace: false,
        note: Note::default(),
    }
}

fn rows(numbers: Range<u64>) -> Vec<NewRow> {
    numbers.map(row).collect()
}

/// Every task has done what it could.
async fn settled() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// What a caller is told, which has rows of these numbers: that each is new.
async fn has_its_own(caller: Caller, numbers: Range<u64>) {
    let answers = caller.await.unwrap().unwrap();
    let told = answers.found.iter().map(|answer| match answer {
        Ok(Scheduled::New(row)) => row.id,
        other => panic!("{other:?}"),
    });
    assert!(told.eq(numbers.map(id)), "{answers:?}");
}

async fn each_has_its_own(callers: Vec<Caller>, numbers: Range<u64>) {
    assert_eq!(callers.len() as u64, numbers.end - numbers.start);
    for (caller, number) in callers.into_iter().zip(numbers) {
        has_its_own(caller, number..number + 1).await;
    }
}

/// What comes while so many calls are in flight is one call.
async fn what_comes_meanwhile_is_one_call<const CALLS: usize>() {
    let world = World::<CALLS>::new();
    let busy = world.busy().await;
    let callers = world.callers(0..64);
    settled().await;
    assert_eq!(world.waiting(), CALLS, "so many are in flight, and no more");
    // Whose rows are written, but not yet for sure, is not answered.
    assert!(busy.iter().chain(&callers).all(|caller| !caller.is_finished()));
    assert!(world.is_there(1_000_000).await && !world.is_there(0).await);
    world.hold(false);
    each_has_its_own(callers, 0..64).await;
    each_has_its_own(busy, 1_000_000..1_000_000 + CALLS as u64).await;
    assert_eq!(world.calls(), [64]);
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_the_only_call_is_in_flight_is_one_call() {
    what_comes_meanwhile_is_one_call::<1>().await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_two_calls_are_in_flight_is_one_call() {
    what_comes_meanwhile_is_one_call::<2>().await;
}

#[tokio::test(start_paused = true)]
async fn who_is_alone_waits_for_nobody() {
    let world = World::<2>::new();
    let begun = world.store.clock.instant();
    for number in 0..5 {
        each_has_its_own(world.callers(number..number + 1), number..number + 1).await;
    }
    assert_eq!(world.calls(), [1; 5]);
    assert_eq!(world.store.clock.instant(), begun);
}

#[tokio::test(start_paused = true)]
async fn a_call_takes_no_more_rows_than_a_batch() {
    let world = World::<2>::new();
    let _busy = world.busy().await;
    let few = world.callers(0..499);
    // Its rows stay together: they are the next call's.
    let last = world.caller(rows(499..501));
    settled().await;
    world.hold(false);
    has_its_own(last, 499..501).await;
    each_has_its_own(few, 0..499).await;
    assert_eq!(world.calls(), [499, 2]);
}

#[tokio::test(start_paused = true)]
async fn large_payloads_are_not_brought_together() {
    let world = World::<2>::new();
    let _busy = world.busy().await;
    let large = |number, kib: usize| NewRow {
        payload: vec![0; kib << 10],
        ..row(number)
    };
    let headers = [("trace".to_owned(), "x".repeat(60 << 10))].into();
    let headed = NewRow {
        headers,
        ..large(3, 600)
    };
    let of = [
        large(0, 400),
        large(1, 400),
        large(2, 400),
        headed,
        large(4, 1_023),
        row(5),
    ];
    let callers = of.map(|row| world.caller(vec![row]));
    settled().await;
    world.hold(false);
    each_has_its_own(callers.into(), 0..6).await;
    assert_eq!(world.calls(), [2, 1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn many_rows_of_one_caller_share_no_call_and_wait_for_none() {
    let world = World::<2>::new();
    let _busy = world.busy().await;
    let (many, few) = (world.caller(rows(0..250)), world.caller(rows(250..499)));
    settled().await;
    assert_eq!(world.waiting(), 3);
    world.hold(false);
    has_its_own(many, 0..250).await;
    has_its_own(few, 250..499).await;
    assert_eq!(world.calls(), [250, 249]);
}

#[tokio::test(start_paused = true)]
async fn the_rows_of_a_caller_stay_together_and_in_order() {
    let world = World::<2>::new();
    let _busy = world.busy().await;
    // The second of its rows is the first once more.
    let callers: Vec<_> = (0..3)
        .map(|number| world.caller([number, number, 10 + number].map(row).into()))
        .collect();
    settled().await;
    world.hold(false);
    for (number, caller) in (0..).zip(callers) {
        let found = caller.await.unwrap().unwrap().found;
        let told: Vec<_> = found
            .into_iter()
            .map(|answer| {
                answer
                    .map(|told| (matches!(told, Scheduled::New(_)), told.task().id))
                    .unwrap()
            })
            .collect();
        assert_eq!(
            told,
            [(true, id(number)), (false, id(number)), (true, id(10 + number))]
        );
    }
    assert_eq!(world.calls(), [9]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_asked_once_for_all_and_all_are_told() {
    let world = World::<2>::with(|store| {
        store.is_away = true;
        store.spoilt = Mutex::new(Some(id(1)));
    });
    for caller in world.callers(0..3) {
        let error = caller.await.unwrap().unwrap_err();
        assert!(error.is_transient());
        assert_eq!(error.to_string(), "store held: refused");
    }
    assert!(!world.is_there(0).await);
    // They may repeat it.
    *world.store.spoilt.lock().unwrap() = None;
    each_has_its_own(world.callers(0..3), 0..3).await;
    assert_eq!(world.calls(), [3, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_written_fails_its_own_caller_alone() {
    for bad in 0..7 {
        let world = World::<2>::with(|store| store.spoilt = Mutex::new(Some(id(2 * bad))));
        let of_each = |number: u64| 2 * number..2 * number + 2;
        let callers: Vec<_> = (0..7).map(|number| world.caller(rows(of_each(number)))).collect();
        for (number, caller) in (0..7).zip(callers) {
            if number != bad {
                has_its_own(caller, of_each(number)).await;
                continue;
            }
            let error = caller.await.unwrap().unwrap_err();
            assert!(!error.is_transient() && error.to_string() == "store held: refused");
            assert!(!world.is_there(2 * bad + 1).await);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_takes_nobody_with_it() {
    let world = World::<2>::new();
    let busy = world.busy().await;
    let callers = world.callers(0..3);
    settled().await;
    // One while its call is in flight, one while it waits for one.
    busy[0].abort();
    callers[1].abort();
    settled().await;
    world.hold(false);
    settled().await;
    // Whose call was not made yet has no row.
    assert_eq!(world.calls(), [2]);
    assert!(world.is_there(0).await && !world.is_there(1).await && world.is_there(2).await);
}

#[tokio::test(start_paused = true)]
async fn the_first_of_a_call_may_go_away_while_it_is_in_flight() {
    let world = World::<2>::new();
    world.hold(true);
    let mut callers = world.callers(0..3);
    settled().await;
    assert_eq!(world.waiting(), 1);
    callers.remove(0).abort();
    settled().await;
    world.hold(false);
    each_has_its_own(callers, 1..3).await;
    assert_eq!(world.calls(), [3]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_long_does_not_hold_up_the_others() {
    let world = World::<2>::new();
    let millis = Duration::from_millis;
    let _busy = world.busy().await;
    let mut callers = world.callers(0..1);
    sleep(millis(99)).await;
    assert_eq!(world.waiting(), 2);
    sleep(millis(2)).await;
    assert_eq!(world.waiting(), 3);
    // And so on, up to a bound.
    for number in 1..40 {
        callers.extend(world.callers(number..number + 1));
        sleep(millis(101)).await;
        assert!(world.waiting() <= 16);
    }
    assert_eq!(world.waiting(), 16);
    world.hold(false);
    each_has_its_own(callers, 0..40).await;
    let calls = world.calls();
    // Whoever came when there were 16 went together.
    assert_eq!((calls.len(), calls.iter().sum::<usize>()), (15, 40));

    // What was slow does not count when it is over: two at once, as before.
    world.hold(true);
    for number in 0..3 {
        world.callers(100 + number..101 + number);
        settled().await;
    }
    assert_eq!(world.waiting(), 2);
}

#[tokio::test(start_paused = true)]
async fn only_who_needs_what_is_locked_waits_for_it() {
    let world = World::<2>::with(|store| store.locked = Some(id(7)));
    let _busy = world.busy().await;
    let few = world.callers(0..7);
    let mixed = world.caller(rows(6..9));
    settled().await;
    world.hold(false);
    each_has_its_own(few, 0..7).await;
    let found = mixed.await.unwrap().unwrap().found;
    let told: Vec<_> = found
        .into_iter()
        .map(|answer| answer.unwrap().task().id)
        .collect();
    assert_eq!(told, [6, 7, 8].map(id));
    assert_eq!(world.calls(), [9, 1]);
    assert_eq!(*world.store.waits.lock().unwrap(), [1]);
}

#[tokio::test(start_paused = true)]
async fn changes_share_calls_too() {
    let world = World::<2>::new();
    let callers: Vec<_> = (0..64)
        .map(|number| {
            let (store, merging) = (Arc::clone(&world.store), Arc::clone(&world.merging));
            let cancel = Change {
                target: Target::Id(id(number)),
                verb: Verb::Cancel,
                expect: Expect::Anything,
                note: Note::default(),
            };
            tokio::spawn(async move { merging.change(&store, vec![cancel], Duration::ZERO).await })
        })
        .collect();
    for caller in callers {
        let found = caller.await.unwrap().unwrap().found;
        assert!(matches!(found[..], [Ok(Answer::NotFound)]), "{found:?}");
    }
    assert_eq!(world.calls(), [64]);
}

#[tokio::test(start_paused = true)]
async fn calls_end_with_what_shares_them() {
    let World { store, merging } = {
        let world = World::<2>::new();
        for caller in world.busy().await {
            caller.abort();
        }
        world
    };
    settled().await;
    drop(merging);
    settled().await;
    assert_eq!(Arc::strong_count(&store), 1);
}
