//! Helpers for the cases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::StoreFixture;
use crate::backend::Wake;
use crate::store::{
    Ahead, Change, Claim, Ending, Expect, Guarded, NewRow, Page, Pending, PollResult, Renewal, Stamped, Step,
    Store, Sweep, Target, Verb, When,
};
use crate::{Answer, Error, Key, Kind, Scheduled, State, Task, TaskId, Timestamp};

/// A time that does not pass during a case.
pub(super) const LONG: Duration = Duration::from_secs(3_600);
/// A time that a case can wait for.
pub(super) const SHORT: Duration = Duration::from_millis(100);
/// No time at all: a lease of it has ended.
pub(super) const NONE: Duration = Duration::ZERO;
/// More rows than any case but the big ones has.
pub(super) const MANY: usize = 100;
/// The kind of rows whose kind does not matter.
pub(super) const KIND: &str = "order.cancel";

/// The id of the nth row; later ones are greater.
pub(super) fn id(n: u64) -> TaskId {
    TaskId::from_bytes(u128::from(n).to_be_bytes())
}

/// A row that is due, and whose wake-up is overdue only in a long time.
pub(super) fn due(n: u64) -> NewRow {
    NewRow {
        id: id(n),
        kind: KIND.into(),
        key: None,
        payload: Vec::new(),
        headers: BTreeMap::new(),
        due: When::After(NONE),
        overdue_after: LONG,
        max_attempts: None,
        replace: false,
        note: Default::default(),
    }
}

/// A row that is due, and whose wake-up is overdue.
pub(super) fn overdue(n: u64) -> NewRow {
    NewRow {
        overdue_after: NONE,
        ..due(n)
    }
}

/// A row that is due in a long time, and so is its wake-up.
pub(super) fn later(n: u64) -> NewRow {
    NewRow {
        due: When::After(LONG),
        ..due(n)
    }
}

/// A row that is due in a long time, and whose wake-up is overdue.
pub(super) fn lost(n: u64) -> NewRow {
    NewRow {
        overdue_after: NONE,
        ..later(n)
    }
}

impl NewRow {
    pub(super) fn of(self, kind: &str) -> Self {
        let kind = kind.into();
        Self { kind, ..self }
    }

    pub(super) fn named(self, key: &str) -> Self {
        let key = Some(key.into());
        Self { key, ..self }
    }

    pub(super) fn at(self, time: Timestamp) -> Self {
        let due = When::At(time);
        Self { due, ..self }
    }

    pub(super) fn replacing(self) -> Self {
        let replace = true;
        Self { replace, ..self }
    }
}

/// A claim for long, with room for so many of each of these kinds.
pub(super) fn claim(room: &[(&str, usize)]) -> Claim {
    Claim {
        owner: "tester".into(),
        lease: LONG,
        room: room.iter().map(|&(kind, room)| (kind.into(), room)).collect(),
        bytes: usize::MAX,
        history: Default::default(),
    }
}

/// A claim for long of as many rows of [`KIND`] as there are.
pub(super) fn any() -> Claim {
    claim(&[(KIND, usize::MAX)])
}

/// A claim of as many rows of [`KIND`] as there are, whose lease ends at once.
pub(super) fn fleeting() -> Claim {
    let lease = NONE;
    Claim { lease, ..any() }
}

/// A sweep that does not read ahead.
pub(super) fn plain(limit: usize, retake: Duration) -> Sweep {
    Sweep {
        limit,
        retake,
        ahead: None,
    }
}

/// A claim by a worker without handlers.
pub(super) fn nothing() -> Claim {
    claim(&[])
}

/// The wake-up for a row as it is.
pub(super) fn wake(task: &Task) -> Wake {
    Wake {
        id: task.id,
        kind: task.kind.clone(),
        version: task.version,
    }
}

pub(super) fn pending(task: &Task) -> Pending {
    Pending {
        wake: wake(task),
        key: task.key.clone(),
        due_at: task.due_at,
        planned_at: task.planned_at,
    }
}

pub(super) fn ids(tasks: &[Task]) -> Vec<TaskId> {
    tasks.iter().map(|task| task.id).collect()
}

/// Every verb, with a wake-up that is overdue at once.
pub(super) fn verbs() -> [Verb; 6] {
    let overdue_after = LONG;
    let due = When::After(LONG);
    [
        Verb::Reschedule { due, overdue_after },
        Verb::RunNow { overdue_after },
        Verb::Cancel,
        Verb::Dismiss,
        Verb::Redrive { overdue_after },
        Verb::Edit {
            payload: b"another".to_vec(),
            due: None,
            overdue_after,
        },
    ]
}

