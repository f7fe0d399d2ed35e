//! Due tasks that wait for room are asked about as well.

use std::sync::Arc;

use tokio::sync::watch;
use tracing::warn;

use super::Stop;
use super::engine::Engine;
use super::inquiry::Inquiry;
use crate::store::{Page, Pending};
use crate::{State, Task, Wake};

/// How many rows are read at once.
const PAGE: usize = 100;

/// Goes through the due tasks of a kind that has a check, as often as the check wants to be asked, until stopped.
///
/// A wake-up that finds no room is gone, and its task is claimed, and asked about, only when its turn comes. What is gone
/// or moved away meanwhile would wait as long, and be in the way of the others.
pub(crate) async fn patrol(engine: Arc<Engine>, inquiry: Arc<Inquiry>, mut stopped: watch::Receiver<Stop>) {
    let clock = &engine.parts.clock;
    loop {
        let round = async {
            clock.sleep(inquiry.check.period()).await;
            go_round(&engine, &inquiry).await;
        };
        tokio::select! {
            biased;
            _ = stopped.wait_for(|&stop| stop > Stop::No) => return,
            () = round => {}
        }
    }
}

async fn go_round(engine: &Engine, inquiry: &Inquiry) {
    let mut page = Page {
        kind: inquiry.kind.clone(),
        state: State::Scheduled,
        after: None,
        limit: PAGE,
    };
    loop {
        let rows = match engine.parts.store.list(&page).await {
            Ok(rows) => rows,
            Err(error) => {
                warn!(kind = %inquiry.kind, %error, "waiting tasks were not asked about; that will be repeated");
                return;
            }
        };
        let Some(now) = engine.parts.time.now() else {
            return;
        };
        let is_last = rows.len() < PAGE;
        let Some(last) = rows.last() else { return };
        page.after = Some((last.due_at, last.id));
        let are_due = last.due_at <= now;
        let due = rows.into_iter().filter(|row| row.due_at <= now);
        inquiry.ask_about_waiting(due.filter_map(keyed).collect()).await;
        if is_last || !are_due {
            return;
        }
    }
}

/// A row that its check can be asked about.
fn keyed(row: Task) -> Option<Pending> {
    row.key.as_ref()?;
    Some(Pending {
        wake: Wake {
            id: row.id,
            kind: row.kind,
            version: row.version,
        },
        key: row.key,
        due_at: row.due_at,
        planned_at: row.planned_at,
    })
}
