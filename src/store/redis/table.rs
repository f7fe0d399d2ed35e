//! The table, as an engine has it kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join_all, try_join_all};

use super::answer::Items;
use super::claim::Claiming;
use super::codec::{digit, lane};
use super::database::{Database, LOOK, Request};
use super::ranges::{ranges, those_that_succeeded};
use super::read::{Asked, Extra, look_up};
use super::shards::Shard;
use super::strays::{Spoilt, set_aside};
use super::write::{self, Past};
use crate::redis::NAME;
use crate::store::table::{Columns, Found, Outcome, Range, Table, Unreadable, Which, Write};
use crate::store::turns::CALLS;
use crate::store::{Claim, NewRow, Noted, Stamped};
use crate::task::timestamp::millis;
use crate::{Error, Key, Kind, State, TaskId, Timestamp};

/// The rows in the servers.
#[derive(Clone)]
pub(super) struct RedisTable(pub(super) Arc<Database>);

impl RedisTable {
    /// What each shard says to a call.
    async fn all(&self, call: impl Fn(&mut Request)) -> Result<Vec<Stamped<Items>>, Error> {
        let shards = self.0.shards().await?;
        let calls = (0..shards).map(|shard: Shard| {
            let mut request = self.0.script(&LOOK, shard);
            call(&mut request);
            async {
                let answer = self.0.read(request).await?;
                let found = Items::of(answer.found)?;
                Ok(Stamped {
                    now: answer.now,
                    found,
                })
            }
        });
        try_join_all(calls).await
    }
}

#[async_trait]
impl Table for RedisTable {
    fn name(&self) -> &'static str {
        NAME
    }

    /// In a Cluster a master that does not answer would hold up callers who want nothing of it.
    fn calls(&self) -> Option<usize> {
        (!self.0.is_clustered()).then_some(CALLS)
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.0.now().await
    }

    async fn read(
        &self,
        ids: &[TaskId],
        keys: &[(Kind, Key)],
        columns: Columns,
    ) -> Result<Stamped<Found>, Error> {
        let ids = ids.iter().map(|id| Asked::Id(*id));
        let keys = keys
            .iter()
            .map(|(kind, key)| Asked::Key(kind.clone(), key.clone()));
        let asked: Vec<_> = ids.chain(keys).collect();
        if asked.is_empty() {
            let (now, found) = (self.now().await?, Found::default());
            return Ok(Stamped { now, found });
        }
        let extra = match columns {
            Columns::All => Extra::Payloads,
            Columns::Lean => Extra::Nothing,
        };
        look_up(&self.0, &asked, extra).await?.found(&asked, columns)
    }

    async fn range(&self, asked: &[Range], columns: Columns) -> Result<Stamped<Vec<Found>>, Error> {
        if asked.is_empty() {
            let (now, found) = (self.now().await?, Vec::new());
            return Ok(Stamped { now, found });
        }
        // Sweeps go on without a server that does not answer; who lists rows has to know.
        let is_sweep = asked.iter().all(|range| range.kind.is_none());
        let Stamped { now, found } = ranges(&self.0, asked, columns, is_sweep).await?;
        let found = found.into_iter().map(|merged| Found {
            rows: merged.rows.into_iter().map(|row| row.task).collect(),
            unreadable: merged.spoilt.into_iter().map(Spoilt::unreadable).collect(),
        });
        let found = found.collect();
        Ok(Stamped { now, found })
    }

    async fn count(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        let call = |call: &mut Request| {
            call.arg("count").arg(lane(state, kind));
            for span in spans {
                call.arg(millis(*span));
            }
        };
        let (mut now, mut found) = (Timestamp::MAX, vec![0; spans.len()]);
        for Stamped {
            now: at,
            found: mut counts,
        } in self.all(call).await?
        {
            now = now.min(at);
            for sum in &mut found {
                *sum = most.min(*sum + counts.count()?);
            }
        }
        Ok(Stamped { now, found })
    }

    async fn insert(&self, rows: &[NewRow]) -> Result<Stamped<Vec<Outcome>>, Error> {
        write::insert(&self.0, rows).await
    }

    async fn write(&self, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
        write::write(&self.0, writes).await
    }

    async fn claim(&self, which: Which<'_>, claim: &Claim) -> Result<Stamped<Found>, Error> {
        let claimed = Claiming::new(&self.0, claim).claim(which).await?;
        let unreadable = &claimed.found.unreadable;
        if !unreadable.is_empty() {
            self.set_aside(unreadable, claim.lease).await?;
        }
        Ok(claimed)
    }

    async fn set_aside(&self, rows: &[Unreadable], pause: Duration) -> Result<(), Error> {
        set_aside(&self.0, rows, pause).await
    }

    async fn remove(&self, states: &[State], limit: usize) -> Result<u64, Error> {
        let past: Vec<_> = states.iter().map(|state| Range::overdue(*state, limit)).collect();
        if past.is_empty() {
            return Ok(0);
        }
        let found = ranges(&self.0, &past, Columns::Lean, true).await?.found;
        let mut removed = Vec::new();
        let mut left = BTreeMap::<Kind, usize>::new();
        for merged in found {
            for row in merged.rows {
                let left = left.entry(row.task.kind.clone()).or_insert(limit);
                if *left > 0 {
                    *left -= 1;
                    removed.push(Past {
                        shard: row.shard,
                        id: row.task.id,
                        lane: lane(row.task.state, &row.task.kind),
                        head: Vec::new(),
                        row: Some(row.task),
                    });
                }
            }
            removed.extend(merged.spoilt.into_iter().map(|spoilt| Past {
                shard: spoilt.shard,
                id: spoilt.id,
                lane: spoilt.index.trim_start_matches("wake:").to_owned(),
                head: spoilt.head,
                row: None,
            }));
        }
        let counts = write::remove(&self.0, removed).await?;
        Ok(those_that_succeeded(counts)?.into_iter().sum())
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        let call = |call: &mut Request| {
            let after = after.map_or("", Kind::as_str);
            call.arg("kinds")
                .arg(digit(state))
                .arg(after)
                .arg(limit.min(1 << 30));
        };
        let mut kinds = BTreeSet::new();
        for Stamped { found: mut some, .. } in self.all(call).await? {
            while !some.is_empty() {
                kinds.insert(Kind::from(some.text()?));
            }
        }
        Ok(kinds.into_iter().take(limit).collect())
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        let mut seen = look_up(&self.0, &[Asked::Id(id)], Extra::Notes).await?;
        let Some(raw) = seen.rows.swap_remove(0)? else {
            return Ok(Noted::default());
        };
        // Of which anything may have become by others' hands.
        let text = String::from_utf8_lossy(&raw.rest);
        let (sent, history) = text.split_once('\n').unwrap_or_default();
        Ok(Noted {
            history: history.to_owned(),
            sent: (!sent.is_empty()).then(|| sent.to_owned()),
        })
    }

    async fn check(&self) -> Result<(), Error> {
        let shards = self.0.shards_now().await?;
        let calls = (0..shards).map(|shard| self.0.ask_fitness(shard));
        join_all(calls).await.into_iter().collect()
    }

    async fn notified(&self) {
        self.0.listener.notified().await;
    }
}
