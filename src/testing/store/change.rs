//! Cases of [`Store::change`](crate::store::Store::change).

use std::time::Duration;

use super::StoreFixture;
use super::insert::tried;
use super::trial::*;
use crate::store::{Change, Ending, Expect, Target, Verb, When};
use crate::{Answer, State, Task, Timestamp};

const REDRIVE: Verb = Verb::Redrive { overdue_after: LONG };
const RUN_NOW: Verb = Verb::RunNow { overdue_after: LONG };

/// Asserts what each verb answers for a row in a state, by its id and by its key, and that a row which was not
/// changed is as it was.
async fn assert_answers(fixture: &dyn StoreFixture, state: State, expected: [fn(Task) -> Answer; 6]) {
    let trial = Trial::new(fixture).await;
    let mut n = 0;
    for (verb, expected) in verbs().into_iter().zip(expected) {
        for by_key in [false, true] {
            n += 1;
            let key = n.to_string();
            let task = trial.row_in(state, n, &key).await;
            let target = if by_key {
                target(KIND, &key)
            } else {
                task.id.into()
            };
            let answer = trial.change(target, verb.clone()).await;
            let now = trial.get(task.id).await;
            assert_eq!(answer, expected(now.clone()), "{verb:?} of a {state:?} row");
            if answer.is_done() {
                assert_eq!(now.version, task.version + 1);
            } else {
                assert_eq!(now, task);
            }
        }
    }
}

pub(super) async fn a_scheduled_row_takes_every_verb_for_live_rows(fixture: &dyn StoreFixture) {
    let expected = [
        Answer::Done,
        Answer::Done,
        Answer::Done,
        Answer::Conflict,
        Answer::Conflict,
        Answer::Done,
    ];
    assert_answers(fixture, State::Scheduled, expected).await;
}

pub(super) async fn a_running_row_is_too_late(fixture: &dyn StoreFixture) {
    let expected = [
        Answer::TooLate,
        Answer::TooLate,
        Answer::TooLate,
        Answer::Conflict,
        Answer::Conflict,
        Answer::TooLate,
    ];
    assert_answers(fixture, State::Running, expected).await;
}

pub(super) async fn a_done_row_is_finished(fixture: &dyn StoreFixture) {
    assert_answers(fixture, State::Done, [Answer::Finished; 6]).await;
}

pub(super) async fn a_cancelled_row_is_finished(fixture: &dyn StoreFixture) {
    assert_answers(fixture, State::Cancelled, [Answer::Finished; 6]).await;
}

pub(super) async fn a_dead_row_takes_redrive_and_dismiss_only(fixture: &dyn StoreFixture) {
    let expected = [
        Answer::Finished,
        Answer::Finished,
        Answer::Finished,
        Answer::Done,
        Answer::Done,
        Answer::Finished,
    ];
    assert_answers(fixture, State::Dead, expected).await;
}

pub(super) async fn a_missing_row_is_not_found(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.add(due(1).named("a")).await;
    for verb in verbs() {
        for missing in [id(2).into(), target(KIND, "b"), target("other", "a")] {
            assert_eq!(trial.change(missing, verb.clone()).await, Answer::NotFound);
        }
    }
}

pub(super) async fn a_reschedule_starts_anew_at_its_time(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let calendar = Timestamp::from_millis(4_000_000_000_123);
    for (n, when) in [(1, When::After(2 * LONG)), (2, When::At(calendar))] {
        let before = tried(&trial, due(n)).await;
        let start = trial.now().await;
        let overdue_after = Duration::from_secs(60);
        let answer = trial
            .change(
                id(n),
                Verb::Reschedule {
                    due: when,
                    overdue_after,
                },
            )
            .await;
        let span = (start, trial.now().await);
        let task = trial.get(id(n)).await;
        assert_eq!(answer, Answer::Done(task.clone()));
        match when {
            When::After(delay) => assert_after(span, delay, task.due_at),
            When::At(time) => assert_eq!(task.due_at, time),
        }
        assert_after(span, overdue_after, task.wake_at);
        assert_anew(&before, &task, span);
    }
}

