//! The servers that have the rows, and how scripts are called there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::FromRedisValue;

use super::elsewhere::Elsewhere;
use super::eviction::Eviction;
use super::idle::Idle;
use super::listener::{Listener, published_within};
use super::shards::{Shard, Shards};
use super::unreachable::Unreachable;
use crate::clock::Clock;
use crate::redis::{Address, Call, Link, Lua, Role, lua};
use crate::store::Stamped;
use crate::task::timestamp::millis;
use crate::{Error, Timestamp};

static POLL: Lua = lua!("shard.lua", "poll.lua");

/// How long a call may take, connecting included.
const LIMIT: Duration = Duration::from_secs(5);
/// How long a node of a Cluster may take for an answer, beside what it waits for replicas. What it does after that is not heard
/// of: rows that it claims wait until their leases end.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// What a store was told to be like.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) address: Address,
    pub(super) prefix: String,
    pub(super) shards: Option<u16>,
    pub(super) keep_history: Duration,
    /// How many replicas must have what was written, and for how long that is waited for.
    pub(super) wait: Option<(u32, Duration)>,
}

/// The servers, as every handle of a store shares them.
pub(super) struct Database {
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) idle: Arc<Idle>,
    pub(super) listener: Listener,
    pub(super) eviction: Eviction,
    pub(super) shards: Shards,
    pub(super) elsewhere: Elsewhere,
    unreachable: Unreachable,
    pub(super) link: Arc<Link>,
    /// What all keys of this store are under.
    namespace: String,
}

impl Database {
    pub(super) fn new(settings: Settings) -> Self {
        let clock = Clock::system();
        let namespace = format!("{}:tasks", settings.prefix);
        let address = settings.address.clone();
        let channel = format!("{{{namespace}}}:soon:{}", address.database());
        let idle = Arc::new(Idle::new(clock.clone()));
        let wait = settings.wait.map_or(Duration::ZERO, |(_, within)| within);
        let link = Link::new(address.clone(), Role::Store, ANSWER_LIMIT.saturating_add(wait));
        let link = Arc::new(link);
        Self {
            listener: Listener::new(address, channel, Arc::clone(&idle), clock.clone()),
            eviction: Eviction::default(),
            shards: Shards::new(
                Arc::clone(&link),
                format!("{{{namespace}}}:shards"),
                settings.shards,
            ),
            elsewhere: Elsewhere::default(),
            unreachable: Unreachable::default(),
            link,
            settings,
            clock,
            idle,
            namespace,
        }
    }

    /// How many shards there are.
    pub(super) async fn shards(&self) -> Result<u16, Error> {
        self.shards.count().await
    }

    /// How long a write may take.
    pub(super) fn limit(&self) -> Duration {
        LIMIT.saturating_add(self.settings.wait.map_or(Duration::ZERO, |(_, within)| within))
    }

    /// What the keys of a shard begin with.
    pub(super) fn tag(&self, shard: Shard) -> String {
        format!("{{{}:{shard}}}", self.namespace)
    }

    /// A call of a script on a shard, to which the script's own arguments are to be added.
    pub(super) fn script(&self, script: &'static Lua, shard: Shard) -> Call {
        let tag = self.tag(shard);
        // Two keys that never exist: so a master refuses the script (`TRYAGAIN`) while the slot of the Cluster is on its way to
        // or from it, when some of what the script is about is there and the rest is not.
        Call::script(script, &[&tag, &format!("{tag}:")])
    }

    /// The same of a script that publishes what it writes.
    pub(super) fn publishing(&self, script: &'static Lua, shard: Shard, shards: u16) -> Call {
        let mut call = self.script(script, shard);
        call.arg(self.listener.channel())
            .arg(self.listener.sender(shard))
            .arg(millis(published_within(shards)));
        call
    }

    /// The same of the script that changes nothing.
    pub(super) fn poll(&self, shard: Shard, what: &str) -> Call {
        let mut call = self.script(&POLL, shard);
        call.arg(what);
        call
    }

