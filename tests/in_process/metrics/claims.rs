//! Tasks that are claimed without a worker.

use std::sync::Arc;
use std::time::Duration;

use delayline::claims::{Claimed, Claims};
use delayline::{Kind, NewTask};

use crate::metrics::recorder::{Recorder, of};
use crate::support::{KIND, World, ms, secs};

const LEASE: Duration = secs(30);

async fn take(claims: &Claims, max: usize) -> Vec<Claimed> {
    claims.take(&[Kind::from(KIND)], max, LEASE, "a").await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn claims_are_told_as_the_attempts_of_workers_are() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::new();
    let claims = world.scheduler.claims();
    assert!(take(&claims, 1).await.is_empty());
    world
        .scheduler
        .schedule_all((0..4).map(|n| NewTask::new(KIND, &n)))
        .await
        .unwrap();
    world.pass(ms(300)).await;
    let mut taken = take(&claims, 10).await.into_iter().map(|claimed| claimed.claim);
    let mut next = || taken.next().unwrap();
    let (done, retried, snoozed, discarded) = (next(), next(), next(), next());
    world.pass(secs(2)).await;
    assert!(claims.extend(done, LEASE).await.unwrap());
    assert!(claims.done(done).await.unwrap());
    assert!(!claims.done(done).await.unwrap());
    assert!(claims.retry(retried, "no", None).await.unwrap());
    assert!(claims.snooze(snoozed, secs(600)).await.unwrap());
    assert!(claims.discard(discarded, "never").await.unwrap());
    assert!(!claims.snooze(snoozed, secs(600)).await.unwrap());
    let recorded = recorder.recorded();
    assert_eq!(
        recorded.counts("delayline.verbs"),
        of([
            ("new schedule", 4),
            ("nothing claim", 1),
            ("given claim", 4),
            ("done extend", 1),
            ("done done", 1),
            ("lost done", 1),
            ("done retry", 1),
            ("done snooze", 1),
            ("done discard", 1),
            ("lost snooze", 1),
        ])
    );
    let outcomes = ["done", "retry", "snooze", "dead"];
    let kinds = outcomes.map(|outcome| format!("{KIND} {outcome}"));
    assert_eq!(
        recorded.counts("delayline.attempts"),
        of(kinds.map(|labels| (labels, 1)))
    );
    let processes = outcomes.map(|outcome| format!("{KIND} process delayline {outcome}"));
    assert_eq!(
        recorded.millis("messaging.process.duration"),
        of(processes.map(|labels| (labels, vec![2_000])))
    );
    assert_eq!(
        recorded.millis("delayline.task.lateness"),
        of([(format!("{KIND} claim"), vec![300; 4])])
    );
    assert_eq!(recorded.counts("delayline.wakeups")["claimed claim"], 4);
}

#[tokio::test(start_paused = true)]
async fn of_a_claim_that_another_process_gave_it_is_not_known_of_which_kind_it_was() {
    let recorder = Recorder::new();
    let _listening = recorder.listen();
    let world = World::new();
    let other = world.another_scheduler_over(Arc::new(world.rows.clone()));
    other.schedule(NewTask::new(KIND, &1)).await.unwrap();
    let claim = take(&other.claims(), 1).await[0].claim;
    assert!(world.scheduler.claims().done(claim).await.unwrap());
    let recorded = recorder.recorded();
    assert_eq!(recorded.counts("delayline.attempts"), of([("other done", 1)]));
    assert!(recorded.millis("messaging.process.duration").is_empty());
}
