//! Values and batches as the file has them.

use std::time::Duration;

use super::{Fixture, LEASE, change, claim, due_rows, each, id, new_row, run, wakes};
use crate::clock::Clock;
use crate::store::sqlite::SqliteStore;
use crate::store::{Ending, Guarded, NewRow, Step, Store, Verb};
use crate::{Answer, Scheduled, Task};

#[tokio::test]
async fn texts_and_bytes_come_back_as_they_were() {
    let fixture = Fixture::new().await;
    let odd = "quote \" ' \\ nul \0 tab \t \u{1F600} \u{2028} []{}";
    let mut row = new_row(1, Duration::ZERO);
    row.key = Some("k\"'{é".into());
    row.headers = [(odd.to_owned(), odd.to_owned())].into();
    row.payload = (0..=255).collect();
    row.max_attempts = Some(u32::MAX);
    let inserted = fixture.insert(vec![row.clone()]).await;
    assert_eq!(inserted[0].task(), &fixture.find(id(1)).await);

    let claimed = fixture.store.ready(&claim(1)).await.unwrap().found;
    assert_eq!(claimed[0], fixture.find(id(1)).await);
    assert_eq!(claimed[0].payload, row.payload);
    let ending = Ending::Dead {
        error: odd.to_owned(),
        give_back: false,
    };
    let settlement = Step::end(id(1), 2, ending);
    assert_eq!(
        fixture.store.advance(&[settlement]).await.unwrap(),
        [Guarded::Done]
    );
    let dead = fixture.find(id(1)).await;
    assert_eq!(dead.last_error.as_deref(), Some(odd));

    let redrive = Verb::Redrive { overdue_after: LEASE };
    let target = ("k", "k\"'{é");
    let answers = fixture.change(vec![change(target, redrive)]).await;
    assert_eq!(answers, [Answer::Done(fixture.find(id(1)).await)]);
}

#[tokio::test]
async fn a_batch_with_old_and_new_rows_is_decided_row_by_row() {
    let fixture = Fixture::new().await;
    let named = |number, key: &str, payload: u8, replace| NewRow {
        key: Some(key.into()),
        payload: vec![payload],
        replace,
        ..new_row(number, LEASE)
    };
    let first = vec![named(1, "a", 1, false), new_row(2, LEASE)];
    fixture.store.insert(first).await.unwrap();
    let batch = vec![
        new_row(2, LEASE),
        named(3, "a", 3, true),
        named(4, "a", 4, false),
        named(5, "b", 5, false),
        named(6, "b", 6, true),
        new_row(7, LEASE),
        new_row(7, LEASE),
    ];
    let found = fixture.insert(batch).await;
    let seen: Vec<_> = found
        .iter()
        .map(|answer| {
            let task = answer.task();
            let name = match answer {
                Scheduled::New(_) => "new",
                Scheduled::Existing(_) => "existing",
                Scheduled::Replaced(_) => "replaced",
                Scheduled::Running(_) => "running",
            };
            (name, task.id, task.version, task.payload[0])
        })
        .collect();
    let expected = [
        ("existing", id(2), 1, 0),
        ("replaced", id(1), 2, 3),
        ("existing", id(1), 2, 3),
        ("new", id(5), 1, 5),
        ("replaced", id(5), 2, 6),
        ("new", id(7), 1, 0),
        ("existing", id(7), 1, 0),
    ];
    assert_eq!(seen, expected);
    for number in [1, 5] {
        let last = found.iter().rev().find(|answer| answer.task().id == id(number));
        assert_eq!(last.unwrap().task(), &fixture.find(id(number)).await);
    }
}

#[tokio::test]
async fn a_row_that_makes_no_sense_is_an_error() {
    let fixture = Fixture::new().await;
    fixture.store.insert(due_rows([1])).await.unwrap();
    let mut other = fixture.foreign().await;
    for (spoil, restore) in [
        (
            "UPDATE delayline_tasks SET state = 9",
            "UPDATE delayline_tasks SET state = 0",
        ),
        (
            "UPDATE delayline_tasks SET hop = -1",
            "UPDATE delayline_tasks SET hop = 0",
        ),
        (
            "UPDATE delayline_tasks SET headers = 'x'",
            "UPDATE delayline_tasks SET headers = '{}'",
        ),
        (
            "UPDATE delayline_tasks SET version = -1",
            "UPDATE delayline_tasks SET version = 1",
        ),
    ] {
        run(&mut other, spoil).await;
        let error = fixture.store.find(&id(1).into()).await.unwrap_err();
        assert!(!error.is_transient(), "{error}");
        run(&mut other, restore).await;
        fixture.find(id(1)).await;
    }
}

