//! Others who are quicker, rows that others keep locked, and rows that cannot be read.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::patience::ENOUGH;
use super::*;
use crate::Key;
use crate::store::memory::MemoryTable;
use crate::store::table::{Columns, Found, Outcome, Range, Unreadable, Write};
use crate::store::{Ending, Expect, State, Verb, When};

const LONG: Duration = Duration::from_secs(3_600);

/// Rows in memory with which somebody meddles.
#[derive(Clone)]
struct Meddled {
    rows: MemoryTable,
    others: Arc<Others>,
}

#[derive(Default)]
struct Others {
    /// What somebody else does between the next reading and the writing.
    quicker: Mutex<Option<Quicker>>,
    /// Whether he does it every time.
    always: AtomicBool,
    locked: Mutex<BTreeSet<TaskId>>,
    unreadable: Mutex<BTreeSet<TaskId>>,
    /// How often rows were written.
    writes: Mutex<usize>,
}

#[derive(Clone)]
enum Quicker {
    Changes(Vec<Change>),
    Renews(Renewal),
}

impl Meddled {
    fn sound(&self, mut found: Found) -> Found {
        let spoilt = self.others.unreadable.lock().unwrap();
        let (rows, spoilt): (Vec<_>, Vec<_>) =
            found.rows.into_iter().partition(|row| !spoilt.contains(&row.id));
        found.rows = rows;
        found.unreadable.extend(spoilt.into_iter().map(|row| Unreadable {
            row: row.id.as_bytes().to_vec(),
            id: Some(row.id),
            key: row.key.map(|key| (row.kind, key)),
            is_live: row.state.is_live(),
            why: "spoilt".to_owned(),
        }));
        found
    }
}

#[async_trait]
impl Table for Meddled {
    fn name(&self) -> &'static str {
        "meddled"
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.rows.now().await
    }

    async fn read(
        &self,
        ids: &[TaskId],
        keys: &[(Kind, Key)],
        columns: Columns,
    ) -> Result<Stamped<Found>, Error> {
        let Stamped { now, found } = self.rows.read(ids, keys, columns).await?;
        let found = self.sound(found);
        Ok(Stamped { now, found })
    }

    async fn range(&self, ranges: &[Range], columns: Columns) -> Result<Stamped<Vec<Found>>, Error> {
        let Stamped { now, found } = self.rows.range(ranges, columns).await?;
        let found = found.into_iter().map(|found| self.sound(found)).collect();
        Ok(Stamped { now, found })
    }

    async fn count(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        self.rows.count(kind, state, spans, most).await
    }

    async fn insert(&self, rows: &[NewRow]) -> Result<Stamped<Vec<Outcome>>, Error> {
        self.rows.insert(rows).await
    }

    async fn write(&self, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
        *self.others.writes.lock().unwrap() += 1;
        let quicker = self.others.quicker.lock().unwrap().clone();
        if !self.others.always.load(Ordering::Relaxed) {
            *self.others.quicker.lock().unwrap() = None;
        }
        let other = Engine::new(self.rows.clone());
        match quicker {
            Some(Quicker::Changes(changes)) => drop(other.change(changes).await?),
            Some(Quicker::Renews(renewal)) => drop(other.renew(&[renewal], LONG).await?),
            None => {}
        }
        let mut came = Vec::new();
        for write in writes {
            let is_locked = self.others.locked.lock().unwrap().contains(&write.row.id);
            came.extend(match is_locked {
                true => vec![Outcome::Locked],
                false => self.rows.write(std::slice::from_ref(write)).await?,
            });
        }
        Ok(came)
    }

    async fn remove(&self, states: &[State], limit: usize) -> Result<u64, Error> {
        self.rows.remove(states, limit).await
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        self.rows.kinds(state, after, limit).await
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        self.rows.history(id).await
    }
}

struct Fixture {
    engine: Engine<Meddled>,
    others: Arc<Others>,
    clock: Clock,
}

