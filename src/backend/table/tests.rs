use std::collections::{BTreeMap, VecDeque};

use tokio::time::{Instant, timeout};

use super::*;
use crate::store::{
    Change, Claim, Guarded, Hop, Looked, MemoryStore, NewRow, Page, Pending, Renewal, Settlement, Sweep,
};
use crate::{Answer, Kind, Scheduled, State, Target, Task, TaskId, Timestamp, When};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn wake(number: u64) -> Wake {
    Wake {
        id: TaskId::from(uuid::Uuid::from_u64_pair(0, number)),
        kind: Kind::from("k"),
        version: 1,
    }
}

fn departure(number: u64, delay: Duration) -> Departure {
    Departure {
        wake: wake(number),
        delay,
    }
}

fn row(number: u64, delay: Duration) -> NewRow {
    NewRow {
        id: wake(number).id,
        kind: wake(number).kind,
        key: None,
        payload: Vec::new(),
        headers: BTreeMap::new(),
        due: When::After(delay),
        look_in: delay + defaults::PRECISE_LATENESS,
        max_attempts: None,
        replace: false,
    }
}

/// A table with these rows, to which nothing was sent.
async fn table(rows: Vec<NewRow>) -> TableBackend {
    let clock = Clock::simulated(1);
    let store = MemoryStore::with_clock(clock.clone());
    store.insert(rows).await.unwrap();
    TableBackend::new(Arc::new(store), clock)
}

async fn receive(backend: &TableBackend) -> Vec<Wake> {
    let arrivals = backend.receive(usize::MAX).await.unwrap();
    arrivals.into_iter().map(|arrival| arrival.wake).collect()
}

/// When each of `count` rows arrives. One that nobody claims may come with the next look once more.
async fn first_arrivals(backend: &TableBackend, count: usize) -> BTreeMap<u64, Duration> {
    let start = Instant::now();
    let mut arrived = BTreeMap::new();
    while arrived.len() < count {
        for wake in receive(backend).await {
            let (_, number) = uuid::Uuid::from_bytes(*wake.id.as_bytes()).as_u64_pair();
            arrived.entry(number).or_insert(start.elapsed());
        }
    }
    arrived
}

fn held(backend: &TableBackend) -> usize {
    backend.ahead.held.change(|wheel, _| wheel.len()).unwrap()
}

/// A store that can only be looked ahead in, which takes the time that a test says, and finds what it says.
#[derive(Debug, Default)]
struct Looks {
    script: Mutex<VecDeque<Look>>,
    /// When it was asked.
    asked: Mutex<Vec<Instant>>,
}

#[derive(Debug)]
struct Look {
    /// How long it takes to read the clock.
    before: Duration,
    /// How long it takes after that.
    after: Duration,
    /// Which rows it finds, due in how long; none: it fails.
    found: Option<Vec<(u64, Duration)>>,
}

impl Looks {
    fn new(script: impl IntoIterator<Item = Look>) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(script.into_iter().collect()),
            asked: Mutex::default(),
        })
    }

    fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

fn finds(found: impl IntoIterator<Item = (u64, Duration)>) -> Look {
    Look {
        before: ms(0),
        after: ms(0),
        found: Some(found.into_iter().collect()),
    }
}

fn fails() -> Look {
    Look {
        found: None,
        ..finds([])
    }
}

