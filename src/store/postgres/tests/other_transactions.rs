//! What another transaction has locked, or has made corrupt, holds up nothing that has nothing to do with it.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{Fixture, LEASE, change, claim, done, held, id, in_time, lock, new_row, run};
use crate::store::sql::tests::each::Each;
use crate::store::{Guarded, NewRow, Page, Step, Store, Transaction, Verb};
use crate::{Answer, Error, NewTask, Scheduled, Scheduler, State};

fn named(number: usize, key: &str) -> NewRow {
    NewRow {
        key: Some(key.into()),
        ..new_row(number, LEASE)
    }
}

fn rows(numbers: std::ops::RangeInclusive<usize>) -> Vec<NewRow> {
    numbers.map(|number| new_row(number, LEASE)).collect()
}

#[tokio::test]
async fn a_locked_row_has_an_error_of_its_own_and_the_others_are_changed() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.insert_all(rows(1..=40)).await.unwrap();
    let mut other = fixture.foreign().await;
    lock(&mut other, &[7]).await;
    let cancel = |number| change(id(number), Verb::Cancel);
    let changes = (1..=40).map(cancel).collect();
    for (number, answer) in (1..).zip(in_time(store.change(changes)).await.unwrap().found) {
        match answer {
            Err(error) => {
                assert_eq!(number, 7, "{error}");
                assert!(
                    error.is_transient() && error.to_string().contains("locked"),
                    "{error}"
                );
            }
            Ok(answer) => assert!(answer.is_done() && number != 7, "{answer:?}"),
        }
    }
    run(&mut other, "COMMIT").await;
    assert!(store.change_all(vec![cancel(7)]).await.unwrap().found[0].is_done());
}

#[tokio::test]
async fn a_key_that_is_being_written_has_an_error_of_its_own_and_the_others_are_written() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut other = fixture.foreign().await;
    run(&mut other, "BEGIN").await;
    store
        .join(&mut other)
        .insert(vec![named(100, "7")])
        .await
        .unwrap();
    let row = |number: usize| named(number, &number.to_string());
    let found = in_time(store.insert((1..=40).map(row).collect()))
        .await
        .unwrap()
        .found;
    for (number, answer) in (1..).zip(found) {
        match answer {
            Err(error) => assert!(number == 7 && error.is_transient(), "{number}: {error}"),
            Ok(answer) => assert!(matches!(answer, Scheduled::New(_)) && number != 7, "{answer:?}"),
        }
    }
    run(&mut other, "COMMIT").await;
    let found = store.insert_all(vec![row(7)]).await.unwrap().found;
    assert!(
        matches!(&found[0], Scheduled::Existing(task) if task.id == id(100)),
        "{found:?}"
    );
}

/// Callers who come at once share calls of the store, and one of them wants what another transaction keeps.
#[tokio::test]
async fn callers_are_answered_who_want_nothing_of_what_is_locked() {
    let fixture = Fixture::new().await;
    let mut other = fixture.foreign().await;
    run(&mut other, "BEGIN").await;
    fixture
        .store
        .join(&mut other)
        .insert(vec![named(100, "7")])
        .await
        .unwrap();
    let scheduler = Scheduler::new(fixture.store.clone());
    let mut callers = JoinSet::new();
    for number in 0..40_usize {
        let scheduler = scheduler.clone();
        let task = NewTask::new("k", &number).key(number.to_string()).after(LEASE);
        callers.spawn(async move { (number, scheduler.schedule(task).await) });
    }
    let start = Instant::now();
    for _ in 0..39 {
        let (number, scheduled) = in_time(callers.join_next()).await.unwrap().unwrap();
        assert!(
            number != 7 && matches!(scheduled, Ok(Scheduled::New(_))),
            "{number}: {scheduled:?}"
        );
    }
    run(&mut other, "COMMIT").await;
    let (number, scheduled) = in_time(callers.join_next()).await.unwrap().unwrap();
    // It waits for three seconds, so the others were answered before: unless this machine stood still meanwhile.
    let stood_still = start.elapsed() >= Duration::from_secs(3);
    assert!(
        number == 7 && (stood_still || matches!(scheduled, Ok(Scheduled::Existing(_)))),
        "{number}: {scheduled:?}"
    );
}

#[tokio::test]
async fn who_only_finds_a_locked_row_does_not_wait_for_it() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.insert_all(vec![named(1, "a")]).await.unwrap();
    let mut other = fixture.foreign().await;
    lock(&mut other, &[1]).await;
    let found = in_time(store.insert_all(vec![named(2, "a"), new_row(1, LEASE), new_row(3, LEASE)]));
    let found = found.await.unwrap().found;
    assert!(
        matches!(
            found.as_slice(),
            [Scheduled::Existing(_), Scheduled::Existing(_), Scheduled::New(_)]
        ),
        "{found:?}"
    );
}

