//! Transactions that wait for each other. On SQLite there are none: only one transaction writes at a time.

use std::time::Duration;

use delayline::{Error, NewTask, Scheduler};
use tokio::sync::Barrier;

use crate::service::Service;
use crate::verbs::{KIND, scheduler};

const HOUR: Duration = Duration::from_secs(3_600);

/// Moves two tasks in one transaction; waits in between until the other transaction has moved its first, too.
async fn move_both<S: Service>(
    service: &S,
    scheduler: &Scheduler,
    keys: [&str; 2],
    due: Duration,
    between: Option<&Barrier>,
) -> Result<(), Error> {
    let mut tx = service.begin().await.unwrap();
    let mut receipts = Vec::new();
    for (key, is_second) in keys.into_iter().zip([false, true]) {
        if let (true, Some(barrier)) = (is_second, between) {
            barrier.wait().await;
        }
        // An error drops the transaction, which undoes it.
        let receipt = scheduler
            .reschedule_in(service.join(&mut tx), (KIND, key), due)
            .await?;
        assert!(receipt.answer().is_done(), "{key}: {:?}", receipt.answer());
        receipts.push(receipt);
    }
    service.commit(tx).await.unwrap();
    for receipt in receipts {
        let _ = scheduler.committed(receipt).await;
    }
    Ok(())
}

pub(crate) async fn of_two_transactions_that_cross_one_is_given_up_and_can_be_repeated<S: Service>(
    service: S,
) {
    let scheduler = scheduler(&service);
    for key in ["a", "b"] {
        let task = NewTask::new(KIND, "post").key(key).after(HOUR);
        scheduler.schedule(task).await.unwrap();
    }
    let between = Barrier::new(2);
    let (there, back) = (["a", "b"], ["b", "a"]);
    let (first, second) = tokio::join!(
        move_both(&service, &scheduler, there, 2 * HOUR, Some(&between)),
        move_both(&service, &scheduler, back, 3 * HOUR, Some(&between)),
    );
    let (given_up, keys, due) = match (first, second) {
        (Err(error), Ok(())) => (error, there, 2 * HOUR),
        (Ok(()), Err(error)) => (error, back, 3 * HOUR),
        both => panic!("one of them is given up, not {both:?}"),
    };
    assert!(given_up.is_transient(), "{given_up}");
    move_both(&service, &scheduler, keys, due, None).await.unwrap();
    let mut times = Vec::new();
    for key in keys {
        let task = scheduler.find((KIND, key)).await.unwrap().unwrap();
        // Scheduled, moved by the one that was not given up, and by the repeated one.
        assert_eq!(task.version, 3, "{task:?}");
        times.push(task.due_at.millis_since(task.created_at));
    }
    let due = i64::try_from(due.as_millis()).unwrap();
    assert!(
        times.iter().all(|&time| time >= due && time < due + 3_600_000),
        "{times:?}"
    );
}