#[async_trait]
impl Store for Looks {
    fn name(&self) -> &'static str {
        "looks"
    }

    async fn upcoming(&self, Ahead { within, limit }: Ahead) -> Result<Stamped<Vec<Pending>>, Error> {
        self.asked.lock().unwrap().push(Instant::now());
        let look = self.script.lock().unwrap().pop_front().unwrap_or(finds([]));
        tokio::time::sleep(look.before).await;
        let now = Timestamp::from_millis(1_000_000);
        tokio::time::sleep(look.after).await;
        let found = look.found.ok_or_else(|| Error::Store {
            store: "looks",
            transient: true,
            source: "it was asked to fail".into(),
        })?;
        assert!(found.len() <= limit && found.iter().all(|&(_, delay)| delay <= within));
        let pending = |(number, delay)| Pending {
            wake: wake(number),
            key: None,
            due_at: now.after(delay),
            planned_at: now.after(delay),
        };
        Ok(Stamped {
            now,
            found: found.into_iter().map(pending).collect(),
        })
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        unreachable!("the table only looks ahead")
    }
    async fn insert(&self, _: Vec<NewRow>) -> Result<Stamped<Vec<Result<Scheduled, Error>>>, Error> {
        unreachable!("the table only looks ahead")
    }
    async fn change(&self, _: Vec<Change>) -> Result<Stamped<Vec<Result<Answer, Error>>>, Error> {
        unreachable!("the table only looks ahead")
    }
    async fn arrive(&self, _: &[Wake], _: &Claim) -> Result<Stamped<Looked>, Error> {
        unreachable!("the table only looks ahead")
    }
    async fn hop(&self, _: &[Hop]) -> Result<Vec<Guarded>, Error> {
        unreachable!("the table only looks ahead")
    }
    async fn ready(&self, _: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
        unreachable!("the table only looks ahead")
    }
    async fn sweep(&self, _: &Claim, _: &Sweep) -> Result<Stamped<Looked>, Error> {
        unreachable!("the table only looks ahead")
    }
    async fn settle(&self, _: Vec<Settlement>) -> Result<Vec<Guarded>, Error> {
        unreachable!("the table only looks ahead")
    }
    async fn renew(&self, _: &[Renewal], _: Duration) -> Result<Vec<Guarded>, Error> {
        unreachable!("the table only looks ahead")
    }
    async fn find(&self, _: &Target) -> Result<Option<Task>, Error> {
        unreachable!("the table only looks ahead")
    }
    async fn list(&self, _: &Page) -> Result<Vec<Task>, Error> {
        unreachable!("the table only looks ahead")
    }
    async fn kinds(&self, _: State, _: Option<&Kind>, _: usize) -> Result<Vec<Kind>, Error> {
        unreachable!("the table only looks ahead")
    }
    async fn purge(&self, _: usize) -> Result<u64, Error> {
        unreachable!("the table only looks ahead")
    }
}

fn looking(script: impl IntoIterator<Item = Look>) -> (Arc<Looks>, TableBackend) {
    let store = Looks::new(script);
    let backend = TableBackend::new(store.clone(), Clock::system());
    (store, backend)
}

#[tokio::test(start_paused = true)]
async fn rows_arrive_in_their_millisecond_though_nothing_was_sent() {
    let delays = [0, 1, 999, 1_000, 1_001, 1_999, 2_000, 2_001, 3_000, 86_400_000];
    let rows = (0..).zip(delays).map(|(number, delay)| row(number, ms(delay)));
    let backend = table(rows.collect()).await;
    let arrived = first_arrivals(&backend, delays.len()).await;
    assert_eq!(arrived, (0..).zip(delays.map(ms)).collect());
}

