//! Cases of history entries, and of [`Store::history`](crate::store::Store::history).

use std::time::Duration;

use super::StoreFixture;
use super::trial::*;
use crate::store::{Claim, Ending, Event, History, NewRow, Note, Noted, Step, Verb, When};
use crate::{State, Task, TaskId, Timestamp};

/// A text that must come back as it was.
const ODD: &str = r#"{"event":"it's \\ \"ü\" 😀 %s"}"#;

fn note(event: &str) -> Note {
    Note {
        event: Some(event.to_owned()),
    }
}

fn with_event(row: NewRow, event: &str) -> NewRow {
    let note = note(event);
    NewRow { note, ..row }
}

fn end(task: &Task, ending: Ending, event: &str) -> Step {
    Step::end(task.id, task.version, ending).with_note(note(event))
}

/// A line of a history, without its time, which is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Recorded {
    version: u64,
    before: Option<Timestamp>,
    due_at: Timestamp,
    event: String,
}

fn recorded(version: u64, before: impl Into<Option<Timestamp>>, due_at: Timestamp, event: &str) -> Recorded {
    Recorded {
        version,
        before: before.into(),
        due_at,
        event: event.to_owned(),
    }
}

impl Trial<'_> {
    async fn history(&self, id: TaskId) -> Noted {
        ok(self.store.history(id).await)
    }

    /// The lines of a whole history, all of them of times since `start`.
    async fn recorded(&self, id: TaskId, start: Timestamp) -> Vec<Recorded> {
        let history = self.history(id).await.history;
        let now = self.now().await;
        assert!(history.is_empty() || history.starts_with('\n'), "{history:?}");
        let mut last = start;
        let line = |line: &str| {
            let parts: Vec<_> = line.splitn(5, ' ').collect();
            let time = |text: &str| text.parse().map(Timestamp::from_millis).ok();
            let at = time(parts[1]).expect("a line has five parts");
            assert!((last..=now).contains(&at), "{line:?} is not from {last} to {now}");
            last = at;
            Recorded {
                version: parts[0].parse().expect("a line has five parts"),
                before: time(parts[2]),
                due_at: time(parts[3]).expect("a line has five parts"),
                event: parts[4].to_owned(),
            }
        };
        history.split('\n').skip(1).map(line).collect()
    }

    async fn change_with_event(&self, id: TaskId, verb: Verb, event: &str) -> crate::Answer {
        let change = crate::store::Change {
            target: id.into(),
            verb,
            expect: crate::store::Expect::Anything,
            note: note(event),
        };
        each(self.store.change(vec![change]).await).remove(0)
    }
}

fn claim_with_history(claim: Claim, history: History) -> Claim {
    let history = history.into();
    Claim { history, ..claim }
}

pub(super) async fn every_transition_is_noted_in_its_order(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let start = trial.now().await;
    let row = NewRow {
        due: When::After(LONG),
        ..with_event(due(1), ODD)
    };
    let first = trial.add(row).await;
    let mut expected = vec![recorded(1, None, first.due_at, ODD)];
    let hop = Step::hop(id(1), 1, LONG).with_note(note("a hop"));
    assert_eq!(trial.advance(&[hop]).await, [true]);
    expected.push(recorded(2, first.due_at, first.due_at, "a hop"));
    assert!(
        trial
            .change_with_event(id(1), Verb::RunNow { overdue_after: LONG }, "now")
            .await
            .is_done()
    );
    let task = trial.get(id(1)).await;
    expected.push(recorded(3, first.due_at, task.due_at, "now"));
    let mut claimed = trial.claim(&task, &claim_with_history(any(), History::All)).await;
    let recorded_claims = trial
        .recorded(id(1), start)
        .await
        .pop()
        .expect("a claim is noted");
    assert!(recorded_claims.event.contains("claimed"), "{recorded_claims:?}");
    assert!(
        recorded_claims.event.contains("worker:tester"),
        "{recorded_claims:?}"
    );
    expected.push(recorded(4, task.due_at, task.due_at, &recorded_claims.event));
    let retry = Ending::Retry {
        after: NONE,
        overdue_after: LONG,
        error: "no luck".to_owned(),
    };
    assert_eq!(trial.advance(&[end(&claimed, retry, "again")]).await, [true]);
    let again = trial.get(id(1)).await;
    expected.push(recorded(5, task.due_at, again.due_at, "again"));
    claimed = trial
        .ready(&claim_with_history(any(), History::All))
        .await
        .remove(0);
    expected.push(recorded(6, again.due_at, again.due_at, &recorded_claims.event));
    assert_eq!(
        trial.advance(&[end(&claimed, Ending::Done, "done")]).await,
        [true]
    );
    expected.push(recorded(7, again.due_at, again.due_at, "done"));
    assert_eq!(trial.recorded(id(1), start).await, expected);
}