/// Every ending.
pub(super) fn endings() -> [Ending; 9] {
    let (after, overdue_after) = (LONG, LONG);
    let error = "no luck".to_owned();
    let dead = |give_back| Ending::Dead {
        error: error.clone(),
        give_back,
    };
    [
        Ending::Done,
        dead(true),
        dead(false),
        Ending::Retry {
            after,
            overdue_after,
            error: error.clone(),
        },
        Ending::Snooze {
            after,
            overdue_after,
            reason: Some(error.clone()),
        },
        Ending::Again { after, overdue_after },
        Ending::Release,
        Ending::Moved {
            due: Timestamp::from_millis(4_000_000_000_000),
            overdue_after,
        },
        Ending::Cancelled,
    ]
}

/// Makes the same ending for every claim, whose row its worker has.
pub(super) fn settlements(claims: &[Task], ending: &Ending) -> Vec<Step> {
    let settle = |task: &Task| Step {
        claimed: Some(Arc::new(task.clone())),
        ..Step::end(task.id, task.version, ending.clone())
    };
    claims.iter().map(settle).collect()
}

/// A trial of a fresh store. Its methods are those of the store, which must not fail.
pub(super) struct Trial<'a> {
    pub(super) store: Arc<dyn Store>,
    fixture: &'a dyn StoreFixture,
}

impl<'a> Trial<'a> {
    /// Makes a fresh store that keeps history for long.
    pub(super) async fn new(fixture: &'a dyn StoreFixture) -> Self {
        Self::keeping(fixture, LONG).await
    }

    /// Makes a fresh store that keeps history for so long.
    pub(super) async fn keeping(fixture: &'a dyn StoreFixture, history: Duration) -> Self {
        let store = fixture.store(history).await;
        Self { store, fixture }
    }

    /// Lets this much time pass, and a little more.
    pub(super) async fn pass(&self, time: Duration) {
        self.fixture.pass(time + Duration::from_millis(5)).await;
    }

    pub(super) async fn now(&self) -> Timestamp {
        ok(self.store.now().await)
    }

    pub(super) async fn insert(&self, rows: Vec<NewRow>) -> Vec<Scheduled> {
        each(self.store.insert(rows).await)
    }

    /// Inserts a row that must be new.
    pub(super) async fn add(&self, row: NewRow) -> Task {
        let answer = self.insert(vec![row]).await.remove(0);
        match answer {
            Scheduled::New(task) => task,
            answer => panic!("a new row was answered {answer:?}"),
        }
    }

    pub(super) async fn change(&self, target: impl Into<Target>, verb: Verb) -> Answer {
        self.change_if(target, verb, Expect::Anything).await
    }

    pub(super) async fn change_if(&self, target: impl Into<Target>, verb: Verb, expect: Expect) -> Answer {
        let target = target.into();
        let change = Change {
            target,
            verb,
            expect,
            note: Default::default(),
        };
        each(self.store.change(vec![change]).await).remove(0)
    }

    pub(super) async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> PollResult {
        ok(self.store.arrive(wakes, claim).await).found
    }

    /// Claims one row, by its wake-up, which must succeed.
    pub(super) async fn claim(&self, task: &Task, claim: &Claim) -> Task {
        let mut polled = self.arrive(&[wake(task)], claim).await;
        assert_eq!(polled.claimed.len(), 1, "a due row is claimed: {polled:?}");
        polled.claimed.remove(0)
    }

    pub(super) async fn advance(&self, steps: &[Step]) -> Vec<bool> {
        held(self.store.advance(steps).await)
    }

    /// Records the hop of a row as it is; its wake-up is overdue only in a long time.
    pub(super) async fn hop_once(&self, task: &Task) -> bool {
        self.advance(&[Step::hop(task.id, task.version, LONG)]).await == [true]
    }

    pub(super) async fn ready(&self, claim: &Claim) -> Vec<Task> {
        ok(self.store.ready(claim).await).found
    }

    pub(super) async fn sweep(&self, claim: &Claim, limit: usize, retake: Duration) -> PollResult {
        ok(self.store.sweep(claim, &plain(limit, retake)).await).found
    }

    /// Ends the claim of a row as it is; says whether it was so.
    pub(super) async fn end(&self, task: &Task, ending: Ending) -> bool {
        let end = Step::end(task.id, task.version, ending);
        self.advance(&[end]).await == [true]
    }

    pub(super) async fn renew(&self, claims: &[(TaskId, u64)], lease: Duration) -> Vec<bool> {
        self.renew_as(claims, lease, false).await
    }