#[tokio::test(start_paused = true)]
async fn a_short_delay_is_held_and_a_long_one_is_left_to_the_table() {
    let backend = table(vec![row(1, ms(10_000))]).await;
    let start = Instant::now();
    let batch = [
        departure(1, ms(10_000)),
        departure(2, ms(500)),
        departure(3, Duration::MAX),
    ];
    backend.send(&batch).await.unwrap();
    assert_eq!(held(&backend), 1);
    for (number, delay) in [(2, 500), (1, 10_000)] {
        assert_eq!(receive(&backend).await, [wake(number)]);
        assert_eq!(start.elapsed(), ms(delay));
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_sent_and_found_in_several_looks_arrives_once_and_not_before_its_time() {
    let (store, backend) = looking([finds([(1, ms(1_500))]), finds([(1, ms(490))]), finds([])]);
    backend.send(&[departure(1, ms(1_500))]).await.unwrap();
    let start = Instant::now();
    assert_eq!(receive(&backend).await, [wake(1)]);
    assert_eq!(start.elapsed(), ms(1_500));
    assert!(timeout(ms(5_000), receive(&backend)).await.is_err());
    assert!(store.count() > 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_looked_at_before_the_first_receive_nor_after_close() {
    let (store, backend) = looking([]);
    backend.send(&[departure(1, ms(10))]).await.unwrap();
    tokio::time::sleep(ms(10_000)).await;
    assert_eq!(store.count(), 0);
    receive(&backend).await;
    assert!(timeout(ms(10_000), receive(&backend)).await.is_err());
    let looks = store.count();
    assert!(looks >= 5, "{looks}");
    backend.close().await.unwrap();
    backend.receive(1).await.unwrap_err();
    tokio::time::sleep(ms(10_000)).await;
    assert_eq!(store.count(), looks);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_looked_at_once_it_is_dropped() {
    let (store, backend) = looking([]);
    assert!(timeout(ms(1), receive(&backend)).await.is_err());
    drop(backend);
    tokio::time::sleep(ms(10_000)).await;
    assert_eq!((store.count(), Arc::strong_count(&store)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_asked_again_soon_but_not_in_a_loop_and_nobody_is_told() {
    let failures = (0..8).map(|_| fails());
    let (store, backend) = looking(failures.chain([finds([(1, ms(100))])]));
    let start = Instant::now();
    backend.send(&[departure(2, ms(300))]).await.unwrap();
    assert_eq!(receive(&backend).await, [wake(2)]);
    assert_eq!(receive(&backend).await, [wake(1)]);
    assert_eq!(start.elapsed(), 8 * LOOK_AGAIN + ms(100));
    assert_eq!(store.count(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_look_that_takes_long_does_not_hold_up_what_is_due() {
    let slow = Look {
        before: ms(60_000),
        ..finds([(1, ms(0))])
    };
    let (store, backend) = looking([slow]);
    let start = Instant::now();
    for number in 2..6 {
        backend.send(&[departure(number, ms(700))]).await.unwrap();
        assert_eq!(receive(&backend).await, [wake(number)]);
    }
    assert_eq!(start.elapsed(), ms(2_800));
    // Dropped calls do not end the look, and two receivers do not make two of it.
    assert!(timeout(ms(1), receive(&backend)).await.is_err());
    assert!(
        timeout(ms(1), async {
            tokio::join!(receive(&backend), receive(&backend))
        })
        .await
        .is_err()
    );
    assert_eq!(store.count(), 1);
    assert_eq!(receive(&backend).await, [wake(1)]);
}

#[tokio::test(start_paused = true)]
async fn the_way_to_the_store_and_back_makes_a_wake_up_a_little_late_and_not_early() {
    for (before, after, arrives) in [
        (0, 0, 100),
        (3, 1, 104),
        (4, 500, 105),
        (0, 90, 105),
        (0, 500, 500),
    ] {
        let look = Look {
            before: ms(before),
            after: ms(after),
            ..finds([(1, ms(100))])
        };
        let (_, backend) = looking([look]);
        let start = Instant::now();
        assert_eq!(receive(&backend).await, [wake(1)]);
        let expected = arrives.max(before + after);
        assert_eq!(
            start.elapsed(),
            ms(expected),
            "{before} ms before, {after} ms after"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn more_rows_than_one_look_reads_arrive_in_their_time() {
    let count = 3 * LOOK_LIMIT as u64;
    // All within one look's time: 12 a ms.
    let rows = (0..count)
        .map(|number| row(number, ms(100 + number / 12)))
        .collect();
    let backend = table(rows).await;
    for (number, arrived) in first_arrivals(&backend, count as usize).await {
        let late = arrived.checked_sub(ms(100 + number / 12)).unwrap();
        assert!(late <= LOOK_ON, "{late:?} late");
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_was_cut_off_is_followed_by_another_when_its_last_row_is_due_and_not_in_a_loop() {
    let full = |delay| finds((0..LOOK_LIMIT as u64).map(move |number| (number, ms(delay))));
    let (store, backend) = looking([full(300), full(0), full(0)]);
    let all = async {
        loop {
            receive(&backend).await;
        }
    };
    assert!(timeout(ms(600), all).await.is_err());
    let asked = store.asked.lock().unwrap();
    let after: Vec<_> = asked.iter().map(|at| *at - asked[0]).collect();
    assert_eq!(after, [ms(0), ms(300), ms(300) + LOOK_ON, ms(300) + 2 * LOOK_ON]);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_receives_is_held_up_to_a_limit() {
    let backend = table(Vec::new()).await;
    let batch: Vec<_> = (0..CAPACITY as u64 + 10)
        .map(|number| departure(number, ms(number % 2_000)))
        .collect();
    backend.send(&batch).await.unwrap();
    assert_eq!(held(&backend), CAPACITY);
}