pub(super) async fn nothing_is_noted_that_is_not_asked_for(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, state) in (1..).zip(State::ALL) {
        let task = trial.row_in(state, n, &n.to_string()).await;
        assert_eq!(trial.history(task.id).await, Noted::default(), "{state:?}");
    }
    assert_eq!(trial.history(id(99)).await, Noted::default());
    // Changes alone: a claim is none, and the end of a lease is.
    let start = trial.now().await;
    trial.add(overdue(9)).await;
    let swept = claim_with_history(fleeting(), History::Changes);
    assert_eq!(trial.sweep(&swept, MANY, NONE).await.claimed.len(), 1);
    assert_eq!(trial.history(id(9)).await, Noted::default());
    trial.pass(NONE).await;
    let found = trial
        .sweep(&claim_with_history(nothing(), History::Changes), MANY, NONE)
        .await;
    assert_eq!(found.expired, 1);
    let recorded = trial.recorded(id(9), start).await;
    assert_eq!((recorded.len(), recorded[0].version), (1, 3), "{recorded:?}");
    assert!(recorded[0].event.contains("expired"), "{recorded:?}");
    assert_eq!(recorded[0].before, Some(recorded[0].due_at));
}

pub(super) async fn the_end_of_a_lease_is_noted_by_the_call_that_finds_it(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for n in 1..=3 {
        let task = trial.add(due(n).named(&n.to_string())).await;
        trial.claim(&task, &fleeting()).await;
    }
    trial.pass(NONE).await;
    let start = trial.now().await;
    assert!(
        trial
            .change_with_event(id(1), Verb::Cancel, "gone")
            .await
            .is_done()
    );
    let replacing = with_event(due(9).named("2").replacing(), "new");
    assert!(matches!(
        trial.insert(vec![replacing]).await[..],
        [crate::Scheduled::Replaced(_)]
    ));
    // A verb that is refused ends it all the same.
    assert!(
        !trial
            .change_with_event(id(3), Verb::Dismiss, "refused")
            .await
            .is_done()
    );
    for (n, then) in [(1, Some("gone")), (2, Some("new")), (3, None)] {
        let recorded = trial.recorded(id(n), start).await;
        assert!(recorded[0].event.contains("expired"), "{recorded:?}");
        assert_eq!(recorded[0].version, 3);
        let rest: Vec<_> = recorded[1..]
            .iter()
            .map(|recorded| recorded.event.as_str())
            .collect();
        assert_eq!(rest, then.into_iter().collect::<Vec<_>>());
    }
}

pub(super) async fn what_did_not_happen_is_not_noted(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(with_event(later(1).named("a"), "first")).await;
    let before = trial.history(id(1)).await;
    trial.insert(vec![with_event(later(1), "same id")]).await;
    trial
        .insert(vec![with_event(later(2).named("a"), "same key")])
        .await;
    let redrive = Verb::Redrive { overdue_after: LONG };
    assert!(
        !trial
            .change_with_event(id(1), redrive, "not dead")
            .await
            .is_done()
    );
    let late = Step::hop(id(1), 9, LONG).with_note(note("another version"));
    assert_eq!(trial.advance(&[late]).await, [false]);
    assert_eq!(trial.history(id(1)).await, before);
    assert_eq!(trial.history(id(2)).await, Noted::default());
    // Nor does a transition without an entry change earlier ones.
    assert!(trial.hop_once(&task).await);
    assert!(trial.change(id(1), Verb::Cancel).await.is_done());
    assert_eq!(trial.history(id(1)).await, before);
}