#[tokio::test]
async fn one_row_may_hop_twice_in_a_batch() {
    let fixture = Fixture::new().await;
    fixture.store.insert(vec![new_row(1, LEASE)]).await.unwrap();
    let hop = |version| Step::hop(id(1), version, LEASE);
    let recorded = fixture
        .store
        .advance(&[hop(1), hop(1), hop(2), hop(9)])
        .await
        .unwrap();
    use Guarded::{Done, Lost};
    assert_eq!(recorded, [Done, Lost, Done, Lost]);
    let row = fixture.find(id(1)).await;
    assert_eq!((row.version, row.hop), (3, 2));
}

#[tokio::test]
async fn times_are_those_of_the_clock_that_the_store_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let path = folder.path().join("tasks.db");
    let store = SqliteStore::builder(path)
        .clock(clock.clone())
        .keep_history(Duration::ZERO);
    let store = store.open().await.unwrap();
    let before = clock.now();
    let inserted = store.insert(due_rows([1])).await.unwrap();
    assert!((before..=clock.now()).contains(&inserted.now));
    let cancelled = store.change(vec![change(id(1), Verb::Cancel)]).await.unwrap();
    let now = cancelled.now;
    assert_eq!(each(cancelled.found)[0].task().unwrap().wake_at, Some(now));
    assert_eq!(store.purge(10).await.unwrap(), 1);
}

#[tokio::test]
async fn a_purge_keeps_to_its_limit_over_both_kinds_of_history() {
    let fixture = Fixture::new().await;
    let store = fixture.without_history().await;
    store.insert(due_rows(0..6)).await.unwrap();
    let claimed = store.arrive(&wakes(0..3), &claim(3)).await.unwrap().found.claimed;
    let done = |task: Task| Step::end(task.id, task.version, Ending::Done);
    store
        .advance(&claimed.into_iter().map(done).collect::<Vec<_>>())
        .await
        .unwrap();
    let cancel = |number| change(id(number), Verb::Cancel);
    store.change((3..6).map(cancel).collect()).await.unwrap();
    let purged = [store.purge(4).await.unwrap(), store.purge(4).await.unwrap()];
    assert_eq!(purged, [4, 2]);
}

#[tokio::test]
async fn what_others_have_added_meanwhile_is_not_taken_for_new() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows(0..3)).await;
    let other = fixture.without_history().await;
    let theirs = other.insert(due_rows(100..103)).await.unwrap().found;
    assert!(
        each(theirs)
            .iter()
            .all(|answer| matches!(answer, Scheduled::New(_)))
    );
    // None is new, then some are, in more statements than one.
    let is_new = |answers: Vec<Scheduled>| -> Vec<bool> {
        answers
            .iter()
            .map(|answer| matches!(answer, Scheduled::New(_)))
            .collect()
    };
    assert_eq!(is_new(fixture.insert(due_rows(100..103)).await), [false; 3]);
    let numbers: Vec<usize> = (101..300).chain(0..1).chain([300, 300]).collect();
    let mut expected: Vec<bool> = numbers.iter().map(|number| *number > 102).collect();
    // Of twins the first.
    *expected.last_mut().unwrap() = false;
    assert_eq!(is_new(fixture.insert(due_rows(numbers)).await), expected);
}

#[tokio::test]
async fn a_batch_of_any_size_is_written_and_changed() {
    let fixture = Fixture::new().await;
    let mut first = 0;
    for size in (1..=20).chain([31, 48, 49, 64, 65, 127, 128, 129, 300]) {
        let numbers = first..first + size;
        first += size;
        let added = fixture.insert(due_rows(numbers.clone())).await;
        assert!(
            added.iter().all(|answer| matches!(answer, Scheduled::New(_))),
            "{size}"
        );
        let cancels = numbers.map(|number| change(id(number), Verb::Cancel));
        let answers = fixture.change(cancels.collect()).await;
        assert!(answers.iter().all(Answer::is_done), "{size}");
    }
}