pub(super) async fn run_now_is_due_now_and_starts_anew(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let before = tried(&trial, due(1)).await;
    let start = trial.now().await;
    let answer = trial.change(id(1), RUN_NOW).await;
    let span = (start, trial.now().await);
    let task = trial.get(id(1)).await;
    assert_eq!(answer, Answer::Done(task.clone()));
    assert_after(span, NONE, task.due_at);
    assert_after(span, LONG, task.wake_at);
    assert_anew(&before, &task, span);
    trial.claim(&task, &any()).await;
}

pub(super) async fn redrive_is_due_now_and_starts_anew(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let before = trial.row_in(State::Dead, 1, "a").await;
    assert!(before.finished_at.is_some());
    let start = trial.now().await;
    let answer = trial.change(id(1), REDRIVE).await;
    let span = (start, trial.now().await);
    let task = trial.get(id(1)).await;
    assert_eq!(answer, Answer::Done(task.clone()));
    assert_after(span, NONE, task.due_at);
    assert_after(span, LONG, task.wake_at);
    assert_anew(&before, &task, span);
    trial.claim(&task, &any()).await;
}

/// The state of the rows that a verb is for.
fn state_for(verb: &Verb) -> State {
    match verb {
        Verb::Redrive { .. } | Verb::Dismiss => State::Dead,
        _ => State::Scheduled,
    }
}

/// Asserts that except for its times, `task` is as `before` was when it was first written.
#[track_caller]
fn assert_anew(before: &Task, task: &Task, span: (Timestamp, Timestamp)) {
    assert_after(span, NONE, task.updated_at);
    let expected = Task {
        state: State::Scheduled,
        version: before.version + 1,
        due_at: task.due_at,
        planned_at: task.due_at,
        wake_at: task.wake_at,
        updated_at: task.updated_at,
        attempt: 0,
        stalls: 0,
        hop: 0,
        last_error: None,
        finished_at: None,
        ..before.clone()
    };
    assert_eq!(*task, expected);
}

pub(super) async fn a_cancelled_row_is_kept_as_history(fixture: &dyn StoreFixture) {
    let history = 2 * LONG;
    let trial = Trial::keeping(fixture, history).await;
    let before = tried(&trial, due(1)).await;
    let start = trial.now().await;
    let answer = trial.change(id(1), Verb::Cancel).await;
    let span = (start, trial.now().await);
    let task = trial.get(id(1)).await;
    assert_eq!(answer, Answer::Done(task.clone()));
    assert_after(span, history, task.wake_at);
    assert_after(span, NONE, task.finished_at);
    assert_after(span, NONE, task.updated_at);
    let expected = Task {
        state: State::Cancelled,
        version: before.version + 1,
        wake_at: task.wake_at,
        updated_at: task.updated_at,
        finished_at: task.finished_at,
        ..before
    };
    assert_eq!(task, expected);
}

pub(super) async fn a_dismissed_row_is_kept_as_history(fixture: &dyn StoreFixture) {
    let history = 2 * LONG;
    let trial = Trial::keeping(fixture, history).await;
    let before = trial.row_in(State::Dead, 1, "a").await;
    let start = trial.now().await;
    let answer = trial.change(id(1), Verb::Dismiss).await;
    let span = (start, trial.now().await);
    let task = trial.get(id(1)).await;
    assert_eq!(answer, Answer::Done(task.clone()));
    assert_after(span, history, task.wake_at);
    assert_after(span, NONE, task.finished_at);
    let expected = Task {
        state: State::Cancelled,
        version: before.version + 1,
        wake_at: task.wake_at,
        updated_at: task.updated_at,
        finished_at: task.finished_at,
        ..before
    };
    assert_eq!(task, expected);
}

