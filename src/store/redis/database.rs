//! The servers that have the rows, and how scripts are called there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::ToRedisArgs;

use super::answer::Answer;
use super::away::Away;
use super::fitness::Fitness;
use super::idle::Idle;
use super::listen::{Listener, told_within};
use super::shards::{Shard, Shards};
use crate::clock::Clock;
use crate::redis::{Address, Call, Link, Lua, Role, lua};
use crate::task::timestamp::millis;
use crate::{Error, Timestamp};

pub(super) static LOOK: Lua = lua!("shard.lua", "look.lua");

/// How long a call may take, connecting included.
const LIMIT: Duration = Duration::from_secs(5);
/// How long a node of a Cluster may take for an answer, beside what it waits for replicas. What it does after that nobody
/// hears of: rows that it claims wait until their leases end.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a store was told to be like.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) address: Address,
    pub(super) prefix: String,
    pub(super) shards: Option<u16>,
    pub(super) history: Duration,
    /// How many replicas must have what was written, and for how long that is waited for.
    pub(super) wait: Option<(u32, Duration)>,
}

impl Settings {
    /// What everything of this store is under.
    fn namespace(&self) -> String {
        format!("{}:tasks", self.prefix)
    }

    /// For how long a write waits for replicas at most.
    fn replicas_wait(&self) -> Duration {
        self.wait.map_or(Duration::ZERO, |(_, within)| within)
    }
}

/// The servers, as every handle of a store shares them.
pub(super) struct Database {
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) idle: Arc<Idle>,
    pub(super) listener: Listener,
    pub(super) fitness: Fitness,
    away: Away,
    link: Arc<Link>,
    shards: Shards,
    namespace: String,
    /// By what this process knows its own messages.
    sender: u64,
}

impl Database {
    pub(super) fn new(settings: Settings) -> Self {
        let clock = Clock::system();
        let namespace = settings.namespace();
        let address = settings.address.clone();
        let shards = Shards::new(format!("{{{namespace}}}:shards"), settings.shards, &address);
        let channel = format!("{{{namespace}}}:soon:{}", address.database());
        let idle = Arc::<Idle>::default();
        let sender = clock.random_below(u64::MAX);
        let patience = PATIENCE.saturating_add(settings.replicas_wait());
        let listener = Listener::new(address.clone(), channel, sender, Arc::clone(&idle), clock.clone());
        Self {
            away: Away::default(),
            fitness: Fitness::default(),
            link: Arc::new(Link::new(address, Role::Store, patience)),
            settings,
            clock,
            idle,
            listener,
            shards,
            namespace,
            sender,
        }
    }

    /// How many shards there are.
    pub(super) async fn shards(&self) -> Result<u16, Error> {
        self.shards.count(&self.link).await
    }

    /// The same, asked now.
    pub(super) async fn shards_now(&self) -> Result<u16, Error> {
        self.shards.ask(&self.link).await
    }

    /// How many are kept, if anything is; makes nothing.
    pub(super) async fn kept(&self) -> Result<Option<u16>, Error> {
        self.shards.kept(&self.link).await
    }

    /// How long a write may take.
    pub(super) fn limit(&self) -> Duration {
        LIMIT.saturating_add(self.settings.replicas_wait())
    }

    /// What the keys of a shard begin with.
    pub(super) fn tag(&self, shard: Shard) -> String {
        format!("{{{}:{shard}}}", self.namespace)
    }

    /// A call of a script on a shard, to which the script's own arguments are to be added.
    pub(super) fn script(&self, script: &'static Lua, shard: Shard) -> Request {
        let tag = self.tag(shard);
        // Two keys that nobody ever has: so a master refuses the script (`TRYAGAIN`) while the slot of the Cluster is on its
        // way to or from it, when some of what the script is about is there and the rest is not.
        Request {
            call: Call::script(script, &[&tag, &format!("{tag}:")]),
            shard,
        }
    }

    /// The same of a script that tells others of what it writes.
    pub(super) fn telling(&self, script: &'static Lua, shard: Shard, shards: u16) -> Request {
        let mut call = self.script(script, shard);
        call.arg(self.listener.channel())
            .arg(format!("{} {shard}", self.sender))
            .arg(millis(told_within(shards)));
        call
    }

    /// By what a script knows a call that comes once more, as a client of a Cluster sends one again whose answer was lost.
    pub(super) fn token(&self) -> String {
        match self.is_clustered() {
            true => self.clock.random_below(u64::MAX).to_string(),
            false => String::new(),
        }
    }

    /// The answer of a script that writes no row.
    pub(super) async fn read(&self, request: Request) -> Result<Answer, Error> {
        let shard = request.shard;
        let answer = self.asked(&request, LIMIT).await?;
        self.idle.heard(shard, answer.now);
        Ok(answer)
    }

    /// The answer of a script that writes.
    pub(super) async fn write(&self, mut request: Request) -> Result<Answer, Error> {
        if let Some((replicas, within)) = self.settings.wait {
            request.call.confirmed_by(replicas, within);
        }
        let shard = request.shard;
        let writing = self.idle.writing(shard);
        let answer = self.asked(&request, self.limit()).await?;
        writing.answered();
        self.idle.heard(shard, answer.now);
        Ok(answer)
    }

    /// The same of one that must not be done twice: who is not answered does not know what came of it.
    pub(super) async fn write_once(&self, mut request: Request) -> Result<Answer, Error> {
        request.call.once();
        self.write(request).await
    }

    /// The time by the clock of the server that has the first shard.
    pub(super) async fn now(&self) -> Result<Timestamp, Error> {
        let mut call = self.script(&LOOK, 0);
        call.arg("now");
        Ok(self.read(call).await?.now)
    }

    /// Whether shards are on several servers.
    pub(super) fn is_clustered(&self) -> bool {
        self.settings.address.is_clustered()
    }

    /// The answer of a shard. Those that do not answer must not hold up the others: an error at once if this one did not
    /// when it was asked last.
    async fn asked(&self, request: &Request, limit: Duration) -> Result<Answer, Error> {
        // Elsewhere all shards are on one server.
        if !self.is_clustered() {
            return self.link.call(limit, &request.call).await;
        }
        let shard = request.shard;
        if self.away.has(shard) {
            return Err(Role::Store.error(true, "the server of a shard did not answer a moment ago"));
        }
        let answer = self.link.call(limit, &request.call).await;
        if answer.as_ref().is_err_and(is_out_of_reach) {
            let (link, tag) = (Arc::clone(&self.link), self.tag(shard));
            self.away.begin(shard, &self.clock, move || {
                // A script, so that a shard which is on its way is away, too.
                let mut call = Call::script(&LOOK, &[&tag, &format!("{tag}:")]);
                call.arg("now");
                let link = Arc::clone(&link);
                async move { link.call::<Answer>(LIMIT, &call).await.is_ok() }
            });
        }
        answer
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

/// A call of a script on a shard.
pub(super) struct Request {
    call: Call,
    shard: Shard,
}

impl Request {
    pub(super) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.call.arg(arg);
        self
    }
}