impl Fixture {
    /// Rows 1 to 3, each of a key of its own, due in so long.
    async fn new(due: Duration) -> Self {
        let clock = Clock::simulated(1);
        let others = Arc::<Others>::default();
        let table = Meddled {
            rows: MemoryTable::new(clock.clone()),
            others: Arc::clone(&others),
        };
        let engine = Engine::new(table).clock(clock.clone());
        let rows = (1..=3)
            .map(|number| row(number, &number.to_string(), due))
            .collect();
        engine.insert(rows).await.unwrap();
        Self {
            engine,
            others,
            clock,
        }
    }

    fn meanwhile(&self, changes: Vec<Change>) {
        *self.others.quicker.lock().unwrap() = Some(Quicker::Changes(changes));
    }

    async fn change(&self, changes: Vec<Change>) -> Vec<Answer> {
        let found = self.engine.change(changes).await.unwrap().found;
        found.into_iter().map(Result::unwrap).collect()
    }

    async fn get(&self, number: u8) -> Task {
        self.engine.find(&id(number).into()).await.unwrap().unwrap()
    }

    /// The claim of every row that is due.
    async fn claimed(&self, lease: Duration) -> Vec<Task> {
        self.engine.ready(&claim(lease)).await.unwrap().found
    }
}

fn id(number: u8) -> TaskId {
    TaskId::from_bytes([number; 16])
}

fn row(number: u8, key: &str, due: Duration) -> NewRow {
    NewRow {
        id: id(number),
        kind: "k".into(),
        key: Some(key.into()),
        payload: vec![number],
        headers: Default::default(),
        due: When::After(due),
        look_in: due,
        max_attempts: None,
        replace: false,
        note: Default::default(),
    }
}

fn claim(lease: Duration) -> Claim {
    Claim {
        owner: "me".into(),
        lease,
        room: [(Kind::from("k"), 9)].into(),
        bytes: usize::MAX,
        history: Default::default(),
    }
}

fn change(number: u8, verb: Verb) -> Change {
    Change {
        target: id(number).into(),
        verb,
        expect: Expect::Anything,
        note: Default::default(),
    }
}

fn later(number: u8) -> Change {
    let (due, look_in) = (When::After(2 * LONG), LONG);
    change(number, Verb::Reschedule { due, look_in })
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_was_quicker_with_is_read_again_and_decided_anew() {
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

    // Who says what it has to be like is told that it is not.
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
async fn a_row_that_others_always_are_quicker_with_is_an_error_that_passes() {
    let fixture = Fixture::new(LONG).await;
    fixture.meanwhile(vec![later(1)]);
    fixture.others.always.store(true, Ordering::Relaxed);
    let began = fixture.clock.instant();
    let changes = vec![change(1, Verb::Cancel)];
    let found = fixture.engine.change(changes).await.unwrap().found;
    assert!(found[0].as_ref().unwrap_err().is_transient(), "{found:?}");
    assert!((ENOUGH..2 * ENOUGH).contains(&began.elapsed()));
    assert!(*fixture.others.writes.lock().unwrap() < 200);
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
    let redrive = Verb::Redrive { look_in: LONG };
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
async fn a_step_of_a_row_that_somebody_else_was_quicker_with_is_lost() {
    let fixture = Fixture::new(LONG).await;
    fixture.meanwhile(vec![later(1)]);
    let hops = [1, 2].map(|number| Step::hop(id(number), 1, LONG));
    let came = fixture.engine.advance(&hops).await.unwrap();
    assert_eq!(came, [Guarded::Lost, Guarded::Done]);
    assert_eq!((fixture.get(1).await.hop, fixture.get(2).await.hop), (0, 1));
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
async fn a_row_that_stays_locked_is_an_error_that_passes_and_holds_up_no_other() {
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
async fn a_row_that_cannot_be_read_is_an_error_of_who_means_it_alone() {
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