pub(super) async fn a_claim_whose_lease_has_ended_is_none(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let expected = [
        Answer::Done,
        Answer::Done,
        Answer::Done,
        Answer::Conflict,
        Answer::Conflict,
        Answer::Done,
    ];
    for ((n, verb), expected) in (1..).zip(verbs()).zip(expected) {
        let key = n.to_string();
        let task = trial.add(due(n).named(&key)).await;
        let held = trial.claim(&task, &fleeting()).await;
        let answer = trial.change(target(KIND, &key), verb.clone()).await;
        let now = trial.get(id(n)).await;
        assert_eq!(answer, expected(now.clone()), "{verb:?}");
        // One transition for the end of the lease, one for the verb.
        assert_eq!(now.version, held.version + 1 + u64::from(answer.is_done()));
        assert_ne!(now.state, State::Running);
        assert_eq!(trial.renew(&[(id(n), held.version)], LONG).await, [false]);
        assert!(!trial.end(&held, Ending::Done).await);
    }
}

pub(super) async fn redrive_yields_to_another_live_row_of_the_key(fixture: &dyn StoreFixture) {
    for state in [State::Scheduled, State::Running] {
        let trial = Trial::new(fixture).await;
        let dead = trial.row_in(State::Dead, 1, "a").await;
        let live = trial.row_in(state, 2, "a").await;
        assert_eq!(trial.change(id(1), REDRIVE).await, Answer::Conflict(live.clone()));
        assert_eq!(trial.get(id(1)).await, dead);
        assert_eq!(trial.get(id(2)).await, live);
        trial.row_in(State::Scheduled, 3, "b").await;

        let free = trial.bring_to_an_end(&live).await;
        assert!(!free.state.is_live());
        assert!(trial.change(id(1), REDRIVE).await.is_done());
    }
}

pub(super) async fn a_row_must_be_as_expected(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, verb) in (1..).zip(verbs()) {
        let key = n.to_string();
        let state = state_for(&verb);
        let task = trial.row_in(state, n, &key).await;
        let (past, next) = (task.version - 1, task.version + 1);
        let wrong = [
            Expect::Version(past),
            Expect::Version(next),
            Expect::Due(task.due_at.shifted(1)),
            Expect::Due(task.due_at.shifted(-1)),
        ];
        for expect in wrong {
            for target in [Target::Id(task.id), target(KIND, &key)] {
                let answer = trial.change_if(target, verb.clone(), expect).await;
                assert_eq!(answer, Answer::Conflict(task.clone()));
            }
        }
        assert_eq!(trial.get(id(n)).await, task);
        let expect = Expect::Version(task.version);
        assert!(trial.change_if(id(n), verb.clone(), expect).await.is_done());
    }
    for (n, verb) in (101..).zip(verbs()) {
        let state = state_for(&verb);
        let task = trial.row_in(state, n, &n.to_string()).await;
        let expect = Expect::Due(task.due_at);
        assert!(trial.change_if(id(n), verb, expect).await.is_done());
    }
}

pub(super) async fn the_state_answers_before_the_expectation(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let unmet = Expect::Version(99);
    let running = trial.row_in(State::Running, 1, "a").await;
    let answer = trial.change_if(id(1), Verb::Cancel, unmet).await;
    assert_eq!(answer, Answer::TooLate(running));
    for (n, state) in (2..).zip([State::Done, State::Dead, State::Cancelled]) {
        let task = trial.row_in(state, n, &n.to_string()).await;
        let answer = trial.change_if(id(n), Verb::Cancel, unmet).await;
        assert_eq!(answer, Answer::Finished(task));
    }
    let answer = trial.change_if(id(99), Verb::Cancel, unmet).await;
    assert_eq!(answer, Answer::NotFound);
}

pub(super) async fn a_repeated_change_that_expects_a_version_applies_once(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(later(1)).await;
    let shift = Verb::Reschedule {
        due: When::At(task.due_at.shifted(1_000)),
        overdue_after: LONG,
    };
    for expect in [Expect::Version(task.version), Expect::Due(task.due_at)] {
        let now = trial.get(id(1)).await;
        let answer = trial.change_if(id(1), shift.clone(), expect).await;
        match now.version {
            1 => assert!(answer.is_done()),
            _ => assert_eq!(answer, Answer::Conflict(now)),
        }
    }
    assert_eq!(trial.get(id(1)).await.version, 2);
}

