//! How the wake-up of a task travels to its time, in words.

use std::time::Duration;

use delayline::backend::Delays;
use delayline::delay::{Routing, plan};
use delayline::{Task, Timestamp};

/// What `delayline plan` says of the time that is left to a task that waits; `carrier` are the delays of the broker that
/// carries wake-ups, if there is one.
pub(super) fn travel(task: &Task, now: Timestamp, carrier: Option<&Delays>) -> Option<String> {
    if task.state != delayline::State::Scheduled {
        return None;
    }
    let millis = u64::try_from(task.due_at.millis_since(now)).unwrap_or(0);
    if millis == 0 {
        return Some("It is due: it starts as soon as a worker is free.".to_owned());
    }
    let plan = plan(Duration::from_millis(millis), &Routing::default(), carrier);
    Some(match plan.hops.len() {
        0 => "It waits in the store, and is taken from there at its time.".to_owned(),
        1 => format!("From now by the broker, in one hop: {plan}."),
        hops => format!("From now by the broker, in {hops} hops: {plan}."),
    })
}

#[cfg(test)]
mod tests {
    use delayline::backend::Reach;
    use delayline::store::MemoryStore;
    use delayline::{NewTask, Scheduler, State};

    use super::*;

    #[tokio::test]
    async fn the_way_is_that_of_the_time_that_is_left() {
        let scheduler = Scheduler::new(MemoryStore::new());
        let task = NewTask::new("k", &0).after(Duration::from_secs(900));
        let mut task = scheduler.schedule(task).await.unwrap().task().clone();
        let levels = Delays {
            reach: Reach::Levels("1s 5m 10m".parse().unwrap()),
            usual_lateness: Duration::ZERO,
        };
        let from = |seconds_left: i64| task.due_at.shifted(-1_000 * seconds_left);
        let way = |now, carrier| travel(&task, now, carrier).unwrap();
        assert_eq!(
            way(from(900), Some(&levels)),
            "From now by the broker, in 2 hops: 10m + 5m."
        );
        assert_eq!(
            way(from(300), Some(&levels)),
            "From now by the broker, in one hop: 5m."
        );
        assert!(way(from(90_000), Some(&levels)).starts_with("It waits in the store"));
        assert!(way(from(900), None).starts_with("It waits in the store"));
        assert!(way(from(-1), Some(&levels)).starts_with("It is due"));
        task.state = State::Running;
        assert_eq!(travel(&task, task.due_at, Some(&levels)), None);
    }
}
