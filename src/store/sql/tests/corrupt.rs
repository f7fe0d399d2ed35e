//! Rows that cannot be decoded: edited by hand, or written by a later release. What becomes of them, and of all others, in any
//! SQL database.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::rows::{LEASE, cancel, claim, id, named, new_row};
use crate::store::{Ahead, Claim, Ending, Guarded, NewRow, Page, Renewal, Step, Store, Sweep};
use crate::task::wake::Wake;
use crate::{Answer, Kind, Scheduled, Scheduler, State, TaskId};

/// A database of a test's own, in which rows can be edited by hand.
#[async_trait]
pub(in crate::store) trait Edited: Sized + Send + Sync {
    /// Ways to make a row one that cannot be decoded, each by another column.
    const WAYS: &'static [&'static str];
    /// Those for a claim.
    const OF_CLAIMS: &'static [&'static str];

    async fn empty() -> Self;

    fn store(&self) -> &dyn Store;

    /// A store in the same table that keeps no history.
    async fn forgetful(&self) -> Box<dyn Store>;

    /// Edits rows on a connection of its own.
    async fn edit(&self, sql: &str);

    /// The row of an id, as a condition.
    fn is(id: TaskId) -> String;

    /// The row of the digits that an error has, as a condition, as `docs/databases.md` has it.
    fn has(digits: &str) -> String;
}

/// Tests of a database that is [`Edited`].
macro_rules! corrupt_rows {
    ($edited:ty: $($name:ident),*) => {
        $(#[tokio::test]
        async fn $name() {
            $crate::store::sql::tests::corrupt::$name::<$edited>().await;
        })*
    };
    ($edited:ty) => {
        $crate::store::sql::tests::corrupt::corrupt_rows!($edited:
            it_stops_no_other, a_claim_of_it_holds_up_no_other, many_of_them_are_in_the_way_of_none,
            a_verb_says_of_its_row_alone_that_it_cannot_be_read, a_finished_one_does_not_keep_its_key,
            it_is_removed_from_history, a_mended_one_is_looked_at_again_after_a_while,
            a_claim_of_a_later_release_is_not_put_aside, kinds_are_told_beside_it,
            a_pause_lets_nothing_start_and_is_found_by_what_its_errors_say);
    };
}

pub(in crate::store) use corrupt_rows;

fn sweep(limit: usize) -> Sweep {
    let ahead = Ahead {
        within: LEASE,
        limit: 100,
    };
    Sweep {
        limit,
        retake: LEASE,
        ahead: Some(ahead),
    }
}

fn done(id: TaskId, version: u64) -> Step {
    Step::end(id, version, Ending::Done)
}

async fn insert(edited: &impl Edited, rows: Vec<NewRow>) -> Vec<Scheduled> {
    let answers = edited.store().insert(rows).await.unwrap().found;
    answers.into_iter().map(Result::unwrap).collect()
}

async fn insert_due(edited: &impl Edited, numbers: impl IntoIterator<Item = usize>) {
    let row = |number| new_row(number, Duration::ZERO);
    insert(edited, numbers.into_iter().map(row).collect()).await;
}

async fn edit<E: Edited>(edited: &E, number: usize, how: &str) {
    let row = E::is(id(number));
    edited
        .edit(&format!("UPDATE delayline_tasks SET {how} WHERE {row}"))
        .await;
}

/// A row that is due before all others, and cannot be decoded.
async fn corrupt(edited: &impl Edited, number: usize, how: &str) {
    insert_due(edited, [number]).await;
    edit(edited, number, &format!("due_at = due_at - 1000, {how}")).await;
}

pub(in crate::store) async fn it_stops_no_other<E: Edited>() {
    for how in E::WAYS {
        let edited = E::empty().await;
        let store = edited.store();
        corrupt(&edited, 0, how).await;
        insert_due(&edited, 1..21).await;
        let soon = |number| new_row(number, Duration::from_secs(20));
        insert(&edited, (100..105).map(soon).collect()).await;
        let ahead = store.sweep(&claim(0), &sweep(0)).await.unwrap().found.ahead;
        assert!(ahead.len() >= 5, "{how}");
        let page = Page::new("k", State::Scheduled).limit(10);
        assert_eq!(store.list(&page).await.unwrap().len(), 10, "{how}");

        let wakes = (0..6).map(|number| Wake {
            id: id(number),
            kind: "k".into(),
            version: 1,
        });
        let wakes = Vec::from_iter(wakes);
        let arrived = store.arrive(&wakes, &claim(100)).await.unwrap().found;
        assert_eq!(arrived.claimed.len(), 5, "{how}");
        let ready = store.ready(&claim(5)).await.unwrap().found;
        assert_eq!(ready.len(), 5, "{how}");
        let swept = store.sweep(&claim(100), &sweep(500)).await.unwrap().found;
        assert_eq!(swept.claimed.len(), 10, "{how}");
        assert_eq!(store.purge(100).await.unwrap(), 0, "{how}");
    }
}

