//! Rows that another caller writes between the reading and the writing.

use super::*;
use crate::store::engine::retry_window::ENOUGH;
use crate::store::merging::{AnswerBatch, AtOnce};

#[tokio::test(start_paused = true)]
async fn a_row_that_another_caller_wrote_first_is_read_again_and_decided_anew() {
    let fixture = Fixture::new(LONG).await;
    fixture.meanwhile(vec![later(1)]);
    let answers = fixture
        .change(vec![change(1, Verb::Cancel), change(2, Verb::Cancel)])
        .await;
    let versions: Vec<_> = answers
        .iter()
        .map(|answer| answer.task().unwrap().version)
        .collect();
    assert!(answers.iter().all(Answer::is_done), "{answers:?}");
    assert_eq!((versions, fixture.get(1).await.version), (vec![3, 2], 3));

    // A caller that says what it has to be like is told that it is not.
    fixture.meanwhile(vec![later(3)]);
    let expect = Expect::Version(1);
    let cancel = Change {
        expect,
        ..change(3, Verb::Cancel)
    };
    let answers = fixture.change(vec![cancel]).await;
    assert!(matches!(&answers[..], [Answer::Conflict(task)] if task.version == 2));
    assert_eq!(fixture.get(3).await.state, State::Scheduled);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_other_callers_always_write_first_is_a_transient_error() {
    let fixture = Fixture::new(LONG).await;
    fixture.meanwhile(vec![later(1)]);
    fixture.others.always.store(true, Ordering::Relaxed);
    let began = fixture.clock.instant();
    let changes = vec![change(1, Verb::Cancel)];
    let found = fixture.engine.change(changes).await.unwrap().found;
    assert!(found[0].as_ref().unwrap_err().is_transient(), "{found:?}");
    assert!((ENOUGH..2 * ENOUGH).contains(&began.elapsed()));
    assert!((50..1_000).contains(&*fixture.others.writes.lock().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn of_callers_that_share_a_call_none_waits_for_a_call_that_loses_again_and_again() {
    let fixture = Fixture::new(LONG).await;
    fixture.meanwhile(vec![later(1)]);
    fixture.others.always.store(true, Ordering::Relaxed);
    let losing = fixture.engine.clone();
    let losing = tokio::spawn(async move { losing.change(vec![change(1, Verb::Cancel)]).await });
    fixture.clock.pause(ENOUGH / 2).await;
    let began = fixture.clock.instant();
    let shared = vec![change(1, Verb::Cancel), change(2, Verb::Cancel)];
    let found = fixture.engine.callers.answer_at_once(shared).await.unwrap().found;
    assert!(
        matches!(
            &found[..],
            [AtOnce::Unanswered(_), AtOnce::Answered(Ok(Answer::Done(_)))]
        ),
        "{found:?}"
    );
    assert_eq!(fixture.clock.instant(), began);
    assert!(!losing.is_finished());
}

#[tokio::test(start_paused = true)]
async fn what_a_call_has_written_is_answered_though_it_fails_later() {
    let fixture = Fixture::new(LONG).await;
    fixture.meanwhile(vec![later(2)]);
    *fixture.others.reads_left.lock().unwrap() = Some(1);
    let changes = vec![change(1, Verb::Cancel), change(2, Verb::Cancel)];
    let found = fixture.engine.change(changes).await.unwrap().found;
    assert!(matches!(&found[..], [Ok(Answer::Done(_)), Err(_)]), "{found:?}");
    // Of what it has not begun to write the call as a whole may be made once more.
    let untouched = fixture.engine.change(vec![change(3, Verb::Cancel)]).await;
    assert!(untouched.is_err(), "{untouched:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_call_has_inserted_is_answered_though_it_fails_later() {
    let fixture = Fixture::new(LONG).await;
    *fixture.others.reads_left.lock().unwrap() = Some(0);
    let rows = vec![row(5, "5", LONG), row(6, "1", LONG)];
    let found = fixture.engine.insert(rows).await.unwrap().found;
    assert!(matches!(&found[..], [Ok(Scheduled::New(_)), Err(_)]), "{found:?}");
    let untouched = fixture.engine.insert(vec![row(7, "1", LONG)]).await;
    assert!(untouched.is_err(), "{untouched:?}");
}

#[tokio::test(start_paused = true)]
async fn of_many_calls_that_want_the_same_rows_each_loses_them_once() {
    const CALLS: usize = 20;
    let fixture = Fixture::new(LONG).await;
    fixture.others.crowded.store(true, Ordering::Relaxed);
    let changes = || fixture.change(vec![later(1), later(2), later(3)]);
    let answers = futures_util::future::join_all((0..CALLS).map(|_| changes())).await;
    assert!(answers.iter().flatten().all(Answer::is_done), "{answers:?}");
    assert_eq!(fixture.get(1).await.version, 1 + CALLS as u64);
    assert!(*fixture.others.writes.lock().unwrap() <= 2 * CALLS);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_tells_of_a_row_that_was_not_written_is_not_given() {
    let fixture = Fixture::new(Duration::ZERO).await;
    // Two dead rows of one key.
    let dead = |task: &Task| {
        let error = "gave up".to_owned();
        let give_back = false;
        Step::end(task.id, task.version, Ending::Dead { error, give_back })
    };
    for _ in 0..2 {
        let claimed = fixture.claimed(LONG).await;
        let ends: Vec<_> = claimed.iter().map(dead).collect();
        fixture.engine.advance(&ends).await.unwrap();
        fixture
            .engine
            .insert(vec![row(4, "1", Duration::ZERO)])
            .await
            .unwrap();
    }
    assert_eq!(fixture.get(4).await.state, State::Dead);
    fixture.meanwhile(vec![change(1, Verb::Dismiss)]);
    let redrive = Verb::Redrive { overdue_after: LONG };
    let answers = fixture
        .change(vec![change(1, redrive.clone()), change(4, redrive)])
        .await;
    assert!(
        matches!(&answers[..], [Answer::Finished(_), Answer::Done(_)]),
        "{answers:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_row_to_replace_that_is_gone_meanwhile_is_written_anew() {
    let fixture = Fixture::new(LONG).await;
    fixture.meanwhile(vec![change(1, Verb::Cancel)]);
    let replacing = NewRow {
        replace: true,
        ..row(5, "1", LONG)
    };
    let found = fixture.engine.insert(vec![replacing]).await.unwrap().found;
    assert!(matches!(&found[..], [Ok(Scheduled::New(task))] if task.id == id(5)));
    assert_eq!(fixture.get(1).await.state, State::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_step_of_a_row_that_another_caller_wrote_first_is_lost() {
    let fixture = Fixture::new(LONG).await;
    fixture.meanwhile(vec![later(1)]);
    let hops = [1, 2].map(|number| Step::hop(id(number), 1, LONG));
    let came = fixture.engine.advance(&hops).await.unwrap();
    assert_eq!(came, [Guarded::Lost, Guarded::Done]);
    assert_eq!((fixture.get(1).await.hop, fixture.get(2).await.hop), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_end_that_brings_its_row_needs_no_read_unless_it_is_lost() {
    let fixture = Fixture::new(Duration::ZERO).await;
    let claimed = fixture.claimed(LONG).await;
    let renewal = Renewal {
        id: claimed[0].id,
        version: claimed[0].version,
        started: true,
    };
    fixture.engine.renew(&[renewal], 2 * LONG).await.unwrap();
    let done = |task: &Task| Step {
        claimed: Some(Arc::new(task.clone())),
        ..Step::end(task.id, task.version, Ending::Done)
    };
    let reads = || *fixture.others.reads.lock().unwrap();
    let before = reads();
    let came = fixture.engine.advance(&[done(&claimed[0])]).await.unwrap();
    assert_eq!((came, reads() - before), (vec![Guarded::Done], 0));
    let row = fixture.get(1).await;
    assert_eq!((row.state, row.started), (State::Done, false));

    let past = [done(&claimed[0]), done(&claimed[1])];
    let came = fixture.engine.advance(&past).await.unwrap();
    assert_eq!(came, [Guarded::Lost, Guarded::Done]);

    // What was answered last is too long ago to reckon the time by.
    fixture.clock.sleep(Duration::from_secs(3)).await;
    let before = reads();
    let came = fixture.engine.advance(&[done(&claimed[2])]).await.unwrap();
    assert_eq!((came, reads() - before), (vec![Guarded::Done], 1));
    let finished_at = fixture.get(3).await.finished_at.unwrap();
    assert_eq!(finished_at, fixture.engine.now().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_renewed_meanwhile_is_not_ended() {
    let fixture = Fixture::new(Duration::ZERO).await;
    let claimed = fixture.claimed(Duration::ZERO).await;
    let renewal = Renewal {
        id: id(1),
        version: claimed[0].version,
        started: true,
    };
    *fixture.others.quicker.lock().unwrap() = Some(Quicker::Renews(renewal));
    let sweep = Sweep {
        limit: 9,
        retake: LONG,
        ahead: None,
    };
    let nothing = Claim {
        room: Default::default(),
        ..claim(LONG)
    };
    let swept = fixture.engine.sweep(&nothing, &sweep).await.unwrap().found;
    assert_eq!(swept.expired, 2);
    let row = fixture.get(1).await;
    assert_eq!((row.state, row.version, row.started), (State::Running, 2, true));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_renewed_while_it_ends_has_ended() {
    let fixture = Fixture::new(Duration::ZERO).await;
    let claimed = fixture.claimed(LONG / 2).await;
    let renewal = Renewal {
        id: claimed[0].id,
        version: claimed[0].version,
        started: true,
    };
    // Its lease moves, and its version does not.
    *fixture.others.quicker.lock().unwrap() = Some(Quicker::Renews(renewal));
    let end = Step::end(claimed[0].id, claimed[0].version, Ending::Done);
    assert_eq!(fixture.engine.advance(&[end]).await.unwrap(), [Guarded::Done]);
    assert_eq!(fixture.get(1).await.state, State::Done);
}
