//! A life of rows in which every statement of a store has its part, for tests of what else is in the database.

use std::time::Duration;

use crate::store::{
    Ahead, Change, Claim, Ending, Expect, Guarded, History, NewRow, Note, Page, Renewal, Step, Store, Sweep,
    Target, Transaction, Verb, When,
};
use crate::task::wake::Wake;
use crate::{Answer, Kind, Scheduled, State, TaskId};

const LONG: Duration = Duration::from_secs(3_600);

fn id(number: u64) -> TaskId {
    TaskId::from_bytes(u128::from(number).to_be_bytes())
}

fn kind(first: u64) -> Kind {
    format!("life.{first}").into()
}

fn note() -> Note {
    Note {
        event: Some("noted".to_owned()),
    }
}

fn new(first: u64, number: u64, due: Duration) -> NewRow {
    NewRow {
        id: id(first + number),
        kind: kind(first),
        key: Some(format!("key-{number}").into()),
        payload: b"payload".to_vec(),
        headers: [("name".to_owned(), "value".to_owned())].into(),
        due: When::After(due),
        overdue_after: due,
        max_attempts: Some(7),
        replace: false,
        note: note(),
    }
}

fn change(target: impl Into<Target>, verb: Verb) -> Change {
    Change {
        target: target.into(),
        verb,
        expect: Expect::Anything,
        note: note(),
    }
}

fn claim(first: u64, lease: Duration) -> Claim {
    Claim {
        owner: "me".into(),
        lease,
        room: [(kind(first), 100)].into(),
        bytes: usize::MAX,
        history: History::All.into(),
    }
}