pub(in crate::store) async fn a_claim_of_it_holds_up_no_other<E: Edited>() {
    // Each is read before a claim is renewed or ended.
    for how in E::OF_CLAIMS {
        let edited = E::empty().await;
        let store = edited.store();
        insert_due(&edited, 0..3).await;
        store.ready(&claim(2)).await.unwrap();
        edit(&edited, 0, how).await;

        let renewal = |number| Renewal {
            id: id(number),
            version: 2,
            started: true,
        };
        let renewed = store.renew(&[renewal(0), renewal(1)], LEASE).await.unwrap();
        assert_eq!(renewed, [Guarded::Blocked, Guarded::Done], "{how}");
        let hop = |number| Step::hop(id(number), 1, LEASE);
        let hopped = store.advance(&[hop(0), hop(2)]).await.unwrap();
        assert_eq!(hopped, [Guarded::Blocked, Guarded::Done], "{how}");
        let settled = store.advance(&[done(id(0), 2), done(id(1), 2)]).await.unwrap();
        assert_eq!(settled, [Guarded::Blocked, Guarded::Done], "{how}");
    }
}

pub(in crate::store) async fn many_of_them_are_in_the_way_of_none<E: Edited>() {
    for is_swept in [false, true] {
        let edited = E::empty().await;
        let store = edited.store();
        for number in 0..10 {
            corrupt(&edited, number, E::WAYS[number % 2]).await;
        }
        insert_due(&edited, 10..14).await;
        // Less room, and a lower limit, than there are rows to leave out.
        let mut claimed = 0;
        match is_swept {
            false => {
                claimed = store.ready(&claim(2)).await.unwrap().found.len();
                assert_eq!(claimed, 2);
            }
            true => {
                for _ in 0..20 {
                    let looked = store.sweep(&claim(2), &sweep(2)).await.unwrap().found;
                    claimed += looked.claimed.len();
                }
                assert_eq!(claimed, 4);
            }
        }
    }
}

pub(in crate::store) async fn a_verb_says_of_its_row_alone_that_it_cannot_be_read<E: Edited>() {
    let edited = E::empty().await;
    let store = edited.store();
    insert(&edited, vec![named(1, "a"), named(2, "b"), new_row(3, LEASE)]).await;
    edit(&edited, 1, "headers = 'x'").await;
    edit(&edited, 3, "state = 9").await;

    let rows = vec![named(4, "a"), named(5, "c"), new_row(1, LEASE), named(6, "b")];
    let answers = store.insert(rows).await.unwrap().found;
    assert!(matches!(answers[1], Ok(Scheduled::New(_))));
    assert!(matches!(answers[3], Ok(Scheduled::Existing(_))));
    for refused in [&answers[0], &answers[2]] {
        let error = refused.as_ref().unwrap_err();
        assert!(!error.is_transient());
        assert!(error.to_string().contains("headers"), "{error}");
    }

    let changes = vec![
        cancel(id(1)),
        cancel(id(2)),
        cancel(("k", "a")),
        cancel(id(3)),
        cancel(id(9)),
    ];
    let answers = store.change(changes).await.unwrap().found;
    let [
        Err(by_id),
        Ok(Answer::Done(_)),
        Err(by_key),
        Err(by_state),
        Ok(Answer::NotFound),
    ] = &answers[..]
    else {
        panic!("{answers:?}");
    };
    assert!(
        by_state.to_string().contains("state has the value 9"),
        "{by_state}"
    );
    for error in [by_id, by_key] {
        assert!(
            !error.is_transient() && error.to_string().contains("headers"),
            "{error}"
        );
    }
    assert!(store.find(&("k", "a").into()).await.is_err());
    let page = Page::new("k", State::Scheduled).limit(1);
    assert_eq!(store.list(&page).await.unwrap().len(), 1);
}

pub(in crate::store) async fn a_finished_one_does_not_keep_its_key<E: Edited>() {
    let edited = E::empty().await;
    let store = edited.store();
    insert(&edited, vec![named(1, "a")]).await;
    let cancelled = store.change(vec![cancel(id(1))]).await.unwrap().found;
    assert!(matches!(cancelled[..], [Ok(Answer::Done(_))]));
    edit(&edited, 1, "headers = 'x'").await;
    // Of what has ended nothing can be said, and nothing need be for a new row.
    assert!(store.find(&("k", "a").into()).await.is_err());
    let added = insert(&edited, vec![named(2, "a"), named(3, "a")]).await;
    assert!(matches!(added[..], [Scheduled::New(_), Scheduled::Existing(_)]));
    assert_eq!(store.find(&("k", "a").into()).await.unwrap().unwrap().id, id(2));
}

