//! Pages of tasks, of which no more are in memory than fit.

use delayline::{Error, Page, Scheduler, Task};

/// How many tasks are read at once.
const PIECE: usize = 16;
/// After so many bytes of payloads a page ends.
const FULL: usize = 16 << 20;
/// How many bytes a page may have, as a payload has up to 1 MiB.
pub(super) const HELD: usize = FULL + (PIECE << 20);

/// The tasks of a page, `limit` at the most, and whether there are more.
pub(super) async fn tasks(
    scheduler: &Scheduler,
    mut page: Page,
    limit: usize,
) -> Result<(Vec<Task>, bool), Error> {
    let (mut tasks, mut bytes) = (Vec::new(), 0);
    loop {
        let wanted = PIECE.min(limit - tasks.len());
        page = page.limit(wanted + 1);
        let mut found = scheduler.list(&page).await?;
        let goes_on = found.len() > wanted;
        found.truncate(wanted);
        bytes += found.iter().map(|task| task.payload.len()).sum::<usize>();
        if let Some(last) = found.last() {
            page = page.after(last);
        }
        tasks.extend(found);
        if !goes_on || tasks.len() == limit || bytes >= FULL {
            return Ok((tasks, goes_on));
        }
    }
}
