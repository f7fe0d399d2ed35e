//! Cases of [`Store::insert`](crate::store::Store::insert).

use std::collections::BTreeMap;
use std::time::Duration;

use super::StoreFixture;
use super::trial::*;
use crate::store::{Ending, NewRow, Verb, When};
use crate::{Kind, Scheduled, State, Task, TaskId, Timestamp};

pub(super) async fn a_new_row_is_as_it_was_given(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let start = trial.now().await;
    let headers = BTreeMap::from([("traceparent".to_owned(), "00-ab-cd-01".to_owned())]);
    let row = NewRow {
        payload: b"{\"order\":7}".to_vec(),
        headers: headers.clone(),
        max_attempts: Some(3),
        overdue_after: Duration::from_secs(60),
        ..later(1).named("7")
    };
    let task = trial.add(row).await;
    let span = (start, trial.now().await);

    assert_eq!(task.id, id(1));
    assert_eq!(task.kind, KIND.into());
    assert_eq!(task.key, Some("7".into()));
    assert_eq!(task.payload, b"{\"order\":7}");
    assert_eq!(task.headers, headers);
    assert_eq!(task.max_attempts, Some(3));
    assert_eq!((task.state, task.version), (State::Scheduled, 1));
    assert_eq!((task.attempt, task.hop), (0, 0));
    assert_eq!((&task.owner, &task.last_error), (&None, &None));
    assert_after(span, LONG, task.due_at);
    assert_eq!(task.planned_at, task.due_at);
    assert_after(span, Duration::from_secs(60), task.wake_at);
    assert_after(span, NONE, task.created_at);
    assert_eq!(task.updated_at, task.created_at);
    assert_eq!(task.finished_at, None);
    assert_eq!(trial.get(id(1)).await, task);
}

pub(super) async fn a_calendar_time_is_kept_to_the_millisecond(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, millis) in [(1, 1), (2, 1_234_567_890_123), (3, Timestamp::MAX.as_millis())] {
        let time = Timestamp::from_millis(millis);
        trial.add(due(n).at(time)).await;
        let task = trial.get(id(n)).await;
        assert_eq!(task.due_at, time);
    }
}

pub(super) async fn a_delay_beyond_the_last_moment_ends_there(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let row = NewRow {
        due: When::After(Duration::MAX),
        overdue_after: Duration::MAX,
        ..due(1)
    };
    trial.add(row).await;
    let task = trial.get(id(1)).await;
    assert_eq!(
        (task.due_at, task.wake_at),
        (Timestamp::MAX, Some(Timestamp::MAX))
    );
}

pub(super) async fn a_repeated_insert_finds_the_row_in_whatever_state(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, state) in (1..).zip(State::ALL) {
        let key = n.to_string();
        let task = trial.row_in(state, n, &key).await;
        let other = NewRow {
            payload: b"other".to_vec(),
            ..later(n).named("another key").replacing()
        };
        for again in [due(n).named(&key), due(n).named(&key).replacing(), other] {
            let answers = trial.insert(vec![again]).await;
            assert_eq!(answers, [Scheduled::Existing(task.clone())]);
        }
        assert_eq!(trial.get(id(n)).await, task);
    }
}

pub(super) async fn an_id_twice_in_a_batch_is_one_row(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let answers = trial.insert(vec![due(1), later(1)]).await;
    let [Scheduled::New(first), Scheduled::Existing(second)] = answers.as_slice() else {
        panic!("{answers:?}");
    };
    assert_eq!(first, second);
    assert_eq!(trial.get(id(1)).await, *first);
}

pub(super) async fn a_live_key_is_left_as_it_is(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1).named("a")).await;
    let answers = trial.insert(vec![later(2).named("a")]).await;
    assert_eq!(answers, [Scheduled::Existing(task.clone())]);
    assert_eq!(trial.get(id(1)).await, task);
    assert_eq!(trial.find(id(2)).await, None);
}

pub(super) async fn a_running_key_answers_running_and_is_not_replaced(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.row_in(State::Running, 1, "a").await;
    for row in [due(2).named("a"), due(2).named("a").replacing()] {
        let answers = trial.insert(vec![row]).await;
        assert_eq!(answers, [Scheduled::Running(task.clone())]);
    }
    assert_eq!(trial.get(id(1)).await, task);
    assert_eq!(trial.find(id(2)).await, None);
}