pub(super) async fn a_replaced_row_keeps_its_history(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let start = trial.now().await;
    let first = trial.add(with_event(later(1).named("a"), "first")).await;
    // New ones beside it, in one batch.
    let rows = vec![
        with_event(due(2).named("b"), "other"),
        with_event(due(3).named("a").replacing(), "second"),
        with_event(due(4).named("b").replacing(), "third"),
    ];
    let answers = trial.insert(rows).await;
    let due_at = |n: usize| answers[n].task().due_at;
    let expected = [
        recorded(1, None, first.due_at, "first"),
        recorded(2, first.due_at, due_at(1), "second"),
    ];
    assert_eq!(trial.recorded(id(1), start).await, expected);
    let expected = [
        recorded(1, None, due_at(0), "other"),
        recorded(2, due_at(0), due_at(2), "third"),
    ];
    assert_eq!(trial.recorded(id(2), start).await, expected);
}

pub(super) async fn many_rows_are_each_noted_for_themselves(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let start = trial.now().await;
    let rows = (1..=300).map(|n| with_event(later(n), &format!("new {n}")));
    trial.insert(rows.collect()).await;
    let hops = (1..=300).map(|n| Step::hop(id(n), 1, LONG).with_note(note(&format!("hop {n}"))));
    assert_eq!(trial.advance(&hops.collect::<Vec<_>>()).await, [true; 300]);
    for n in [1, 2, 128, 300] {
        let recorded = trial.recorded(id(n), start).await;
        let events: Vec<_> = recorded.into_iter().map(|recorded| recorded.event).collect();
        assert_eq!(events, [format!("new {n}"), format!("hop {n}")]);
    }
}

pub(super) async fn a_long_history_loses_what_is_oldest(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let long = |n: u64| format!("{n} {}", "ü".repeat(3_000));
    let mut task = trial.add(with_event(later(1), &long(0))).await;
    for n in 1..=12 {
        let hop = Step::hop(id(1), task.version, LONG).with_note(note(&long(n)));
        assert_eq!(trial.advance(&[hop]).await, [true]);
        task = trial.get(id(1)).await;
    }
    let noted = trial.history(id(1)).await;
    assert!(
        noted.history.chars().count() <= Noted::LIMIT,
        "{}",
        noted.history.len()
    );
    assert!(noted.history.len() >= Noted::LIMIT - 4, "{}", noted.history.len());
    assert!(noted.history.ends_with(&long(12)));
    assert!(!noted.history.starts_with('\n'));
    let last = noted.history.rsplit('\n').next().expect("a line has five parts");
    assert!(last.starts_with("13 "), "{last}");
}

pub(super) async fn a_history_is_gone_with_its_row(fixture: &dyn StoreFixture) {
    let trial = Trial::keeping(fixture, NONE).await;
    let task = trial.add(with_event(due(1), "first")).await;
    assert!(
        trial
            .change_with_event(task.id, Verb::Cancel, "gone")
            .await
            .is_done()
    );
    assert_ne!(trial.history(id(1)).await, Noted::default());
    trial.pass(NONE).await;
    assert_eq!(trial.purge(MANY).await, 1);
    assert_eq!(trial.history(id(1)).await, Noted::default());
    let start = trial.now().await;
    let again = trial.add(with_event(due(1), "again")).await;
    let expected = [recorded(1, None, again.due_at, "again")];
    assert_eq!(trial.recorded(id(1), start).await, expected);
}

pub(super) async fn every_ending_is_noted_with_its_due_times(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, ending) in (1..).zip(endings()) {
        let task = trial.row_in(State::Running, n, &n.to_string()).await;
        let start = trial.now().await;
        trial.pass(Duration::from_millis(1)).await;
        let step = Step {
            event: Event::End {
                ending: ending.clone(),
            },
            ..end(&task, Ending::Done, "ended")
        };
        assert_eq!(trial.advance(&[step]).await, [true]);
        let after = trial.get(task.id).await;
        let expected = [recorded(after.version, task.due_at, after.due_at, "ended")];
        assert_eq!(trial.recorded(task.id, start).await, expected, "{ending:?}");
    }
}