pub(in crate::store) async fn it_is_removed_from_history<E: Edited>() {
    let edited = E::empty().await;
    let store = edited.forgetful().await;
    insert_due(&edited, 1..3).await;
    store.change(vec![cancel(id(1)), cancel(id(2))]).await.unwrap();
    for number in 1..3 {
        edit(&edited, number, "headers = 'x'").await;
    }
    assert_eq!(store.purge(100).await.unwrap(), 2);
}

pub(in crate::store) async fn a_mended_one_is_looked_at_again_after_a_while<E: Edited>() {
    let edited = E::empty().await;
    let store = edited.store();
    // By a claim, and by a sweep, it is put out of the way.
    for is_swept in [false, true] {
        let number = 1 + usize::from(is_swept);
        corrupt(&edited, number, "headers = 'x'").await;
        let found = match is_swept {
            false => store.ready(&claim(9)).await.unwrap().found,
            true => store.sweep(&claim(9), &sweep(9)).await.unwrap().found.claimed,
        };
        assert_eq!(found, []);
        // As often as it is looked at while it cannot be read: no worker had it, so none went away.
        for _ in 0..3 {
            edit(&edited, number, "wake_at = 0").await;
            let swept = store.sweep(&claim(9), &sweep(9)).await.unwrap().found;
            assert_eq!((swept.expired, swept.claimed.len()), (1, 0), "swept: {is_swept}");
        }
        edit(&edited, number, "headers = '{}'").await;
        assert_eq!(store.sweep(&claim(9), &sweep(9)).await.unwrap().found.expired, 0);
        edit(&edited, number, "wake_at = 0").await;
        let swept = store.sweep(&claim(9), &sweep(9)).await.unwrap().found;
        assert_eq!((swept.expired, swept.claimed.len()), (1, 1), "swept: {is_swept}");
        // As it was: it had no attempt, and has its first.
        let row = &swept.claimed[0];
        assert_eq!((row.attempt, row.stalls, row.headers.len()), (1, 0, 0));
        let end = done(swept.claimed[0].id, swept.claimed[0].version);
        assert_eq!(store.advance(&[end]).await.unwrap(), [Guarded::Done]);
    }
}

pub(in crate::store) async fn a_claim_of_a_later_release_is_not_put_aside<E: Edited>() {
    let edited = E::empty().await;
    let store = edited.store();
    insert_due(&edited, [1]).await;
    let claimed = store.ready(&claim(1)).await.unwrap().found;
    edit(&edited, 1, "headers = 'x'").await;
    store.sweep(&claim(9), &sweep(9)).await.unwrap();
    edit(&edited, 1, "headers = '{}'").await;
    assert_eq!(store.find(&id(1).into()).await.unwrap().as_ref(), claimed.first());
}

pub(in crate::store) async fn kinds_are_told_beside_it<E: Edited>() {
    let edited = E::empty().await;
    let store = edited.store();
    corrupt(&edited, 0, E::WAYS[0]).await;
    let other = NewRow {
        kind: "other".into(),
        ..new_row(1, LEASE)
    };
    insert(&edited, vec![other]).await;
    let kinds = store.kinds(State::Scheduled, None, 10).await.unwrap();
    assert_eq!(kinds, [Kind::from("k"), Kind::from("other")]);
    let lone = Claim {
        room: [(Kind::from("other"), 1)].into(),
        ..claim(0)
    };
    assert!(store.ready(&lone).await.unwrap().found.is_empty());
}

pub(in crate::store) async fn a_pause_lets_nothing_start_and_is_found_by_what_its_errors_say<E: Edited>() {
    let edited = E::empty().await;
    insert_due(&edited, [1]).await;
    let scheduler = async || {
        let store = Arc::from(edited.forgetful().await);
        Scheduler::builder(store).build().unwrap()
    };
    let pause = async |scheduler: &Scheduler| scheduler.pause("k", None, "the bank is down").await;
    pause(&scheduler().await).await.unwrap();
    edited
        .edit("UPDATE delayline_tasks SET headers = 'x' WHERE kind = 'delayline.paused'")
        .await;
    // A process that has heard of no pause.
    let other = scheduler().await;
    let error = other.paused().await.unwrap_err().to_string();
    let (_, digits) = error.split_once("the row ").unwrap();
    let (digits, _) = digits.split_once(' ').unwrap();
    let claims = other.claims();
    let take = async || claims.take(&["k".into()], 1, LEASE, "me").await;
    for refused in [
        take().await.map(drop).unwrap_err(),
        pause(&other).await.unwrap_err(),
        other.resume("k").await.unwrap_err(),
    ] {
        // So that it is asked for again, and a worker does not give up.
        assert!(refused.is_transient());
        assert_eq!(refused.to_string(), error);
    }
    let has = E::has(digits);
    edited
        .edit(&format!(
            "DELETE FROM delayline_tasks WHERE kind = 'delayline.paused' AND {has}"
        ))
        .await;
    assert_eq!(other.paused().await.unwrap(), []);
    assert_eq!(take().await.unwrap().len(), 1);
}