pub(super) async fn a_scheduled_key_is_replaced_where_asked(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let before = tried(&trial, due(1).named("a")).await;
    trial.pass(NONE).await;

    let start = trial.now().await;
    let row = NewRow {
        payload: b"new".to_vec(),
        headers: BTreeMap::from([("new".to_owned(), "yes".to_owned())]),
        max_attempts: Some(9),
        overdue_after: Duration::from_secs(60),
        ..later(2).named("a").replacing()
    };
    let answer = trial.insert(vec![row.clone()]).await.remove(0);
    let span = (start, trial.now().await);
    let Scheduled::Replaced(task) = answer else {
        panic!("{answer:?}");
    };
    assert_after(span, LONG, task.due_at);
    assert_after(span, Duration::from_secs(60), task.wake_at);
    assert_after(span, NONE, task.updated_at);
    let expected = Task {
        payload: row.payload,
        headers: row.headers,
        max_attempts: Some(9),
        version: before.version + 1,
        due_at: task.due_at,
        planned_at: task.due_at,
        wake_at: task.wake_at,
        updated_at: task.updated_at,
        attempt: 0,
        hop: 0,
        last_error: None,
        ..before
    };
    assert_eq!(task, expected);
    assert_eq!(trial.get(id(1)).await, task);
    assert_eq!(trial.find(id(2)).await, None);
}

/// A row that is scheduled and not due, after an attempt, an error and a hop.
pub(super) async fn tried(trial: &Trial<'_>, row: NewRow) -> Task {
    let task = trial.add(row).await;
    let task = trial.claim(&task, &any()).await;
    let retry = Ending::Retry {
        after: LONG,
        overdue_after: LONG,
        error: "no luck".to_owned(),
    };
    assert!(trial.end(&task, retry).await);
    assert!(trial.hop_once(&trial.get(task.id).await).await);
    let task = trial.get(task.id).await;
    assert_eq!((task.attempt, task.hop), (1, 1));
    assert_eq!(task.last_error.as_deref(), Some("no luck"));
    task
}

pub(super) async fn a_wake_of_what_was_replaced_is_stale(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(due(1).named("a")).await;
    trial.insert(vec![due(2).named("a").replacing()]).await;
    assert_eq!(trial.arrive(&[wake(&task)], &any()).await.stale, 1);
    trial.claim(&trial.get(id(1)).await, &any()).await;
}

pub(super) async fn the_key_of_a_finished_row_is_free(fixture: &dyn StoreFixture) {
    for state in [State::Done, State::Dead, State::Cancelled] {
        let trial = Trial::new(fixture).await;
        let old = trial.row_in(state, 1, "a").await;
        let new = trial.add(due(2).named("a").replacing()).await;
        assert_eq!((new.id, new.version), (id(2), 1));
        assert_eq!(trial.get(id(1)).await, old);
    }
}

pub(super) async fn a_key_twice_in_a_batch_is_one_row(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let last = NewRow {
        payload: b"last".to_vec(),
        ..due(3).named("a").replacing()
    };
    let rows = vec![due(1).named("a"), due(2).named("a"), last];
    let answers = trial.insert(rows).await;
    let [
        Scheduled::New(first),
        Scheduled::Existing(second),
        Scheduled::Replaced(third),
    ] = answers.as_slice()
    else {
        panic!("{answers:?}");
    };
    assert_eq!(first, second);
    assert_eq!((third.id, third.version), (id(1), 2));
    assert_eq!(third.payload, b"last");
    assert_eq!(trial.get(id(1)).await, *third);
    assert_eq!(trial.find(id(2)).await, None);
    assert_eq!(trial.find(id(3)).await, None);
}

pub(super) async fn rows_meet_only_in_kind_and_key(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.add(due(1).of("a").named("x")).await;
    trial.add(due(2).of("b").named("x")).await;
    trial.add(due(3).of("a").named("y")).await;
    trial.add(due(4).of("a")).await;
    trial.add(due(5).of("a")).await;
}

pub(super) async fn keys_and_kinds_are_told_apart_by_every_byte(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let names = [
        "a", "A", "á", "a\u{301}", "a ", " a", "ä", "ａ", "a'--", "a%", "a_", "a\\",
    ];
    for (n, key) in (1..).zip(names) {
        trial.add(due(n).named(key)).await;
    }
    for (n, kind) in (101..).zip(names) {
        trial.add(due(n).of(kind).named("x")).await;
    }
    for (n, name) in (1..).zip(names) {
        assert_eq!(trial.find(target(KIND, name)).await, trial.find(id(n)).await);
        let found = trial.find(target(name, "x")).await;
        assert_eq!(
            found.map(|task| (task.id, task.kind)),
            Some((id(100 + n), name.into()))
        );
        assert_eq!(trial.ready(&claim(&[(name, MANY)])).await.len(), 1);
    }
}

pub(super) async fn answers_come_in_the_order_given(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.row_in(State::Running, 1, "running").await;
    trial.row_in(State::Scheduled, 2, "scheduled").await;
    let rows = vec![
        later(30),
        due(12).named("scheduled").replacing(),
        due(20),
        due(11).named("running"),
        due(2),
        due(10).named("new"),
    ];
    let answers = trial.insert(rows).await;
    let said: Vec<_> = answers
        .iter()
        .map(|answer| (answer_name(answer), answer.task().id))
        .collect();
    let expected = [
        ("new", id(30)),
        ("replaced", id(2)),
        ("new", id(20)),
        ("running", id(1)),
        ("existing", id(2)),
        ("new", id(10)),
    ];
    assert_eq!(said, expected);
}