pub(super) async fn a_key_means_its_live_row_else_the_newest(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let key = || target(KIND, "a");
    // Ids come from processes whose clocks differ: the newest is the one that was written last.
    trial.row_in(State::Cancelled, 9, "a").await;
    trial.pass(NONE).await;
    let newest = trial.row_in(State::Done, 3, "a").await;
    assert_eq!(trial.find(key()).await, Some(newest.clone()));
    trial.pass(NONE).await;
    let live = trial.row_in(State::Scheduled, 5, "a").await;
    assert_eq!(trial.find(key()).await, Some(live));
    let answer = trial.change(key(), Verb::Cancel).await;
    assert_eq!(answer.task().map(|task| task.id), Some(id(5)));
    assert!(answer.is_done());

    let newest = trial.get(id(5)).await;
    assert_eq!(trial.find(key()).await, Some(newest.clone()));
    assert_eq!(trial.change(key(), Verb::Cancel).await, Answer::Finished(newest));
}

pub(super) async fn changes_of_one_row_apply_in_the_order_given(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1).named("a")).await;
    let change = |target, verb, expect| Change {
        target,
        verb,
        expect,
        note: Default::default(),
    };
    let changes = vec![
        change(id(1).into(), RUN_NOW, Expect::Version(task.version)),
        change(id(1).into(), RUN_NOW, Expect::Version(task.version)),
        change(target(KIND, "a"), Verb::Cancel, Expect::Anything),
        change(target(KIND, "a"), RUN_NOW, Expect::Anything),
        change(id(2).into(), Verb::Cancel, Expect::Anything),
        change(id(1).into(), Verb::Cancel, Expect::Anything),
    ];
    let answers = each(trial.store.change(changes).await);
    let cancelled = trial.get(id(1)).await;
    let [
        Answer::Done(first),
        Answer::Conflict(second),
        Answer::Done(third),
        Answer::Finished(fourth),
        Answer::NotFound,
        Answer::Finished(last),
    ] = answers.as_slice()
    else {
        panic!("{answers:?}");
    };
    assert_eq!((first.version, second), (2, first));
    assert_eq!([third, fourth, last], [&cancelled; 3]);
    assert_eq!((cancelled.state, cancelled.version), (State::Cancelled, 3));
}

pub(super) async fn a_wake_of_what_was_changed_is_stale(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, verb) in (1..).zip(verbs()) {
        let key = n.to_string();
        let state = state_for(&verb);
        let task = trial.row_in(state, n, &key).await;
        let answer = trial.change(id(n), verb).await;
        assert!(answer.is_done());
        let looked = trial.arrive(&[wake(&task)], &any()).await;
        assert_eq!((looked.stale, looked.claimed.len()), (1, 0));
        assert_eq!(Some(&trial.get(id(n)).await), answer.task());
    }
}

pub(super) async fn what_was_cancelled_or_moved_away_is_not_claimed(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let due = When::After(LONG);
    let away = Verb::Reschedule {
        due,
        overdue_after: NONE,
    };
    for (n, verb) in [(1, Verb::Cancel), (2, away)] {
        trial.add(overdue(n)).await;
        assert!(trial.change(id(n), verb).await.is_done());
    }
    assert_eq!(trial.ready(&any()).await, []);
    assert_eq!(trial.sweep(&any(), MANY, LONG).await.claimed, []);
}

impl Trial<'_> {
    /// Cancels a scheduled row, or ends a running one.
    async fn bring_to_an_end(&self, task: &Task) -> Task {
        match task.state {
            State::Running => assert!(self.end(task, Ending::Done).await),
            _ => assert!(self.change(task.id, Verb::Cancel).await.is_done()),
        }
        self.get(task.id).await
    }
}
