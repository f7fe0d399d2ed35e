//! Cases of [`Store::keep`](crate::store::Store::keep), and of claims of kinds of which different things are noted.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::StoreFixture;
use super::trial::*;
use crate::State;
use crate::store::{Claim, Histories, History, Keep, Verb};

const OTHER: &str = "invoice.remind";

impl Trial<'_> {
    fn keep(&self, kind: &str, keep: Keep) {
        self.store.keep(&Arc::new([(kind.into(), keep)].into()));
    }
}

pub(super) async fn rows_of_a_kind_stay_as_long_as_is_said_of_it(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    trial.keep(KIND, Keep::new().ended(NONE));
    let mut n = 0;
    for kind in [KIND, OTHER] {
        for state in [State::Done, State::Cancelled, State::Dead] {
            n += 1;
            let row = trial.add(due(n).of(kind)).await;
            trial.bring(&row, state).await;
        }
    }
    assert_eq!(trial.purge(MANY).await, 2);
    for (n, is_there) in (1..=6).zip([false, false, true, true, true, true]) {
        assert_eq!(trial.find(id(n)).await.is_some(), is_there, "{n}");
    }
    // Said anew, it holds for what ends from then on.
    trial.keep(OTHER, Keep::new().ended(NONE));
    for (n, kind) in [(7, KIND), (8, OTHER)] {
        let row = trial.add(due(n).of(kind)).await;
        trial.bring(&row, State::Done).await;
    }
    assert_eq!(trial.purge(MANY).await, 1);
    assert!(trial.find(id(7)).await.is_some() && trial.find(id(8)).await.is_none());
}

pub(super) async fn dead_rows_are_removed_where_that_is_said(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    for (n, time) in [(1, LONG), (2, NONE), (3, NONE)] {
        trial.keep(KIND, Keep::new().dead(time));
        let row = trial.row_in(State::Dead, n, &n.to_string()).await;
        assert!(row.wake_at.is_some(), "{row:?}");
    }
    let other = trial.add(due(4).of(OTHER)).await;
    assert_eq!(trial.bring(&other, State::Dead).await.wake_at, None);
    let redrive = Verb::Redrive { overdue_after: LONG };
    assert!(trial.change(id(3), redrive).await.is_done());
    assert_eq!(trial.purge(MANY).await, 1);
    for (n, is_there) in (1..=4).zip([true, false, true, true]) {
        assert_eq!(trial.find(id(n)).await.is_some(), is_there, "{n}");
    }
}

pub(super) async fn claims_are_noted_of_those_kinds_of_which_it_is_said(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let all = BTreeMap::from([(KIND.into(), Keep::new().history(History::All))]);
    let claim = |room, bytes| Claim {
        history: Histories::from(History::Off).but(&all),
        bytes,
        ..claim(&[(KIND, room), (OTHER, room)])
    };
    let row = |n: u64| overdue(n).of(if n.is_multiple_of(2) { KIND } else { OTHER });
    for n in 1..=8 {
        trial
            .add(crate::store::NewRow {
                payload: vec![0; 8],
                ..row(n)
            })
            .await;
    }
    // By each way there is; each within its room, and no more bytes than there are for all together.
    let two = trial.ready(&claim(1, usize::MAX)).await;
    assert_eq!(ids(&two), [id(1), id(2)]);
    // Neither those kinds nor the others always come first.
    let two = [trial.ready(&claim(9, 1)).await, trial.ready(&claim(9, 1)).await];
    let mut two = ids(&two.concat());
    two.sort();
    assert_eq!(two, [id(3), id(4)]);
    let wakes = [wake(&trial.get(id(5)).await), wake(&trial.get(id(6)).await)];
    let looked = trial.arrive(&wakes, &claim(9, usize::MAX)).await;
    assert_eq!(looked.claimed.len(), 2);
    let looked = trial.sweep(&claim(9, usize::MAX), MANY, NONE).await;
    assert_eq!(looked.claimed.len(), 2);
    for n in 1..=8 {
        assert_eq!(trial.get(id(n)).await.state, State::Running, "{n}");
        let noted = ok(trial.store.history(id(n)).await).history;
        assert_eq!(noted.contains("claimed"), n.is_multiple_of(2), "{n}: {noted:?}");
    }
}
