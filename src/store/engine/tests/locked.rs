//! Rows that another caller keeps locked, and rows that cannot be read.

use super::*;
use crate::store::engine::retry_window::ENOUGH;

#[tokio::test(start_paused = true)]
async fn a_row_that_stays_locked_is_a_transient_error_and_holds_up_no_other() {
    let fixture = Fixture::new(LONG).await;
    fixture.others.locked.lock().unwrap().insert(id(1));
    let began = fixture.clock.instant();
    let changes = vec![change(1, Verb::Cancel), change(2, Verb::Cancel)];
    let found = fixture.engine.change(changes).await.unwrap().found;
    assert!(found[0].as_ref().unwrap_err().is_transient(), "{found:?}");
    assert!(found[1].as_ref().unwrap().is_done());
    assert!((ENOUGH..2 * ENOUGH).contains(&began.elapsed()));
    // It is asked for now and then, and not all the time.
    assert!(*fixture.others.writes.lock().unwrap() < 50);
    let replacing = NewRow {
        replace: true,
        ..row(5, "1", LONG)
    };
    let found = fixture
        .engine
        .insert(vec![replacing, row(6, "6", LONG)])
        .await
        .unwrap()
        .found;
    assert!(found[0].as_ref().unwrap_err().is_transient(), "{found:?}");
    assert!(matches!(&found[1], Ok(Scheduled::New(_))));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_freed_in_time_is_changed() {
    let fixture = Fixture::new(LONG).await;
    fixture.others.locked.lock().unwrap().insert(id(1));
    let freeing = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        fixture.others.locked.lock().unwrap().clear();
    };
    let (answers, ()) = tokio::join!(fixture.change(vec![change(1, Verb::Cancel)]), freeing);
    assert!(answers[0].is_done());
}

#[tokio::test(start_paused = true)]
async fn a_worker_waits_for_no_row_that_is_locked() {
    let fixture = Fixture::new(Duration::ZERO).await;
    let claimed = fixture.claimed(LONG).await;
    fixture.others.locked.lock().unwrap().insert(id(2));
    let began = fixture.clock.instant();
    let renewal = |task: &Task| Renewal {
        id: task.id,
        version: task.version,
        started: true,
    };
    let renewals: Vec<_> = claimed.iter().map(renewal).collect();
    let renewed = fixture.engine.renew(&renewals, LONG).await.unwrap();
    assert_eq!(renewed, [Guarded::Done, Guarded::Blocked, Guarded::Done]);
    let ends: Vec<_> = claimed
        .iter()
        .map(|task| Step::end(task.id, task.version, Ending::Done))
        .collect();
    let ended = fixture.engine.advance(&ends).await.unwrap();
    assert_eq!(ended, [Guarded::Done, Guarded::Blocked, Guarded::Done]);
    assert!(began.elapsed() < Duration::from_millis(100));
    fixture.others.locked.lock().unwrap().clear();
    assert_eq!(
        fixture.engine.advance(&ends[1..2]).await.unwrap(),
        [Guarded::Done]
    );
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_read_is_an_error_only_for_calls_that_name_it() {
    let fixture = Fixture::new(LONG).await;
    fixture.others.unreadable.lock().unwrap().insert(id(1));
    let changes = vec![change(1, Verb::Cancel), change(2, Verb::Cancel)];
    let found = fixture.engine.change(changes).await.unwrap().found;
    let error = found[0].as_ref().unwrap_err();
    assert!(
        !error.is_transient() && error.to_string().contains("spoilt"),
        "{error}"
    );
    assert!(found[1].as_ref().unwrap().is_done());
    let rows = vec![row(7, "1", LONG), row(1, "8", LONG), row(9, "9", LONG)];
    let found = fixture.engine.insert(rows).await.unwrap().found;
    assert!(
        matches!(&found[..], [Err(_), Err(_), Ok(Scheduled::New(_))]),
        "{found:?}"
    );
    let hops = [1, 3].map(|number| Step::hop(id(number), 1, LONG));
    let came = fixture.engine.advance(&hops).await.unwrap();
    assert_eq!(came, [Guarded::Blocked, Guarded::Done]);
    assert!(fixture.engine.find(&id(1).into()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_was_claimed_is_given_though_a_try_for_more_fails() {
    let fixture = Fixture::new(Duration::ZERO).await;
    fixture.others.unreadable.lock().unwrap().insert(id(1));
    // A claim is one reading, and another one is to find what is behind the row that cannot be read.
    *fixture.others.reads_left.lock().unwrap() = Some(1);
    let claimed = fixture.claimed(LONG).await;
    assert_eq!(
        claimed.iter().map(|row| row.id).collect::<Vec<_>>(),
        [id(2), id(3)]
    );
    // With nothing claimed it is an error.
    fixture.engine.ready(&claim(LONG)).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn what_was_claimed_is_given_though_nothing_is_known_of_other_wake_ups() {
    let fixture = Fixture::new(Duration::ZERO).await;
    let wakes = [(1, 1), (2, 1), (3, 9)].map(|(number, version)| Wake {
        id: id(number),
        kind: "k".into(),
        version,
    });
    *fixture.others.reads_left.lock().unwrap() = Some(1);
    let looked = fixture.engine.arrive(&wakes, &claim(LONG)).await.unwrap().found;
    assert_eq!(
        looked.claimed.iter().map(|row| row.id).collect::<Vec<_>>(),
        [id(1), id(2)]
    );
    assert_eq!(looked.stale, 0);
    fixture
        .engine
        .arrive(&wakes[2..], &claim(LONG))
        .await
        .unwrap_err();
}
