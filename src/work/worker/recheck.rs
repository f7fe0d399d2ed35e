//! Due tasks that wait for room are asked about as well.

use std::sync::Arc;

use tracing::warn;

use super::check_queue::CheckQueue;
use super::engine::Engine;
use crate::State;
use crate::store::{Page, Pending};

/// How many rows are read at once.
const PAGE: usize = 100;

/// Goes through the due tasks of a kind that has a check, as often as the check wants to be asked, until stopped.
///
/// A wake-up that finds no room is gone, and its task is claimed, and asked about, only when its turn comes. What is gone
/// or moved away meanwhile would wait as long, and be in the way of the others.
pub(crate) async fn recheck(engine: Arc<Engine>, check_queue: Arc<CheckQueue>) {
    let clock = &engine.kernel.clock;
    loop {
        let round = async {
            clock.sleep(check_queue.check.period()).await;
            go_round(&engine, &check_queue).await;
        };
        tokio::select! {
            biased;
            () = engine.stop.begun() => return,
            () = round => {}
        }
    }
}

async fn go_round(engine: &Engine, check_queue: &CheckQueue) {
    let mut page = Page::new(check_queue.kind.clone(), State::Scheduled)
        .lean()
        .limit(PAGE);
    loop {
        let rows = match engine.kernel.store.list(&page).await {
            Ok(rows) => rows,
            Err(error) => {
                warn!(
                    kind = %check_queue.kind, %error,
                    "the check could not be asked about waiting tasks, as the store did not list them; it is tried \
                     again"
                );
                return;
            }
        };
        let Some(now) = engine.kernel.time.now() else {
            return;
        };
        let is_last = rows.len() < PAGE;
        let Some(last) = rows.last() else { return };
        page.after = Some((last.due_at, last.id));
        let are_due = last.due_at <= now;
        let due = rows.iter().filter(|row| row.due_at <= now && row.key.is_some());
        check_queue
            .ask_about_waiting(due.map(Pending::of).collect())
            .await;
        if is_last || !are_due {
            return;
        }
    }
}
