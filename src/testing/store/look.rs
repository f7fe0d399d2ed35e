//! Cases of reads: find, list, upcoming, now; and of empty batches.

use std::collections::BTreeMap;
use std::time::Duration;

use super::StoreFixture;
use super::trial::*;
use crate::store::{Ahead, NewRow, Page, PollResult, When};
use crate::{Kind, State, Task, TaskId, Timestamp};

pub(super) async fn a_row_is_found_by_id_and_by_key(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, state) in (1..).zip(State::ALL) {
        let key = n.to_string();
        let task = trial.row_in(state, n, &key).await;
        assert_eq!(trial.find(id(n)).await, Some(task.clone()));
        assert_eq!(trial.find(target(KIND, &key)).await, Some(task));
    }
    assert_eq!(trial.find(id(99)).await, None);
    assert_eq!(trial.find(target(KIND, "99")).await, None);
    assert_eq!(trial.find(target("other", "1")).await, None);
}

pub(super) async fn a_list_is_of_one_kind_and_state(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let mut n = 0;
    for kind in ["a", "b"] {
        for state in State::ALL {
            for _ in 0..2 {
                n += 1;
                let task = trial.add(due(n).of(kind)).await;
                trial.bring(&task, state).await;
            }
        }
    }
    n = 0;
    for kind in ["a", "b"] {
        for state in State::ALL {
            let mut listed = ids(&trial.list(kind, state, MANY).await);
            listed.sort();
            assert_eq!(listed, [id(n + 1), id(n + 2)]);
            n += 2;
        }
    }
    assert_eq!(trial.list("c", State::Done, MANY).await, []);
}

pub(super) async fn a_list_goes_on_after_its_last_row(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    // Several rows of each due time, and ids on both sides of the sign bit.
    let place = |n: u8| {
        let mut bytes = [0; 16];
        bytes[0] = n.wrapping_mul(97);
        bytes[15] = n;
        let due_at = Timestamp::from_millis(4_000_000_000_000 + i64::from(n % 4));
        (due_at, TaskId::from_bytes(bytes))
    };
    let mut expected: Vec<_> = (0..23).map(place).collect();
    for &(due_at, id) in &expected {
        trial
            .add(NewRow {
                id,
                ..due(0).at(due_at)
            })
            .await;
    }
    expected.sort();
    for limit in [1, 4, 5, 23, 24] {
        let mut seen = Vec::new();
        let mut page = Page::new(KIND, State::Scheduled).limit(limit);
        loop {
            let rows = ok(trial.store.list(&page).await);
            assert!(rows.len() <= limit);
            let Some(last) = rows.last() else {
                break;
            };
            page.after = Some((last.due_at, last.id));
            seen.extend(rows.iter().map(|row| (row.due_at, row.id)));
            assert!(
                seen.len() <= expected.len(),
                "a row came twice in pages of {limit}"
            );
        }
        assert_eq!(seen, expected, "in pages of {limit}");
    }
}

pub(super) async fn a_page_goes_on_though_its_last_row_is_gone(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for n in 1..=4 {
        let time = Timestamp::from_millis(4_000_000_000_000);
        trial.add(due(n).at(time)).await;
    }
    let first = trial.list(KIND, State::Scheduled, 2).await;
    assert_eq!(ids(&first), [id(1), id(2)]);
    trial.bring(&first[1], State::Cancelled).await;
    let page = Page::new(KIND, State::Scheduled).after(&first[1]).limit(MANY);
    assert_eq!(ids(&ok(trial.store.list(&page).await)), [id(3), id(4)]);
}

pub(super) async fn a_lean_list_is_without_payloads_and_headers(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let headers = BTreeMap::from([("name".to_owned(), "value".to_owned())]);
    let row = NewRow {
        payload: b"7".to_vec(),
        headers,
        ..due(1)
    };
    let task = trial.add(row).await;
    let lean = Task {
        payload: Vec::new(),
        headers: BTreeMap::new(),
        ..task.clone()
    };
    let page = Page::new(KIND, State::Scheduled);
    assert_eq!(ok(trial.store.list(&page).await), [task]);
    assert_eq!(ok(trial.store.list(&page.lean()).await), [lean]);
}

pub(super) async fn kinds_are_those_that_have_rows_in_the_state(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let mut n = 0;
    for kind in ["b", "a", "a", "a.b", "Z", "\u{e9}", "A"] {
        n += 1;
        trial.add(due(n).of(kind)).await;
    }
    let store = &trial.store;
    let names = |kinds: &[&str]| kinds.iter().map(|&kind| Kind::from(kind)).collect::<Vec<_>>();
    assert_eq!(
        ok(store.kinds(State::Scheduled, None, MANY).await),
        names(&["A", "Z", "a", "a.b", "b", "\u{e9}"])
    );
    for state in [State::Running, State::Done, State::Dead, State::Cancelled] {
        assert_eq!(ok(store.kinds(state, None, MANY).await), []);
        n += 1;
        let task = trial.add(due(n).of("c")).await;
        trial.bring(&task, state).await;
        assert_eq!(ok(store.kinds(state, None, MANY).await), names(&["c"]));
    }
    assert_eq!(ok(store.kinds(State::Scheduled, None, MANY).await).len(), 6);
    let mut paged = Vec::new();
    while let page = ok(store.kinds(State::Scheduled, paged.last(), 2).await)
        && !page.is_empty()
    {
        assert_eq!(page.len(), 2);
        paged.extend(page);
    }
    assert_eq!(paged, names(&["A", "Z", "a", "a.b", "b", "\u{e9}"]));
}

