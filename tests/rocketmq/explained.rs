//! Tests where a wake-up is shown that a broker holds.

use delayline::history::Explanation;
use delayline::store::{History, MemoryStore};
use delayline::{NewTask, Outcome, Scheduler, State, Worker};
use tokio::sync::oneshot;

use super::*;

const KIND: &str = "order.cancel";
/// Level 3 of the table, then level 2, and a rest.
const DELAY: Duration = Duration::from_millis(7_800);

/// Waits until the explanation of the only task is so, and returns it.
async fn until(scheduler: &Scheduler, is_so: impl Fn(&Explanation) -> bool) -> Explanation {
    let told = async {
        loop {
            let told = scheduler
                .explain((KIND, "1"))
                .await
                .unwrap()
                .expect("it is there");
            if is_so(&told) {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SAFETY, told).await.expect("it comes to that")
}

#[tokio::test]
async fn in_the_middle_of_a_chain_the_level_is_told_that_holds_the_wake_up() {
    let backend = Place::new().connect().await;
    let scheduler = Scheduler::builder(Arc::new(MemoryStore::new()))
        .carrier(backend)
        .history(History::All)
        .build()
        .unwrap();
    let worker =
        Worker::new(&scheduler)
            .name("w1")
            .handle_bytes(KIND, delayline::Policy::default(), |_| async {
                Ok(Outcome::Done)
            });
    let (stop, stopped) = oneshot::channel::<()>();
    let working = tokio::spawn(worker.run_until(async move {
        let _ = stopped.await;
    }));
    let task = NewTask::new(KIND, &1).key("1").after(DELAY);
    scheduler.schedule(task).await.unwrap();

    let first = until(&scheduler, |told| told.wake.is_some()).await;
    let second = until(&scheduler, |told| told.task.hop == 1 && told.wake.is_some()).await;
    let mut before = None;
    for (told, level, delay) in [(&first, 3, Duration::from_secs(5)), (&second, 2, TWO)] {
        let wake = told.wake.as_ref().unwrap();
        assert_eq!(
            (wake.leg.backend.as_str(), wake.leg.level),
            ("rocketmq", Some(level))
        );
        assert_eq!(
            (wake.leg.delay, wake.arrives_at),
            (delay, wake.since.after(delay))
        );
        assert!(
            told.task.wake_at > Some(wake.arrives_at),
            "it is missed only then"
        );
        // The level before has held it for as long as was shown.
        assert!(before.is_none_or(|arrived| wake.since >= arrived), "{told:?}");
        before = Some(wake.arrives_at);
        // And the plan is what is left.
        let plan: Duration = told.plan.as_ref().unwrap().iter().map(|leg| leg.delay).sum();
        let left = told.task.due_at.millis_since(wake.arrives_at);
        let off = plan.abs_diff(Duration::from_millis(left.unsigned_abs()));
        assert!(off <= delayline::defaults::TOLERANCE, "{told:?}");
        let words = format!(
            "Its wake-up was routed to level {level} of rocketmq ({}s) at {}. It arrives at {} if rocketmq took it; it \
             counts as missed at {}, when the sweep looks.",
            delay.as_secs(),
            wake.since,
            wake.arrives_at,
            told.task.wake_at.unwrap()
        );
        assert_eq!(told.words[1], words);
        assert!(told.words[2].starts_with("Then: "), "{told:?}");
    }

    let done = until(&scheduler, |told| told.task.state == State::Done).await;
    let events: Vec<_> = done.history.iter().map(|entry| entry.event.as_str()).collect();
    let hops = events.len() - 3;
    assert_eq!(
        events,
        [&["scheduled"][..], &vec!["hop"; hops], &["claimed", "done"]].concat()
    );
    assert_eq!(done.history[1].actor.as_deref(), Some("worker:w1"));
    drop(stop);
    working.await.unwrap().unwrap();
    scheduler.close().await.unwrap();
}
