//! Kinds of tasks that act by themselves, to look at.

use std::time::Duration;

use delayline::{Context, Failure, NewTask, Outcome, Policy, Scheduler, Worker};
use serde::{Deserialize, Serialize};

const CANCEL: &str = "order.cancel";
const REMIND: &str = "order.remind";

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    order: u64,
    amount: u32,
}

/// Handles the demo's kinds: orders that are not paid are cancelled, and reminders sometimes fail.
pub(super) fn handlers(worker: Worker) -> Worker {
    let cancel = |order: Order, _: Context| async move {
        tracing::info!(
            order = order.order,
            "demo: an order was not paid, and is cancelled"
        );
        Ok(Outcome::Done)
    };
    let remind = |order: Order, context: Context| async move {
        // One in four has a mail server that is never there, and ends as dead.
        match order.order % 4 {
            3 => Err(Failure::from(format!(
                "no mail server, at attempt {}",
                context.attempt()
            ))),
            _ => Ok(Outcome::Done),
        }
    };
    let hasty = Policy::new()
        .max_attempts(3)
        .backoff(Duration::from_secs(2), Duration::from_secs(10));
    worker.handle(CANCEL, cancel).handle_with(REMIND, hasty, remind)
}

/// Opens an order each second: some are paid in time, some are given more time, and the others run out.
pub(super) async fn callers(scheduler: Scheduler, stopped: impl Future<Output = ()>) {
    tokio::select! {
        () = stopped => {}
        () = open_orders(&scheduler) => {}
    }
}

async fn open_orders(scheduler: &Scheduler) {
    let mut pace = tokio::time::interval(Duration::from_secs(1));
    for order in 1000.. {
        pace.tick().await;
        if let Err(error) = open_order(scheduler, order).await {
            tracing::warn!(%error, "demo: an order could not be opened");
        }
    }
}

async fn open_order(scheduler: &Scheduler, order: u64) -> Result<(), delayline::Error> {
    let key = |order: u64| format!("order-{order}");
    let task = Order {
        order,
        amount: fastrand::u32(5..500),
    };
    let patience = Duration::from_secs(fastrand::u64(20..90));
    scheduler
        .schedule(NewTask::new(CANCEL, &task).key(key(order)).after(patience))
        .await?;
    scheduler
        .schedule(NewTask::new(REMIND, &task).key(key(order)).after(patience / 2))
        .await?;
    // What becomes of one of the last.
    let earlier = order.saturating_sub(fastrand::u64(1..30));
    match fastrand::u8(..4) {
        0 | 1 => {
            let both = [CANCEL, REMIND].map(|kind| (kind, key(earlier)).into());
            scheduler.cancel_all(both).await?;
        }
        2 => {
            let more = delayline::Shift::Later(Duration::from_secs(30));
            // It may have ended, and then there is nothing to move.
            let _ = scheduler.shift((CANCEL, key(earlier)), more).await?;
        }
        _ => {}
    }
    Ok(())
}