pub(super) async fn upcoming_is_by_due_time_up_to_the_limit(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, minutes) in [(1, 30), (2, 10), (3, 20), (4, 40)] {
        let row = NewRow {
            due: When::After(Duration::from_secs(minutes * 60)),
            // `wake_at` is in another order.
            overdue_after: Duration::from_secs(60 * n),
            ..due(n).of(["a", "b"][n as usize % 2])
        };
        trial.add(row).await;
    }
    let upcoming = |limit| trial.upcoming(LONG, limit);
    let order = |found: Vec<crate::store::Pending>| -> Vec<_> {
        found.iter().map(|pending| pending.wake.id).collect()
    };
    assert_eq!(order(upcoming(3).await), [id(2), id(3), id(1)]);
    assert_eq!(order(upcoming(MANY).await), [id(2), id(3), id(1), id(4)]);
    assert_eq!(order(upcoming(0).await), []);
}

pub(super) async fn upcoming_is_due_within_the_time(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, minutes) in [(2, 5), (3, 90)] {
        let row = NewRow {
            due: When::After(Duration::from_secs(minutes * 60)),
            ..due(n)
        };
        trial.add(row).await;
    }
    let expected = [pending(&trial.get(id(2)).await)];
    assert_eq!(trial.upcoming(LONG, MANY).await, expected);
    assert_eq!(trial.upcoming(2 * LONG, MANY).await.len(), 2);
    assert_eq!(trial.upcoming(NONE, MANY).await, []);
}

pub(super) async fn upcoming_leaves_what_was_due_before_to_others(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let past = Timestamp::from_millis(1_000);
    trial.insert(vec![due(1).at(past), overdue(2).at(past)]).await;
    assert_eq!(trial.upcoming(LONG, MANY).await, []);
    // Its wake-up is overdue, but it is not due yet.
    let lost = trial.add(lost(3)).await;
    assert_eq!(trial.upcoming(2 * LONG, MANY).await, [pending(&lost)]);
}

pub(super) async fn upcoming_begins_a_moment_ago(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let ahead = Ahead {
        within: NONE,
        limit: MANY,
    };
    // A busy machine may miss the moment; not a hundred times.
    for n in 1..=100 {
        let task = trial.add(due(n)).await;
        let polled = trial.ahead(ahead).await;
        let late = polled.now.millis_since(task.due_at);
        // Some stores read by several statements, one after the other.
        if 2 * u128::from(late.unsigned_abs()) <= Ahead::SINCE.as_millis() {
            assert!(polled.found.contains(&pending(&task)), "{late} ms late");
            return;
        }
    }
    panic!("a look came too late each time");
}

pub(super) async fn upcoming_is_scheduled_rows_as_they_are(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let states = [State::Running, State::Done, State::Dead, State::Cancelled];
    for (n, state) in (1..).zip(states) {
        trial.row_in(state, n, &n.to_string()).await;
    }
    let before = trial.add(later(9)).await;
    assert!(trial.hop_once(&before).await);
    let after = trial.get(id(9)).await;
    for _ in 0..2 {
        assert_eq!(trial.upcoming(2 * LONG, MANY).await, [pending(&after)]);
    }
    assert_eq!(trial.get(id(9)).await, after);
}

pub(super) async fn time_goes_on(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let mut last = trial.now().await;
    for _ in 0..20 {
        let now = trial.now().await;
        assert!(now >= last, "{now} is before {last}");
        last = now;
    }
    trial.pass(SHORT).await;
    let passed = trial.now().await.millis_since(last);
    assert!(passed >= 100, "{passed} ms have passed");
}

pub(super) async fn every_answer_is_of_the_time_of_its_call(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let store = &trial.store;
    for n in 1..=3 {
        let start = trial.now().await;
        let rows = ok(store.insert(vec![due(n)]).await);
        within(start, rows, trial.now().await);
        let start = trial.now().await;
        let answers = ok(store.change(Vec::new()).await);
        within(start, answers, trial.now().await);
        let start = trial.now().await;
        let polled = ok(store.arrive(&[wake(&trial.get(id(n)).await)], &nothing()).await);
        within(start, polled, trial.now().await);
        let start = trial.now().await;
        let ready = ok(store.ready(&any()).await);
        within(start, ready, trial.now().await);
        let start = trial.now().await;
        let swept = ok(store.sweep(&any(), &plain(MANY, LONG)).await);
        within(start, swept, trial.now().await);
        let start = trial.now().await;
        let ahead = Ahead {
            within: LONG,
            limit: MANY,
        };
        within(start, trial.ahead(ahead).await, trial.now().await);
        for spans in [&[][..], &[NONE, LONG]] {
            let start = trial.now().await;
            let counted = ok(store
                .due_within(&KIND.into(), State::Scheduled, spans, MANY)
                .await);
            within(start, counted, trial.now().await);
        }
        trial.pass(NONE).await;
    }
}

pub(super) async fn an_empty_batch_does_nothing(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let task = trial.add(overdue(1)).await;
    assert_eq!(trial.insert(Vec::new()).await, []);
    assert_eq!(each(trial.store.change(Vec::new()).await), []);
    assert_eq!(trial.arrive(&[], &any()).await, PollResult::default());
    assert_eq!(trial.ready(&nothing()).await, []);
    assert_eq!(trial.advance(&[]).await, [false; 0]);
    assert_eq!(trial.renew(&[], LONG).await, [false; 0]);
    assert_eq!(trial.sweep(&any(), 0, LONG).await, PollResult::default());
    assert_eq!(trial.list(KIND, State::Scheduled, 0).await, []);
    assert_eq!(trial.due_within(KIND, &[], MANY).await, [0; 0]);
    assert_eq!(trial.purge(0).await, 0);
    assert_eq!(trial.get(id(1)).await, task);
}
