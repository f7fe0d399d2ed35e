//! The table, as an engine has it kept.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use redis::FromRedisValue;

use super::claim::Claiming;
use super::codec::lane;
use super::database::Database;
use super::insert::insert;
use super::postpone::postpone;
use super::range::ranges;
use super::read::{Extra, Lookup, look_up, read};
use super::shards::of_kind;
use super::write;
use crate::redis::{Call, NAME};
use crate::store::batched_calls::CALLS;
use crate::store::table::{Columns, Found, Outcome, Range, Table, Unreadable, Which, Write};
use crate::store::{Claim, NewRow, Noted, Stamped, state_code};
use crate::task::timestamp::millis;
use crate::{Error, Key, Kind, State, TaskId, Timestamp};

/// The rows in the servers.
#[derive(Clone)]
pub(super) struct RedisTable(pub(super) Arc<Database>);

impl RedisTable {
    /// What each shard says to a poll that may have rows of a kind; without one, every shard.
    async fn poll<T: FromRedisValue>(
        &self,
        what: &str,
        kind: Option<&Kind>,
        with: impl Fn(&mut Call),
    ) -> Result<Vec<Stamped<T>>, Error> {
        let shards = self.0.shards().await?;
        let calls = of_kind(shards, kind).map(|shard| {
            let mut call = self.0.poll(shard, what);
            with(&mut call);
            self.0.read(shard, call)
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
        let ids = ids.iter().map(|id| Lookup::Id(*id));
        let keys = keys.iter().cloned().map(|(kind, key)| Lookup::Key(kind, key));
        let asked: Vec<_> = ids.chain(keys).collect();
        read(&self.0, &asked, columns).await
    }

    async fn range(&self, asked: &[Range], columns: Columns) -> Result<Stamped<Vec<Found>>, Error> {
        // Sweeps go on without a server that does not answer; a caller that lists rows has to know.
        let is_sweep = asked.iter().all(|range| range.kind.is_none());
        let Stamped { now, found } = ranges(&self.0, asked, columns, is_sweep).await?;
        let found = found.into_iter().map(|merged| Found {
            rows: merged.rows.into_iter().map(|(task, _)| task).collect(),
            unreadable: merged.unreadable,
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
        let with = |call: &mut Call| {
            call.arg(lane(state, kind));
            for span in spans {
                call.arg(millis(*span));
            }
        };
        let (mut now, mut found) = (Timestamp::MAX, vec![0; spans.len()]);
        for said in self.poll::<Vec<usize>>("count", Some(kind), with).await? {
            now = now.min(said.now);
            for (sum, count) in found.iter_mut().zip(said.found) {
                *sum = most.min(*sum + count);
            }
        }
        Ok(Stamped { now, found })
    }

    async fn insert(&self, rows: &[NewRow]) -> Result<Stamped<Vec<Outcome>>, Error> {
        insert(&self.0, rows).await
    }

    async fn write(&self, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
        write::write(&self.0, writes).await
    }

    async fn claim(&self, which: Which<'_>, claim: &Claim) -> Result<Stamped<Found>, Error> {
        let claimed = Claiming::new(&self.0, claim).claim(which).await?;
        // Of the others the claims are not lost by it; where it fails, these are found once more.
        let _ = postpone(&self.0, &claimed.found.unreadable, claim.lease).await;
        Ok(claimed)
    }

    async fn set_aside(&self, rows: &[Unreadable], pause: Duration) -> Result<(), Error> {
        postpone(&self.0, rows, pause).await
    }

    async fn remove(&self, states: &[State], limit: usize) -> Result<u64, Error> {
        match states {
            [] => Ok(0),
            states => write::remove(&self.0, states, limit).await,
        }
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        let with = |call: &mut Call| {
            let after = after.map_or("", Kind::as_str);
            call.arg(state_code::of(state)).arg(after).arg(limit.min(1 << 30));
        };
        let said = self.poll::<Vec<String>>("kinds", None, with).await?;
        let kinds: BTreeSet<_> = said.into_iter().flat_map(|said| said.found).collect();
        Ok(kinds.into_iter().map(Kind::from).take(limit).collect())
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        let mut seen = look_up(&self.0, &[Lookup::Id(id)], Extra::Notes).await?.found;
        let Some(raw) = seen.swap_remove(0)? else {
            return Ok(Noted::default());
        };
        // Of which anything may have become by other hands.
        let history = String::from_utf8_lossy(&raw.rest).into_owned();
        Ok(Noted { history })
    }

    async fn check(&self) -> Result<(), Error> {
        self.0.shards.ask().await?;
        self.poll::<Vec<String>>("now", None, |_| {}).await?;
        self.0.keeps_now().await
    }

    async fn notified(&self) {
        self.0.listener.notified().await;
    }
}