fn answer_name(answer: &Scheduled) -> &'static str {
    match answer {
        Scheduled::New(_) => "new",
        Scheduled::Existing(_) => "existing",
        Scheduled::Replaced(_) => "replaced",
        Scheduled::Running(_) => "running",
    }
}

pub(super) async fn every_value_comes_back_as_it_was(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let headers = BTreeMap::from([
        (
            "trace-ünï".to_owned(),
            "заказ 订单 🚀 \"quoted\" \\ \n 'x'".to_owned(),
        ),
        (String::new(), String::new()),
    ]);
    let widest = NewRow {
        id: TaskId::from_bytes([0xFF; 16]),
        kind: Kind::from("k".repeat(100)),
        key: Some("ß".repeat(127).as_str().into()),
        payload: every_byte.repeat(256),
        headers,
        max_attempts: Some(u32::MAX),
        ..due(0)
    };
    let longest = NewRow {
        id: TaskId::from_bytes([0x80; 16]),
        payload: vec![0],
        ..due(0).named(&"x".repeat(255))
    };
    for row in [due(0), longest, widest] {
        trial.add(row.clone()).await;
        let task = trial.get(row.id).await;
        assert_eq!((task.id, task.kind, task.key), (row.id, row.kind, row.key));
        assert_eq!((task.payload, task.headers), (row.payload, row.headers));
        assert_eq!(task.max_attempts, row.max_attempts);
    }
}

pub(super) async fn a_big_batch_is_taken(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let count = 2_000;
    let rows = (1..=count).map(|n| due(n).named(&n.to_string())).collect();
    let answers = trial.insert(rows).await;
    let new: Vec<_> = answers
        .into_iter()
        .map(|answer| match answer {
            Scheduled::New(task) => task,
            answer => panic!("{answer:?}"),
        })
        .collect();
    assert_eq!(ids(&new), (1..=count).map(id).collect::<Vec<_>>());

    let wakes: Vec<_> = new.iter().map(wake).collect();
    let looked = trial.arrive(&wakes, &any()).await;
    assert_eq!(looked.claimed.len(), wakes.len());
    let claims: Vec<_> = looked
        .claimed
        .iter()
        .map(|task| (task.id, task.version))
        .collect();
    let renewed = trial.renew(&claims, LONG).await;
    assert_eq!(renewed, vec![true; wakes.len()]);
    let ended = trial
        .advance(&settlements(&looked.claimed, &Ending::Release))
        .await;
    assert_eq!(ended, vec![true; wakes.len()]);
    let swept = trial.sweep(&any(), usize::MAX, LONG).await;
    assert_eq!(swept.claimed.len(), wakes.len());
    let ended = trial.advance(&settlements(&swept.claimed, &Ending::Done)).await;
    assert_eq!(ended, vec![true; wakes.len()]);
    assert_eq!(trial.list(KIND, State::Done, usize::MAX).await.len(), wakes.len());
}

pub(super) async fn a_key_whose_lease_has_ended_is_scheduled(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, key) in [(1, "a"), (2, "b")] {
        let task = trial.add(due(n).named(key)).await;
        trial.claim(&task, &fleeting()).await;
    }
    let answer = trial.insert(vec![later(3).named("a")]).await.remove(0);
    assert!(matches!(&answer, Scheduled::Existing(task) if task.id == id(1)));
    assert_eq!(answer.task().state, State::Scheduled);
    let answer = trial
        .insert(vec![later(4).named("b").replacing()])
        .await
        .remove(0);
    let task = trial.get(id(2)).await;
    assert_eq!(answer, Scheduled::Replaced(task.clone()));
    // One transition for the end of the lease, one for the new time.
    assert_eq!((task.state, task.version), (State::Scheduled, 4));
    assert!(task.due_at > trial.now().await);
}

pub(super) async fn a_time_that_has_passed_was_planned_for_now(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let past = Timestamp::from_millis(1_000);
    let start = trial.now().await;
    let task = trial.add(due(1).at(past)).await;
    assert_eq!(task.due_at, past);
    assert_after((start, trial.now().await), NONE, task.planned_at);

    let moved = Verb::Reschedule {
        due: When::At(past),
        overdue_after: LONG,
    };
    trial.pass(NONE).await;
    let start = trial.now().await;
    assert!(trial.change(id(1), moved).await.is_done());
    let task = trial.get(id(1)).await;
    assert_eq!(task.due_at, past);
    assert_after((start, trial.now().await), NONE, task.planned_at);
}
