//! The servers that have the rows, and how scripts are called there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::ToRedisArgs;
use tokio::task::JoinSet;

use super::answer::Answer;
use super::away::Away;
use super::listen::{Horizon, Listener};
use super::quiet::Quiet;
use super::read::NOW;
use crate::redis::{Address, Call, Layout, Layouts, Link, Lua, Role, Slot, Spread, Topology};
use crate::{Clock, Error};

/// How long a call may take, connecting included.
const LIMIT: Duration = Duration::from_secs(5);

/// What a store was told to be like.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) address: Address,
    pub(super) prefix: String,
    pub(super) slots: Option<u16>,
    pub(super) history: Duration,
    /// How many replicas must have what was written, and for how long that is waited for.
    pub(super) wait: Option<(u32, Duration)>,
}

impl Settings {
    /// What everything of this store is under.
    fn namespace(&self) -> String {
        format!("{}:tasks", self.prefix)
    }
}

/// The servers, as every handle of a store shares them.
pub(super) struct Database {
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) quiet: Arc<Quiet>,
    pub(super) listener: Listener,
    away: Away,
    link: Arc<Link>,
    spread: Spread,
    namespace: String,
    /// By what this process knows its own messages.
    sender: u64,
}

/// Whether others are to hear of what a script writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Yes,
    No,
}

impl Database {
    pub(super) fn new(settings: Settings) -> Self {
        let clock = Clock::system();
        let namespace = settings.namespace();
        let address = settings.address.clone();
        let spread = Spread::new(
            format!("{{{namespace}}}:layout"),
            settings.slots,
            address.topology(),
        );
        let channel = format!("{{{namespace}}}:soon:{}", address.database());
        let quiet = Arc::<Quiet>::default();
        let sender = clock.random_below(u64::MAX);
        let listener = Listener::new(
            address.clone(),
            channel,
            sender,
            Arc::clone(&quiet),
            clock.clone(),
        );
        Self {
            away: Away::default(),
            link: Arc::new(Link::new(address, Role::Store)),
            settings,
            clock,
            quiet,
            listener,
            spread,
            namespace,
            sender,
        }
    }

    pub(super) async fn layout(&self) -> Result<Layout, Error> {
        Ok(self.spread.layouts(&self.link).await?.current)
    }

    /// The same, asked now.
    pub(super) async fn layout_now(&self) -> Result<Layout, Error> {
        Ok(self.spread.ask(&self.link).await?.current)
    }

    /// What is kept of it, if anything is; makes nothing.
    pub(super) async fn kept(&self) -> Result<Option<Layouts>, Error> {
        self.spread.kept(&self.link).await
    }

    /// What the keys of a slot begin with.
    pub(super) fn tag(&self, slot: Slot) -> String {
        slot.tag(&self.namespace)
    }

    /// A call of a script on a slot, to which the script's own arguments are to be added.
    pub(super) fn script(&self, script: &'static Lua, slot: Slot, told: Told, layout: Layout) -> Request {
        let tag = slot.tag(&self.namespace);
        // Two keys that nobody ever has: so a master refuses the script (`TRYAGAIN`) while the slot is on its way to or from
        // it, when some of what the script is about is there and the rest is not.
        let mut call = Call::script(script, &[&tag, &format!("{tag}:")]);
        let (channel, from) = match told {
            Told::Yes => (
                self.listener.channel(),
                format!("{} {} {}", self.sender, slot.epoch, slot.number),
            ),
            Told::No => ("", String::new()),
        };
        call.arg(channel)
            .arg(from)
            .arg(Horizon::of(layout).told_within_millis());
        Request { call, slot }
    }

    /// The answer of a script that only reads.
    pub(super) async fn read(&self, request: Request) -> Result<Answer, Error> {
        let answer: Answer = self.link.call(LIMIT, &request.call).await?;
        self.quiet.heard(answer.now);
        Ok(answer)
    }