/// Has rows scheduled, changed, claimed, ended, looked at and removed, by a store that keeps no history: those of a hundred
/// numbers.
pub(in crate::store) async fn live(store: &dyn Store, first: u64) {
    let now = Duration::ZERO;
    // Alone, a few and many; and what is there already.
    store.insert(vec![new(first, 0, LONG)]).await.unwrap();
    let many = |numbers: std::ops::Range<u64>, due| numbers.map(|n| new(first, n, due)).collect::<Vec<_>>();
    for rows in [many(1..4, LONG), many(4..40, now)] {
        let inserted = store.insert(rows).await.unwrap().found;
        assert!(inserted.iter().all(|new| matches!(new, Ok(Scheduled::New(_)))));
    }
    let again = NewRow {
        id: id(first + 99),
        ..new(first, 0, LONG)
    };
    let replacing = NewRow {
        replace: true,
        ..again.clone()
    };
    let answers = store.insert(vec![again, replacing, new(first, 50, LONG)]).await;
    let answers = answers.unwrap().found.into_iter().map(Result::unwrap);
    let answers: Vec<_> = answers.collect();
    assert!(
        matches!(
            *answers,
            [Scheduled::Existing(_), Scheduled::Replaced(_), Scheduled::New(_)]
        ),
        "{answers:?}"
    );

    // One, a few alike, and many that differ.
    let later = |n: u64| Verb::Reschedule {
        due: When::After(LONG + Duration::from_secs(n)),
        overdue_after: LONG,
    };
    let by_key = |n: u64| Target::Key(kind(first), format!("key-{n}").into());
    let moves = (10..20).map(|n| change(by_key(n), later(n)));
    for changes in [
        vec![change(id(first), later(0))],
        vec![
            change(by_key(1), Verb::RunNow { overdue_after: LONG }),
            change(by_key(2), Verb::RunNow { overdue_after: LONG }),
        ],
        moves.collect(),
        vec![change(by_key(3), Verb::Cancel)],
    ] {
        let changed = store.change(changes).await.unwrap().found;
        assert!(
            changed
                .iter()
                .all(|answer| answer.as_ref().is_ok_and(Answer::is_done)),
            "{changed:?}"
        );
    }

    // Claims: by name, what is due, and of a lease that ends.
    let wakes = [4, 5, 50].map(|n| Wake {
        id: id(first + n),
        kind: kind(first),
        version: 1,
    });
    let looked = store.arrive(&wakes, &claim(first, LONG)).await.unwrap().found;
    assert_eq!((looked.claimed.len(), looked.early.len()), (2, 1));
    let claimed = looked.claimed;
    assert!(claimed.iter().all(|row| row.payload == b"payload"), "{claimed:?}");
    let renewals = claimed.iter().map(|row| Renewal {
        id: row.id,
        version: row.version,
        started: true,
    });
    let renewals: Vec<_> = renewals.collect();
    assert_eq!(store.renew(&renewals, LONG).await.unwrap(), [Guarded::Done; 2]);
    let due = store.ready(&claim(first, now)).await.unwrap().found;
    // 1 and 2, and those from 6 to 39 but for ten that were moved.
    assert_eq!(due.len(), 26);
    let sweep = Sweep {
        limit: 100,
        retake: LONG,
        ahead: Some(Ahead {
            within: 2 * LONG,
            limit: 100,
        }),
    };
    let swept = store.sweep(&claim(first, LONG), &sweep).await.unwrap().found;
    let of_life: Vec<_> = swept
        .claimed
        .iter()
        .filter(|row| row.kind == kind(first))
        .collect();
    assert_eq!(of_life.len(), 26);
    assert!(swept.ahead.iter().any(|row| row.wake.id == id(first)));

    // Ends that differ, and hops.
    let (after, overdue_after, error) = (now, LONG, "no luck".to_owned());
    let endings = [
        Ending::Done,
        Ending::Retry {
            after,
            overdue_after,
            error: error.clone(),
        },
        Ending::Snooze {
            after,
            overdue_after,
            reason: Some("later".to_owned()),
        },
        Ending::Again { after, overdue_after },
        Ending::Release,
        Ending::Dead {
            error,
            give_back: false,
        },
        Ending::Cancelled,
    ];
    let ends = of_life.iter().zip(endings.iter().cycle());
    let ends = ends.map(|(row, ending)| Step::end(row.id, row.version, ending.clone()).with_note(note()));
    let ends: Vec<_> = ends.collect();
    let dead: Vec<_> = ends.iter().skip(5).step_by(7).map(|step| step.id).collect();
    assert_eq!(store.advance(&ends).await.unwrap(), [Guarded::Done; 26]);
    let done: Vec<_> = claimed
        .iter()
        .map(|row| Step::end(row.id, row.version, Ending::Done))
        .collect();
    assert_eq!(store.advance(&done).await.unwrap(), [Guarded::Done; 2]);
    let hop = Step::hop(id(first + 50), 1, LONG);
    assert_eq!(store.advance(&[hop]).await.unwrap(), [Guarded::Done]);
    let [redriven, dismissed, ..] = *dead else {
        panic!("{dead:?}");
    };
    let revived = [
        change(redriven, Verb::Redrive { overdue_after: LONG }),
        change(dismissed, Verb::Dismiss),
    ];
    let revived = store.change(revived.into()).await.unwrap().found;
    assert!(revived.iter().flatten().all(Answer::is_done), "{revived:?}");

    // Looks, each of which finds something.
    let found = store.find(&id(first).into()).await.unwrap().unwrap();
    assert_eq!((found.max_attempts, found.headers.len()), (Some(7), 1));
    assert_eq!(store.find(&by_key(0)).await.unwrap(), Some(found));
    let page = store
        .list(&Page::new(kind(first), State::Scheduled))
        .await
        .unwrap();
    assert!(page.len() > 10);
    let kinds = store.kinds(State::Scheduled, None, 100).await.unwrap();
    assert!(kinds.contains(&kind(first)));
    let (kind, spans) = (kind(first), [now, 2 * LONG]);
    let counted = store.due_within(&kind, State::Scheduled, &spans, 100).await;
    let counted = counted.unwrap().found;
    assert!(counted[0] > 0 && counted[1] == page.len(), "{counted:?}");
    let history = store.history(id(first)).await.unwrap();
    assert!(history.history.contains("noted"));
    assert!(store.purge(100).await.unwrap() > 0);
    let left = [State::Done, State::Cancelled].map(|state| Page::new(kind.clone(), state));
    for page in left {
        assert_eq!(store.list(&page).await.unwrap(), []);
    }
}

/// Schedules, changes and finds rows in a transaction that a service has begun, and finishes what was claimed before it began.
pub(in crate::store) async fn join(transaction: &mut dyn Transaction, claimed: (TaskId, u64), first: u64) {
    let rows = (60..64).map(|n| new(first, n, LONG)).collect();
    let inserted = transaction.insert(rows).await.unwrap().found;
    assert!(inserted.iter().all(|new| matches!(new, Scheduled::New(_))));
    let changes = (60..63).map(|n| change(id(first + n), Verb::Cancel)).collect();
    let changed = transaction.change(changes).await.unwrap().found;
    assert!(changed.iter().all(Answer::is_done), "{changed:?}");
    let found = transaction.find(&id(first + 63).into()).await.unwrap();
    assert_eq!(found.unwrap().state, State::Scheduled);
    let (id, version) = claimed;
    assert!(transaction.finish(id, version, note()).await.unwrap());
}

/// A row that is claimed.
pub(in crate::store) async fn claimed(store: &dyn Store, first: u64) -> (TaskId, u64) {
    store.insert(vec![new(first, 70, Duration::ZERO)]).await.unwrap();
    let claimed = store.ready(&claim(first, LONG)).await.unwrap().found;
    let row = claimed.iter().find(|row| row.id == id(first + 70)).unwrap();
    (row.id, row.version)
}
