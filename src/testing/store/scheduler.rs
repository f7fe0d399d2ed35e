//! Cases of what a [`Scheduler`] makes of the answers of its store.

use std::sync::Arc;

use super::StoreFixture;
use super::trial::*;
use crate::{Answer, Edit, Scheduler, Shift};

pub(super) async fn every_verb_takes_a_task_whose_lease_has_ended(fixture: &dyn StoreFixture) {
    let trial = Trial::new(fixture).await;
    let scheduler = ok(Scheduler::builder(Arc::clone(&trial.store)).build());
    let verb = async |n: u64| match n {
        1 => ok(scheduler.reschedule(id(n), LONG).await),
        2 => ok(scheduler.shift(id(n), Shift::Later(LONG)).await),
        3 => ok(scheduler.edit(id(n), Edit::payload("new")).await),
        4 => ok(scheduler.run_now(id(n)).await),
        _ => ok(scheduler.cancel(id(n)).await),
    };
    for n in 1..=5 {
        let held = trial.claim(&trial.add(due(n)).await, &any()).await;
        assert_eq!(verb(n).await, Answer::TooLate(held.clone()));
        assert_eq!(trial.renew(&[(held.id, held.version)], NONE).await, [true]);
        let answer = verb(n).await;
        let now = trial.get(held.id).await;
        assert_eq!(answer, Answer::Done(now.clone()), "verb {n}");
        // One transition for the end of the lease, one for the verb.
        assert_eq!(now.version, held.version + 2);
    }
}