    /// By what a script knows a call that comes once more, as a client of a Cluster sends one again whose answer was lost.
    pub(super) fn token(&self) -> String {
        match self.is_clustered() {
            true => self.clock.unique_number().to_string(),
            false => String::new(),
        }
    }

    /// The answer of a script that writes no row.
    pub(super) async fn read<T: FromRedisValue>(
        &self,
        shard: Shard,
        call: Call,
    ) -> Result<Stamped<T>, Error> {
        self.answer(shard, &call, LIMIT).await
    }

    /// The answer of a script that writes; as many replicas have that as was asked for.
    pub(super) async fn write<T: FromRedisValue>(
        &self,
        shard: Shard,
        mut call: Call,
    ) -> Result<Stamped<T>, Error> {
        if let Some((replicas, within)) = self.settings.wait {
            call.confirmed_by(replicas, within);
        }
        self.write_unconfirmed(shard, call).await
    }

    /// The answer of a script that writes what may as well be lost with its server, so that no replica is waited for.
    pub(super) async fn write_unconfirmed<T: FromRedisValue>(
        &self,
        shard: Shard,
        call: Call,
    ) -> Result<Stamped<T>, Error> {
        let _writing = self.idle.writing(shard);
        self.answer(shard, &call, self.limit()).await
    }

    /// The time by the clock of a server.
    pub(super) async fn now(&self) -> Result<Timestamp, Error> {
        self.now_of(0).await
    }

    /// The time by the clock of the server that has a shard, or of another one while that is away.
    pub(super) async fn now_of(&self, shard: Shard) -> Result<Timestamp, Error> {
        let error = match self.ask_for_time(shard).await {
            Err(error) if self.is_clustered() && error.is_transient() => error,
            said => return said,
        };
        // Those that did not answer a moment ago are errors at once.
        for other in 0..self.shards().await? {
            if let Ok(now) = self.ask_for_time(other).await {
                return Ok(now);
            }
        }
        Err(error)
    }

    async fn ask_for_time(&self, shard: Shard) -> Result<Timestamp, Error> {
        Ok(self
            .read::<Vec<String>>(shard, self.poll(shard, "now"))
            .await?
            .now)
    }

    /// Whether shards are on several servers.
    pub(super) fn is_clustered(&self) -> bool {
        self.settings.address.is_clustered()
    }

    /// The answer of a shard. Those that do not answer must not hold up the others: an error at once if this one did not
    /// when it was asked last.
    async fn answer<T: FromRedisValue>(
        &self,
        shard: Shard,
        call: &Call,
        limit: Duration,
    ) -> Result<Stamped<T>, Error> {
        if self.unreachable.has(shard) {
            return Err(Role::Store.error(true, "the server of a shard did not answer a moment ago"));
        }
        let answer = self.link.call::<(i64, T)>(limit, call).await;
        // Elsewhere all shards are on one server.
        if self.is_clustered() && answer.as_ref().is_err_and(is_out_of_reach) {
            let link = Arc::clone(&self.link);
            // A script, so that a shard which is on its way is out of reach, too.
            let probe = Arc::new(self.poll(shard, "now"));
            self.unreachable.add(shard, &self.clock, move || {
                let (link, probe) = (Arc::clone(&link), Arc::clone(&probe));
                async move { link.call::<redis::Value>(LIMIT, &probe).await.is_ok() }
            });
        }
        let (now, found) = answer?;
        let now = Timestamp::from_millis(now);
        self.idle.heard(shard, now);
        Ok(Stamped { now, found })
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Whether a server has not answered as one that has the shard. A full one has, and one whose replicas are slow.
fn is_out_of_reach(error: &Error) -> bool {
    let said = error.to_string();
    error.is_transient() && !said.contains("OOM") && !said.contains("UNCONFIRMED")
}
