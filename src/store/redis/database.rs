//! The servers that have the rows, and how scripts are called there.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::{FromRedisValue, ToRedisArgs};

use super::answer::Answer;
use super::away::Away;
use super::closed::is_closed;
use super::listen::{Horizon, Listener};
use super::quiet::Quiet;
use super::together::{all, together};
use crate::redis::{Address, Call, Layout, Layouts, Link, Lua, Role, Slot, Spread, lua};
use crate::{Clock, Error, Timestamp};

pub(super) static NOW: Lua = lua!("row.lua", "now.lua");

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

    /// For how long a write waits for replicas at most.
    fn replicas_wait(&self) -> Duration {
        self.wait.map_or(Duration::ZERO, |(_, within)| within)
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
    /// Whether a slot has said that its epoch is over.
    is_outdated: AtomicBool,
    /// The last epoch whose slots this process has closed.
    closed: AtomicU64,
}

/// Whether others are to hear of what a script writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Yes,
    No,
    /// There is nothing to hear: it is about a slot that may be closed.
    OfThePast,
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
        let patience = PATIENCE + settings.replicas_wait();
        let listener = Listener::new(
            address.clone(),
            channel,
            sender,
            Arc::clone(&quiet),
            clock.clone(),
        );
        Self {
            away: Away::default(),
            link: Arc::new(Link::new(address, Role::Store, patience)),
            settings,
            clock,
            quiet,
            listener,
            spread,
            namespace,
            sender,
            is_outdated: AtomicBool::new(false),
            closed: AtomicU64::new(0),
        }
    }

    /// The layout to go by, and the one before it while its rows are being carried over: the slots of that are closed by
    /// then, see `moving.rs`.
    pub(super) async fn layouts(&self) -> Result<Layouts, Error> {
        // Taken back before it asks: what is said meanwhile is about a later answer.
        let is_outdated = self.is_outdated.swap(false, Ordering::AcqRel);
        let told = self.listener.newest_epoch();
        let asks = is_outdated || told > self.spread.assumed().epoch;
        let layouts = if asks {
            self.spread.ask(&self.link).await
        } else {
            self.spread.layouts(&self.link).await
        };
        if layouts.is_err() && asks {
            self.outdated();
        }
        self.barred(layouts?).await
    }

    /// The same, asked now.
    pub(super) async fn layouts_now(&self) -> Result<Layouts, Error> {
        let layouts = self.spread.ask(&self.link).await?;
        self.barred(layouts).await
    }

    async fn barred(&self, layouts: Layouts) -> Result<Layouts, Error> {
        if let Some(former) = layouts.former
            && self.closed.load(Ordering::Acquire) < former.epoch
        {
            self.close(former).await?;
            self.quiet.keep(|slot| layouts.slots().any(|kept| kept == slot));
            self.closed.fetch_max(former.epoch, Ordering::AcqRel);
        }
        Ok(layouts)
    }

    /// Closes all slots of an epoch that is over.
    pub(super) async fn close(&self, former: Layout) -> Result<(), Error> {
        let calls = former.all().map(|slot| async move {
            // One that was emptied already stays closed for as long as was said then.
            let answer = self.command("SET", slot, "closed", &["1", "NX"]);
            answer.await.map(|_: Option<String>| ())
        });
        all(together(calls).await).map(drop)
    }

    #[cfg(test)]
    pub(super) async fn layout(&self) -> Result<Layout, Error> {
        Ok(self.layouts().await?.current)
    }

    /// What is known of the layout is not so any more.
    fn outdated(&self) {
        self.is_outdated.store(true, Ordering::Release);
    }

    /// Calls a script about the layout.
    pub(super) async fn call_layout<T: FromRedisValue>(
        &self,
        script: &'static Lua,
        args: &[String],
    ) -> Result<T, Error> {
        let mut call = Call::script(script, &[self.spread.key()]);
        call.arg(args);
        self.confirmed(&mut call);
        self.link.call(self.limit(), &call).await
    }

    /// A message that something in the first slot of an epoch needs a look now.
    pub(super) fn message_of(&self, epoch: u64) -> String {
        format!("{} {epoch} 0 0 0", self.sender)
    }

    /// Calls a command on a key of a slot; `name` is the key's, after the tag.
    pub(super) async fn command<T: FromRedisValue>(
        &self,
        command: &str,
        slot: Slot,
        name: &str,
        args: impl ToRedisArgs,
    ) -> Result<T, Error> {
        let mut words = redis::cmd(command);
        words
            .arg(format!("{}:{name}", slot.tag(&self.namespace)))
            .arg(args);
        let mut call = Call::command(words);
        if command == "SET" {
            self.confirmed(&mut call);
        }
        self.link.call(self.limit(), &call).await
    }

    fn confirmed(&self, call: &mut Call) {
        if let Some((replicas, within)) = self.settings.wait {
            call.confirmed_by(replicas, within);
        }
    }

    /// How long a write may take.
    fn limit(&self) -> Duration {
        LIMIT + self.settings.replicas_wait()
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
            Told::No | Told::OfThePast => ("", String::new()),
        };
        call.arg(channel).arg(from);
        match told {
            Told::Yes | Told::No => call.arg(Horizon::of(layout).told_within_millis()),
            Told::OfThePast => call.arg("closed"),
        };
        Request { call, slot }
    }

    /// The answer of a script that only reads.
    pub(super) async fn read(&self, request: Request) -> Result<Answer, Error> {
        let answer = self.link.call(LIMIT, &request.call).await;
        let answer: Answer = answer.inspect_err(|error| self.failed(error))?;
        self.quiet.heard(answer.now);
        Ok(answer)
    }

    /// The answer of a script that writes.
    pub(super) async fn write(&self, mut request: Request) -> Result<Answer, Error> {
        self.confirmed(&mut request.call);
        let writing = self.quiet.writing(request.slot);
        let answer = self.link.call(self.limit(), &request.call).await;
        let answer: Answer = answer.inspect_err(|error| self.failed(error))?;
        writing.answered(answer.soon);
        self.quiet.heard(answer.now);
        Ok(answer)
    }

    fn failed(&self, error: &Error) {
        if is_closed(error) {
            self.outdated();
        }
    }

    /// The time by the clock of the server that has the first slot.
    pub(super) async fn now(&self, layout: Layout) -> Result<Timestamp, Error> {
        let (number, epoch) = (0, layout.epoch);
        // Also a slot that is closed knows the time.
        let mut call = self.script(&NOW, Slot { epoch, number }, Told::OfThePast, layout);
        call.arg(0);
        Ok(self.read(call).await?.now)
    }

    /// Whether slots are on several servers.
    pub(super) fn is_clustered(&self) -> bool {
        self.settings.address.is_clustered()
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
        if answer
            .as_ref()
            .is_err_and(|error| error.is_transient() && !is_closed(error))
        {
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
