use tokio::time::timeout;

use super::*;
use crate::backend::{Departure, Wake};
use crate::{Kind, TaskId, Timestamp};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

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

/// The rows of a sweep: of each its number, and how long after [`NOW`] it is due, in ms.
fn rows(rows: impl IntoIterator<Item = (u64, i64)>) -> Vec<Pending> {
    let row = |(number, due)| Pending {
        wake: wake(number),
        key: None,
        due_at: NOW.shifted(due),
        planned_at: NOW.shifted(due),
    };
    rows.into_iter().map(row).collect()
}

/// A clock sample: it was [`NOW`] in the store so long ago.
fn ago(ago: Duration) -> Timed<()> {
    Timed {
        now: NOW,
        at: Instant::now() - ago,
        found: (),
    }
}

fn look(backend: &LookAhead, found: impl IntoIterator<Item = (u64, i64)>) -> Duration {
    backend.take(Instant::now(), &ago(ms(0)), &rows(found))
}

async fn receive(backend: &LookAhead) -> Vec<Wake> {
    let arrivals = backend.wheel.receive(usize::MAX).await.unwrap();
    arrivals.into_iter().map(|arrival| arrival.wake).collect()
}

fn held(backend: &LookAhead) -> usize {
    backend.wheel.held().change(|wheel, _| wheel.len()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_was_found_arrives_in_its_millisecond_and_what_is_past_at_once() {
    let backend = LookAhead::new(Clock::system());
    let start = Instant::now();
    let dues = [-40, 0, 1, 999, 1_000, 1_999];
    look(&backend, (0..).zip(dues));
    for (numbers, due) in [(0..2, 0), (2..3, 1), (3..4, 999), (4..5, 1_000), (5..6, 1_999)] {
        assert_eq!(receive(&backend).await, numbers.map(wake).collect::<Vec<_>>());
        assert_eq!(start.elapsed(), ms(due));
    }
}

#[tokio::test(start_paused = true)]
async fn due_times_count_from_when_the_store_read_its_clock() {
    let backend = LookAhead::new(Clock::system());
    tokio::time::advance(ms(60)).await;
    let start = Instant::now();
    backend.take(start - ms(60), &ago(ms(60)), &rows([(1, 100), (2, 50)]));
    assert_eq!(receive(&backend).await, [wake(2)]);
    assert_eq!(start.elapsed(), ms(0));
    assert_eq!(receive(&backend).await, [wake(1)]);
    assert_eq!(start.elapsed(), ms(40));
}

#[tokio::test(start_paused = true)]
async fn a_short_delay_is_held_and_a_long_one_is_left_to_the_next_look() {
    let backend = LookAhead::new(Clock::system());
    let start = Instant::now();
    let batch = [
        departure(1, ms(2_001)),
        departure(2, ms(2_000)),
        departure(3, Duration::MAX),
    ];
    backend.wheel.send(&batch).await.unwrap();
    assert_eq!(held(&backend), 1);
    assert_eq!(receive(&backend).await, [wake(2)]);
    assert_eq!(start.elapsed(), ms(2_000));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_sent_and_found_several_times_arrives_once_and_not_before_its_time() {
    let backend = LookAhead::new(Clock::system());
    let start = Instant::now();
    backend.wheel.send(&[departure(1, ms(1_500))]).await.unwrap();
    look(&backend, [(1, 1_490)]);
    look(&backend, [(1, 1_480)]);
    assert_eq!(receive(&backend).await, [wake(1)]);
    assert_eq!(start.elapsed(), ms(1_500));
    assert!(timeout(ms(5_000), receive(&backend)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_look_that_was_cut_off_is_followed_when_its_last_row_is_due_and_not_in_a_loop() {
    let backend = LookAhead::new(Clock::system());
    let count = LIMIT as u64;
    let full = |due| (0..count).map(move |number| (number, due));
    assert_eq!(look(&backend, (1..count).map(|number| (number, 300))), LOOK_EVERY);
    assert_eq!(look(&backend, full(300)), ms(300));
    assert_eq!(look(&backend, full(1_900)), LOOK_EVERY);
    assert_eq!(look(&backend, full(0)), LOOK_ON);
    // The time of the read is part of the pause.
    let asked = Instant::now();
    tokio::time::advance(ms(700)).await;
    assert_eq!(backend.take(asked, &ago(ms(0)), &[]), LOOK_EVERY - ms(700));
}

#[tokio::test(start_paused = true)]
async fn wake_ups_that_are_not_received_are_held_up_to_a_limit() {
    let backend = LookAhead::new(Clock::system());
    let batch: Vec<_> = (0..CAPACITY as u64 + 10)
        .map(|number| departure(number, ms(number % 2_000)))
        .collect();
    backend.wheel.send(&batch).await.unwrap();
    look(&backend, [(u64::MAX, 10)]);
    assert_eq!(held(&backend), CAPACITY);
}

#[tokio::test(start_paused = true)]
async fn a_closed_one_holds_nothing_and_says_so() {
    let backend = LookAhead::new(Clock::system());
    backend.wheel.send(&[departure(1, ms(10))]).await.unwrap();
    backend.wheel.close().await.unwrap();
    backend.wheel.send(&[departure(1, ms(10))]).await.unwrap_err();
    backend.wheel.receive(1).await.unwrap_err();
    backend.wheel.health().await.unwrap_err();
    assert_eq!(look(&backend, [(1, 10)]), LOOK_EVERY);
}