    /// Does the same, and says whether the handlers start.
    pub(super) async fn renew_as(
        &self,
        claims: &[(TaskId, u64)],
        lease: Duration,
        started: bool,
    ) -> Vec<bool> {
        let renewal = |&(id, version)| Renewal { id, version, started };
        let renewals: Vec<_> = claims.iter().map(renewal).collect();
        held(self.store.renew(&renewals, lease).await)
    }

    /// Returns what a sweep reads ahead that takes nothing.
    pub(super) async fn ahead(&self, ahead: Ahead) -> Stamped<Vec<Pending>> {
        let sweep = Sweep {
            limit: 0,
            retake: NONE,
            ahead: Some(ahead),
        };
        let Stamped { now, found } = ok(self.store.sweep(&nothing(), &sweep).await);
        Stamped {
            now,
            found: found.ahead,
        }
    }

    pub(super) async fn upcoming(&self, within: Duration, limit: usize) -> Vec<Pending> {
        self.ahead(Ahead { within, limit }).await.found
    }

    pub(super) async fn find(&self, target: impl Into<Target>) -> Option<Task> {
        ok(self.store.find(&target.into()).await)
    }

    /// Reads the row of an id, which must be there.
    pub(super) async fn get(&self, id: TaskId) -> Task {
        let found = self.find(id).await;
        found.unwrap_or_else(|| panic!("{id} is not found"))
    }

    pub(super) async fn list(&self, kind: &str, state: State, limit: usize) -> Vec<Task> {
        let page = Page::new(kind, state).limit(limit);
        ok(self.store.list(&page).await)
    }

    pub(super) async fn due_within(&self, kind: &str, spans: &[Duration], most: usize) -> Vec<usize> {
        let kind = kind.into();
        let counted = self.store.due_within(&kind, State::Scheduled, spans, most).await;
        ok(counted).found
    }

    pub(super) async fn purge(&self, limit: usize) -> u64 {
        ok(self.store.purge(limit).await)
    }

    /// Makes a row in a state, under a key.
    pub(super) async fn row_in(&self, state: State, n: u64, key: &str) -> Task {
        let task = self.add(due(n).named(key)).await;
        self.bring(&task, state).await
    }

    /// Brings a scheduled row that is due into a state.
    pub(super) async fn bring(&self, task: &Task, state: State) -> Task {
        let dead = Ending::Dead {
            error: "gave up".to_owned(),
            give_back: false,
        };
        match state {
            State::Scheduled => {}
            State::Cancelled => assert!(self.change(task.id, Verb::Cancel).await.is_done()),
            State::Running | State::Done | State::Dead => {
                let running = self.claim(task, &claim(&[(task.kind.as_str(), 1)])).await;
                match state {
                    State::Done => assert!(self.end(&running, Ending::Done).await),
                    State::Dead => assert!(self.end(&running, dead).await),
                    _ => {}
                }
            }
        }
        let task = self.get(task.id).await;
        assert_eq!(task.state, state);
        task
    }
}

/// Asserts that `time` is `delay` after a moment from `start` to `end`.
#[track_caller]
pub(super) fn assert_after(
    (start, end): (Timestamp, Timestamp),
    delay: Duration,
    time: impl Into<Option<Timestamp>>,
) {
    let time = time.into();
    let (first, last) = (start.after(delay), end.after(delay));
    assert!(
        time.is_some_and(|time| (first..=last).contains(&time)),
        "{time:?} is not {delay:?} after a moment from {start} to {end}"
    );
}

pub(super) fn target(kind: &str, key: &str) -> Target {
    Target::Key(Kind::from(kind), Key::from(key))
}

/// Returns the store's answer, which must not be an error.
#[track_caller]
pub(super) fn ok<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| panic!("the store failed: {error}"))
}

/// Returns the store's answer for each row, of which none must be an error.
#[track_caller]
pub(super) fn each<T>(result: Result<Stamped<Vec<Result<T, Error>>>, Error>) -> Vec<T> {
    ok(result).found.into_iter().map(ok).collect()
}

/// Says whether each row was as its guarded write expected. No other transaction has locked one.
#[track_caller]
pub(super) fn held(result: Result<Vec<Guarded>, Error>) -> Vec<bool> {
    let is_held = |came| match came {
        Guarded::Done => true,
        Guarded::Lost => false,
        Guarded::Blocked => panic!("no other transaction has locked a row, and one is {came:?}"),
    };
    ok(result).into_iter().map(is_held).collect()
}

/// Returns what a store found, whose time must be between the two.
#[track_caller]
pub(super) fn within<T>(start: Timestamp, stamped: Stamped<T>, end: Timestamp) -> T {
    let Stamped { now, found } = stamped;
    assert!((start..=end).contains(&now), "{now} is not from {start} to {end}");
    found
}