#[tokio::test]
async fn those_who_wait_for_a_row_keep_no_connection_from_others() {
    let fixture = Fixture::new().await;
    let store = fixture.builder().connections(1).connect().await.unwrap();
    store.insert_all(rows(1..=2)).await.unwrap();
    store
        .insert_all(vec![new_row(3, Duration::ZERO), new_row(4, Duration::ZERO)])
        .await
        .unwrap();
    assert_eq!(store.ready(&claim(2)).await.unwrap().found.len(), 2);
    let mut other = fixture.foreign().await;
    lock(&mut other, &[1]).await;
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.change(vec![change(id(1), Verb::Cancel)]).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    in_time(async {
        assert_eq!(
            store.renew(&[held(id(3), 2)], LEASE).await.unwrap(),
            [Guarded::Done]
        );
        assert_eq!(store.advance(&[done(4, 2)]).await.unwrap(), [Guarded::Done]);
        store.insert_all(rows(5..=5)).await.unwrap();
        let cancel = vec![change(id(2), Verb::Cancel)];
        assert!(store.change_all(cancel).await.unwrap().found[0].is_done());
    })
    .await;
    assert!(waiting.iter().any(|waiting| !waiting.is_finished()));
    // A wait ends with its caller.
    waiting.iter().for_each(|waiting| waiting.abort());
    in_time(fixture.nobody_waits()).await;
    run(&mut other, "COMMIT").await;
    let cancel = vec![change(id(1), Verb::Cancel)];
    assert!(in_time(store.change_all(cancel)).await.unwrap().found[0].is_done());
}

#[tokio::test]
async fn a_locked_row_blocks_its_own_end_and_hop_alone() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store
        .insert_all((1..=3).map(|number| new_row(number, Duration::ZERO)).collect())
        .await
        .unwrap();
    store.ready(&claim(9)).await.unwrap();
    store.insert_all(rows(4..=5)).await.unwrap();
    let mut other = fixture.foreign().await;
    lock(&mut other, &[1, 3, 4]).await;
    use Guarded::{Blocked, Done, Lost};
    let ends = [done(1, 2), done(2, 2), done(3, 1)];
    let settled = store.advance(&ends);
    assert_eq!(in_time(settled).await.unwrap(), [Blocked, Done, Lost]);
    let hop = |number| Step::hop(id(number), 1, LEASE);
    let hops = [hop(4), hop(5), hop(1)];
    assert_eq!(
        in_time(store.advance(&hops)).await.unwrap(),
        [Blocked, Done, Lost]
    );
    run(&mut other, "ROLLBACK").await;
    assert_eq!(store.advance(&[done(1, 2)]).await.unwrap(), [Done]);
    assert_eq!(store.advance(&hops[..1]).await.unwrap(), [Done]);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_answers_for_itself_alone() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store
        .insert_all(vec![named(1, "a"), new_row(2, LEASE), new_row(3, LEASE)])
        .await
        .unwrap();
    let mut other = fixture.foreign().await;
    run(
        &mut other,
        "UPDATE delayline_tasks SET headers = 'x' WHERE key IS NOT NULL",
    )
    .await;
    let changes = vec![
        change(id(1), Verb::Cancel),
        change(id(2), Verb::Cancel),
        change(("k", "a"), Verb::Cancel),
        change(id(9), Verb::Cancel),
    ];
    let found = store.change(changes).await.unwrap().found;
    let [Err(one), Ok(Answer::Done(_)), Err(other), Ok(Answer::NotFound)] = found.as_slice() else {
        panic!("{found:?}");
    };
    for error in [one, other] {
        assert!(
            !error.is_transient() && error.to_string().contains("headers"),
            "{error}"
        );
    }
    let found = store
        .insert(vec![named(4, "a"), new_row(5, LEASE)])
        .await
        .unwrap()
        .found;
    assert!(
        matches!(found.as_slice(), [Err(error), Ok(Scheduled::New(_))] if !error.is_transient()),
        "{found:?}"
    );
    let page = Page::new("k", State::Scheduled).limit(1);
    assert_eq!(store.list(&page).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_name_that_cannot_be_kept_is_refused_and_found_nowhere() {
    let fixture = Fixture::new().await;
    let found = fixture
        .store
        .insert(vec![named(1, "a\0b"), named(2, "b")])
        .await
        .unwrap()
        .found;
    assert!(
        matches!(
            found.as_slice(),
            [Err(Error::Invalid { field: "key", .. }), Ok(Scheduled::New(_))]
        ),
        "{found:?}"
    );
    let cancel = vec![
        change(("k", "a\0b"), Verb::Cancel),
        change(("k", "b"), Verb::Cancel),
    ];
    let answers = fixture.store.change_all(cancel).await.unwrap().found;
    assert!(
        matches!(answers.as_slice(), [Answer::NotFound, Answer::Done(_)]),
        "{answers:?}"
    );
    assert_eq!(fixture.store.find(&("k", "a\0b").into()).await.unwrap(), None);
}
