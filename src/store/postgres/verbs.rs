//! New rows, and changes of rows, for their callers: each batch in a transaction of its own.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;

use super::change::change_scheduled;
use super::connections::{Database, Using, Writing};
use super::errors;
use super::read;
use super::session::{PostgresSession, Whose};
use crate::clock::Clock;
use crate::store::sql::{self, Answers, Locked, Session, Verbs, Why};
use crate::store::{Change, NewRow, Stamped};
use crate::{Answer, Error, Scheduled, State, TaskId, Timestamp};

/// How many bytes of payload and headers a row may have: what PostgreSQL takes as one message, less what goes beside it.
pub(super) const LONGEST: usize = (1 << 30) - (1 << 16);

#[async_trait]
impl Verbs for Database {
    const NAME: &'static str = super::NAME;

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn blame(error: &sqlx::Error) -> Option<Why> {
        errors::blame(error)
    }

    fn refuses(row: &NewRow) -> Option<Why> {
        refuses(row, LONGEST)
    }

    fn failed(&self, error: sqlx::Error) -> Error {
        if errors::is_of_server(&error) {
            for pool in [&self.callers, &self.workers, &self.waiting] {
                pool.forget();
            }
        }
        errors::failed(error)
    }

    async fn now(&self) -> Result<Timestamp, sqlx::Error> {
        read::now(self).await
    }

    async fn add(&self, rows: &[NewRow]) -> Result<Stamped<BTreeSet<TaskId>>, sqlx::Error> {
        // It is one statement, which needs no transaction around it.
        let add = || async {
            let mut using = Using::lend(&self.callers).await?;
            let mut session = PostgresSession::new(&mut using, self, Whose::Own(Locked::Leave));
            let added = session.add(rows, None).await;
            if added
                .as_ref()
                .err()
                .is_none_or(|error| errors::blame(error).is_some())
            {
                using.give_back().await?;
            }
            added
        };
        self.retried(add).await
    }

    async fn insert(
        &self,
        rows: Vec<NewRow>,
        locked: Locked,
    ) -> Result<Stamped<Answers<Scheduled>>, sqlx::Error> {
        let insert = || async {
            let Some(mut writing) = self.begin(locked).await? else {
                return self.all_locked(rows.len()).await;
            };
            let mut session = PostgresSession::new(&mut writing, self, Whose::Own(locked));
            let answers = meet_within(&mut session, rows.clone()).await?;
            writing.commit().await?;
            Ok(answers)
        };
        self.retried(insert).await
    }

    async fn change(
        &self,
        changes: &[Change],
        history: Duration,
        locked: Locked,
    ) -> Result<Stamped<Answers<Answer>>, sqlx::Error> {
        let change = || async {
            let Some(mut writing) = self.begin(locked).await? else {
                return self.all_locked(changes.len()).await;
            };
            let answers = match locked {
                Locked::Leave => self.change_free(&mut writing, changes, history).await?,
                Locked::Await => {
                    let mut session = PostgresSession::new(&mut writing, self, Whose::Own(locked));
                    change_within(&mut session, changes, history).await?
                }
            };
            writing.commit().await?;
            Ok(answers)
        };
        self.retried(change).await
    }
}

impl Database {
    /// Changes rows that nobody has locked, those that are scheduled, as nearly all are, with little effort.
    async fn change_free(
        &self,
        writing: &mut Writing<'_>,
        changes: &[Change],
        history: Duration,
    ) -> Result<Stamped<Answers<Answer>>, sqlx::Error> {
        let (mut now, made) = match changes.iter().all(sql::of_scheduled) {
            true => change_scheduled(writing, self, changes, history).await?,
            false => (None, vec![None; changes.len()]),
        };
        let left = sql::left(changes, &made);
        let mut rest = Vec::new();
        if now.is_none() || !left.is_empty() {
            let mut session = PostgresSession::new(writing, self, Whose::Own(Locked::Leave));
            let answers = change_within(&mut session, &left, history).await?;
            now = Some(answers.now);
            rest = answers.found;
        }
        Ok(Stamped {
            now: now.unwrap_or_default(),
            found: sql::with_rest(made, rest),
        })
    }

    async fn begin(&self, locked: Locked) -> Result<Option<Writing<'_>>, sqlx::Error> {
        match locked {
            Locked::Leave => Writing::begin(&self.callers).await.map(Some),
            Locked::Await => Writing::in_turn(self).await,
        }
    }
}

/// Why no row of so many bytes, or of such a name, can be kept.
pub(super) fn refuses(row: &NewRow, longest: usize) -> Option<Why> {
    let invalid = |field, value: String, allowed: String| Why::Invalid {
        field,
        value,
        allowed,
    };
    let headers = row.headers.iter().map(|(name, value)| name.len() + value.len());
    let bytes = row.payload.len().saturating_add(6 * headers.sum::<usize>());
    if bytes > longest {
        let allowed = format!("with its headers, at most {longest} bytes are allowed");
        return Some(invalid("payload", format!("{bytes} bytes long"), allowed));
    }
    let key = row.key.as_ref().map(|key| ("key", key.as_str()));
    let names = [Some(("kind", row.kind.as_str())), key];
    let (field, name) = names
        .into_iter()
        .flatten()
        .find(|(_, name)| name.contains('\0'))?;
    let allowed = "allowed are characters other than NUL".to_owned();
    Some(invalid(field, name.to_owned(), allowed))
}

/// Writes rows within a transaction, and tells of those that are due soon.
pub(super) async fn insert_within(
    session: &mut PostgresSession<'_>,
    rows: Vec<NewRow>,
) -> Result<Stamped<Answers<Scheduled>>, sqlx::Error> {
    let answers = sql::insert_at_once(session, rows).await?;
    tell(session, answers).await
}

/// The same for rows of which some are there.
async fn meet_within(
    session: &mut PostgresSession<'_>,
    rows: Vec<NewRow>,
) -> Result<Stamped<Answers<Scheduled>>, sqlx::Error> {
    let answers = sql::insert(session, rows).await?;
    tell(session, answers).await
}

/// Tells of rows that were replaced, if they are due soon. Those that are new tell of themselves.
async fn tell(
    session: &mut PostgresSession<'_>,
    answers: Stamped<Answers<Scheduled>>,
) -> Result<Stamped<Answers<Scheduled>>, sqlx::Error> {
    let replaced = answers.found.iter().filter_map(|answer| match answer {
        Ok(Scheduled::Replaced(task)) => Some(task),
        _ => None,
    });
    session.notify(answers.now, replaced).await?;
    Ok(answers)
}

/// Changes rows within a transaction, and tells of what is scheduled then.
pub(super) async fn change_within(
    session: &mut PostgresSession<'_>,
    changes: &[Change],
    history: Duration,
) -> Result<Stamped<Answers<Answer>>, sqlx::Error> {
    let answers = sql::change(session, changes, history).await?;
    let scheduled = answers.found.iter().filter_map(|answer| match answer {
        Ok(Answer::Done(task)) if task.state == State::Scheduled => Some(task),
        _ => None,
    });
    session.notify(answers.now, scheduled).await?;
    Ok(answers)
}