    /// The answer of a script that writes.
    pub(super) async fn write(&self, mut request: Request) -> Result<Answer, Error> {
        if let Some((replicas, within)) = self.settings.wait {
            request.call.confirmed_by(replicas, within);
        }
        let limit = LIMIT + self.settings.wait.map_or(Duration::ZERO, |(_, within)| within);
        let writing = self.quiet.writing(request.slot);
        let answer: Answer = self.link.call(limit, &request.call).await?;
        writing.answered(answer.soon);
        self.quiet.heard(answer.now);
        Ok(answer)
    }

    /// Whether slots are on several servers.
    pub(super) fn is_clustered(&self) -> bool {
        *self.settings.address.topology() == Topology::Cluster
    }

    /// The same for one of several slots, of which those that do not answer must not hold up the others: an error at once if
    /// this one did not when it was asked last.
    pub(super) async fn write_if_near(&self, request: Request) -> Result<Answer, Error> {
        // Elsewhere all slots are on one server.
        if !self.is_clustered() {
            return self.write(request).await;
        }
        let slot = request.slot;
        if self.away.has(slot) {
            return Err(Role::Store.error(true, "the server of a slot did not answer a moment ago"));
        }
        let answer = self.write(request).await;
        if answer.as_ref().is_err_and(Error::is_transient) {
            let (link, tag) = (Arc::clone(&self.link), slot.tag(&self.namespace));
            self.away.begin(slot, &self.clock, move || {
                // A script, so that a slot which is on its way is away, too.
                let mut call = Call::script(&NOW, &[&tag, &format!("{tag}:")]);
                call.arg("").arg("").arg(0).arg(0);
                let link = Arc::clone(&link);
                async move { link.call::<Answer>(LIMIT, &call).await.is_ok() }
            });
        }
        answer
    }

    /// The row of an id as it is packed; in its slot.
    pub(super) async fn packed(&self, slot: Slot, id: crate::TaskId) -> Result<Option<Vec<u8>>, Error> {
        let mut command = redis::cmd("HGET");
        command
            .arg(format!("{}:rows", slot.tag(&self.namespace)))
            .arg(id.as_bytes());
        self.link.call(LIMIT, &Call::command(command)).await
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A call of a script on a slot.
pub(super) struct Request {
    call: Call,
    slot: Slot,
}

impl Request {
    pub(super) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Self {
        self.call.arg(arg);
        self
    }
}

/// What calls give that run side by side, in the order given.
pub(super) async fn together<T, F>(calls: Vec<F>) -> Vec<Result<T, Error>>
where
    F: Future<Output = Result<T, Error>> + Send + 'static,
    T: Send + 'static,
{
    let mut calls = calls;
    // The one of a single slot needs no task of its own.
    if calls.len() <= 1 {
        return match calls.pop() {
            Some(call) => vec![call.await],
            None => Vec::new(),
        };
    }
    let mut running = JoinSet::new();
    let count = calls.len();
    for (place, call) in calls.into_iter().enumerate() {
        running.spawn(async move { (place, call.await) });
    }
    let mut given: Vec<_> = std::iter::repeat_with(|| None).take(count).collect();
    while let Some(ended) = running.join_next().await {
        if let Ok((place, result)) = ended {
            given[place] = Some(result);
        }
    }
    let ended = || Err(Role::Store.error(true, "a call ended by itself"));
    given
        .into_iter()
        .map(|result| result.unwrap_or_else(ended))
        .collect()
}

/// What calls have given where one that failed must not spoil the others: an error only if all have failed.
pub(super) fn those_that_succeeded<T>(results: Vec<Result<T, Error>>) -> Result<Vec<Option<T>>, Error> {
    let has_success = results.is_empty() || results.iter().any(Result::is_ok);
    let given = |result: Result<T, Error>| match result {
        Ok(given) => Ok(Some(given)),
        Err(error) if has_success => {
            tracing::warn!(%error, "a part of the tasks is out of reach");
            Ok(None)
        }
        Err(error) => Err(error),
    };
    results.into_iter().map(given).collect()
}
