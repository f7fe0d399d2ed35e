//! New tasks.

use super::Scheduler;
use super::batches::{batches_of, each};
use crate::observe::metrics;
use crate::schedule::kernel::Kernel;
use crate::schedule::notes::Way;
use crate::store::NewRow;
use crate::store::When;
use crate::store::only;
use crate::store::paused;
use crate::store::receipt::Follow;
use crate::store::shard_hash;
use crate::store::store_time::Timed;
use crate::{Error, NewTask, Scheduled};

/// What scheduling is called where verbs are counted.
pub(super) const VERB: &str = "schedule";
/// How many bytes the headers of a task may have, in all.
const HEADERS_LIMIT: usize = 64 << 10;

impl Scheduler {
    /// Schedules a task.
    ///
    /// Concurrent callers share calls of the store, and so commits; each waits for its own row.
    pub async fn schedule(&self, task: NewTask) -> Result<Scheduled, Error> {
        only(self.schedule_all([task]).await?)
    }

    /// Schedules many tasks in few statements; one answer each, in the order given. Nothing is scheduled if one of
    /// them cannot be used.
    pub async fn schedule_all(
        &self,
        tasks: impl IntoIterator<Item = NewTask>,
    ) -> Result<Vec<Scheduled>, Error> {
        let rows = self.rows(tasks).await?;
        let mut answers = Vec::with_capacity(rows.len());
        for batch in batches_of(rows, NewRow::bytes) {
            for answer in self.insert(batch).await? {
                answers.push(answer?);
            }
        }
        Ok(answers)
    }

    /// Schedules many tasks in few statements, with an answer for each, in the order given: one that cannot be used or
    /// written keeps no other from it.
    pub async fn schedule_each(
        &self,
        tasks: impl IntoIterator<Item = NewTask>,
    ) -> Vec<Result<Scheduled, Error>> {
        let tasks: Vec<_> = tasks.into_iter().collect();
        let needs_time = |task: &NewTask| matches!(task.due, When::At(_));
        let time = self.time_for(tasks.iter().any(needs_time)).await;
        let mut rows = Vec::with_capacity(tasks.len());
        for task in tasks {
            rows.push(match &time {
                Err(error) if needs_time(&task) => Err(error.once_more()),
                _ => self.row(task).await,
            });
        }
        each(rows, NewRow::bytes, |batch| self.insert(batch)).await
    }

    /// Writes rows, perhaps in one call with those of others, and sends their wake-ups; an answer for each.
    async fn insert(&self, rows: Vec<NewRow>) -> Result<Vec<Result<Scheduled, Error>>, Error> {
        let count = rows.len();
        let inserted = self.inserted(rows).await;
        let heard = inserted.inspect_err(|_| metrics::verb(VERB, metrics::ERROR, count))?;
        for scheduled in &heard.found {
            let word = scheduled.as_ref().map_or(metrics::ERROR, Scheduled::word);
            metrics::verb(VERB, word, 1);
        }
        for scheduled in heard.found.iter().flatten() {
            if let Scheduled::New(task) | Scheduled::Replaced(task) = scheduled {
                self.kernel.events.publish(|| task.clone());
            }
        }
        let follow = Follow::scheduled(&heard, heard.found.iter().flatten());
        self.kernel.follow(follow).await;
        Ok(heard.found)
    }

    /// What the store has answered, for each of the rows.
    async fn inserted(&self, rows: Vec<NewRow>) -> Result<Timed<Vec<Result<Scheduled, Error>>>, Error> {
        let Kernel { store, time, .. } = &*self.kernel;
        let count = rows.len();
        let heard = time.of(store.insert(rows)).await?;
        match heard.found.len() == count {
            true => Ok(heard),
            false => Err(Error::miscounted(store.name(), heard.found.len(), count)),
        }
    }

    /// The rows of tasks, each of which can be used.
    pub(super) async fn rows(&self, tasks: impl IntoIterator<Item = NewTask>) -> Result<Vec<NewRow>, Error> {
        // First all of them: else the future would be as little `Send` as whatever they come from.
        let tasks: Vec<_> = tasks.into_iter().collect();
        let mut rows = Vec::with_capacity(tasks.len());
        for task in tasks {
            rows.push(self.row(task).await?);
        }
        Ok(rows)
    }

    /// A payload that can be encoded, and is no longer than allowed.
    pub(super) fn checked_payload(
        &self,
        kind: &str,
        payload: Result<Vec<u8>, serde_json::Error>,
    ) -> Result<Vec<u8>, Error> {
        let payload = payload.map_err(|source| Error::Encode {
            kind: kind.to_owned(),
            source,
        })?;
        let limit = self.payload_limit;
        match payload.len() > limit {
            true => Err(Error::invalid(
                "payload",
                format_args!("{} bytes", payload.len()),
                format!("allowed are up to {limit} bytes (SchedulerBuilder::payload_limit)"),
            )),
            false => Ok(payload),
        }
    }

    async fn row(&self, task: NewTask) -> Result<NewRow, Error> {
        let NewTask {
            id,
            kind,
            key,
            payload,
            headers,
            due,
            max_attempts,
            replace,
        } = task;
        kind.check()?;
        paused::check_task(&kind)?;
        if let Some(key) = &key {
            key.check()?;
        } else if self.kernel.checks.contains_key(&kind) {
            return Err(Error::invalid(
                "key",
                "none",
                format!(
                    "needed is one, as tasks of kind {kind} follow a check, which knows them by their keys"
                ),
            ));
        }
        due.check()?;
        if max_attempts == Some(0) {
            return Err(Error::invalid("max_attempts", 0, "allowed is 1 or more"));
        }
        let payload = self.checked_payload(kind.as_str(), payload)?;
        let in_headers: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if in_headers > HEADERS_LIMIT {
            return Err(Error::invalid(
                "headers",
                format_args!("{in_headers} bytes"),
                format!("allowed are up to {HEADERS_LIMIT} bytes in all"),
            ));
        }
        let Way { overdue_after, sent } = self.way(Some(&kind), due).await?;
        let id = id.unwrap_or_else(|| {
            let made = self.kernel.clock.new_id();
            key.as_ref()
                .map_or(made, |key| shard_hash::id_with_key(made, &kind, key))
        });
        let note = self.note(Some(&kind), "scheduled", sent);
        Ok(NewRow {
            id,
            kind,
            key,
            payload,
            headers,
            due,
            overdue_after,
            max_attempts,
            replace,
            note,
        })
    }
}
