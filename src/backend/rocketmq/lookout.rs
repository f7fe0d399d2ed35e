//! Keeps what is known of the masters true.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_model::message::MessageQueue;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::flow::News;
use super::holding::Holding;
use super::lines::{ANSWER_WITHIN, Lines};
use super::master::{Health, Master};
use super::masters::Masters;
use super::seen::{BOOT, Question, Seen, within};
use super::wanted::Wanted;
use crate::Error;
use crate::rocketmq::{Admin, Base, RocketMqOptions, Unanswered, permanent, transient};

/// How often brokers are looked at while all are well.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often, while one is not.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The least time between two looks, whatever happens.
const LEAST_PAUSE: Duration = Duration::from_millis(300);
/// For how long somebody who is asked may take to answer at the start, when a broker that is slow is better than none.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// For how long the first look may take.
const FIRST_LOOK_WITHIN: Duration = Duration::from_secs(12);
/// For how long a look may take to make what is missing.
const PREPARE_WITHIN: Duration = Duration::from_secs(6);

/// Looks at the brokers again and again: who is there, how each holds messages, and whether its levels deliver.
///
/// Its futures belong into the client's runtime and must not be abandoned.
pub(super) struct Lookout {
    base: Base,
    topic: String,
    group: String,
    wanted: Wanted,
    masters: Arc<Masters>,
    lines: Arc<Lines>,
    /// Who asks, until somebody does not answer: then its connections may be worn. Held while looking.
    admin: Mutex<Option<Admin>>,
    closing: Notify,
}

/// The addresses of the masters that nameservers list.
type Listed = BTreeMap<CheetahString, CheetahString>;
/// The queues of the topic by their broker.
type Queues = BTreeMap<CheetahString, Vec<MessageQueue>>;

impl Lookout {
    /// Looks for the first time: asks the masters how they hold messages, and makes the topic where it is missing.
    ///
    /// Where nobody can be reached that is an error, or left to later looks, as the options say.
    pub(super) async fn open(
        base: &Base,
        options: &RocketMqOptions,
        wanted: &Wanted,
    ) -> Result<Masters, Error> {
        let admin = Admin::open(base).await?;
        let first = timeout(FIRST_LOOK_WITHIN, first_look(&admin, options, wanted)).await;
        let first = first.unwrap_or_else(|_| Err(transient("neither nameservers nor brokers answer")));
        admin.close().await;
        match first {
            Err(error) if error.is_transient() && options.lazy => {
                tracing::warn!(%error, "RocketMQ is away; it is used as soon as it is there");
                Ok(Masters::new(BTreeMap::new(), wanted.reach()))
            }
            first => first,
        }
    }

    pub(super) fn new(
        base: Base,
        options: &RocketMqOptions,
        wanted: Wanted,
        masters: Arc<Masters>,
        lines: Arc<Lines>,
    ) -> Self {
        Self {
            base,
            topic: options.topic.clone(),
            group: options.group.clone(),
            wanted,
            masters,
            lines,
            admin: Mutex::new(None),
            closing: Notify::new(),
        }
    }

    /// Looks soon when there is trouble, else now and then, until closed.
    pub(super) async fn keep_looking(&self) {
        let looking = || async {
            let pause = if self.masters.all_well() {
                LOOK_EVERY
            } else {
                LOOK_AGAIN
            };
            sleep(LEAST_PAUSE).await;
            // Trouble or none, it is time for a look.
            let _ = timeout(pause - LEAST_PAUSE, self.masters.trouble()).await;
        };
        loop {
            tokio::select! {
                () = self.closing.notified() => return,
                () = looking() => {}
            }
            self.look().await;
        }
    }

    /// Looks once.
    pub(super) async fn look(&self) {
        let mut slot = self.admin.lock().await;
        let admin = match slot.take() {
            Some(admin) => admin,
            None => match Admin::open(&self.base).await {
                Ok(admin) => admin,
                Err(error) => {
                    tracing::warn!(%error, "brokers cannot be looked at");
                    return;
                }
            },
        };
        let admin = Arc::new(admin);
        let all_answered = self.look_by(&admin).await;
        // The looks at single masters have ended, so nobody else holds it.
        match Arc::into_inner(admin) {
            Some(admin) if all_answered => *slot = Some(admin),
            Some(admin) => admin.close().await,
            None => {}
        }
    }

    /// Whether a master that holds anything answers.
    pub(super) async fn reach_one(&self) -> Result<(), Error> {
        let mut unreached = transient("no broker holds messages");
        for queue in self.masters.offers().one_queue_each() {
            match self.lines.reach(&queue).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.masters.unwell(queue.broker_name());
                    unreached = error;
                }
            }
        }
        Err(unreached)
    }

    /// Ends looking, and asking.
    pub(super) async fn close(&self) {
        self.closing.notify_one();
        if let Some(admin) = self.admin.lock().await.take() {
            admin.close().await;
        }
    }

    async fn look_by(&self, admin: &Arc<Admin>) -> bool {
        // Without nameservers everything stays as it was.
        let listed = timeout(ANSWER_WITHIN, admin.masters()).await;
        let listed = listed.ok().and_then(Result::ok);
        if let Some(listed) = &listed {
            self.masters.change(|known| {
                for (name, address) in listed {
                    let moved = known.get(name).is_some_and(|master| master.address != *address);
                    if moved || !known.contains_key(name) {
                        known.insert(name.clone(), Master::new(address.clone()));
                    }
                }
            });
        }
        let mut queues = self.queues(admin).await;
        if let Some(listed) = &listed
            && let Some(found) = &queues
            && self.prepare(admin, listed, found).await
        {
            queues = self.queues(admin).await;
        }
        let mut all_answered = listed.is_some() && queues.is_some();
        for seen in self.see_each(admin).await {
            let is_listed = listed
                .as_ref()
                .is_none_or(|listed| listed.contains_key(&seen.name));
            // One that is listed without the topic has none any more.
            let none = is_listed && listed.is_some();
            let queues = queues.as_ref().and_then(|queues| match queues.get(&seen.name) {
                None if none => Some(&[][..]),
                queues => queues.map(Vec::as_slice),
            });
            all_answered &= !matches!(seen.figures, Err(Unanswered::Absent(_)));
            self.follow(&seen);
            let is_grouped = seen.has_group != Some(false) || self.make_group(admin, &seen.name).await;
            self.judge(seen, is_listed, queues, is_grouped).await;
        }
        all_answered
    }

    /// The queues of the topic by their broker; none, if the nameservers do not say.
    async fn queues(&self, admin: &Admin) -> Option<Queues> {
        let queues = timeout(ANSWER_WITHIN, admin.queues(&self.topic)).await;
        queues.ok().and_then(Result::ok)
    }

    /// Makes the topic on masters that lack it, because they are new here or somebody has deleted it; says whether there
    /// were any.
    async fn prepare(&self, admin: &Admin, listed: &Listed, queues: &Queues) -> bool {
        let now = Instant::now();
        let mut lacking = listed.clone();
        {
            let known = self.masters.known();
            let is_due =
                |name: &CheetahString| known.get(name).is_some_and(|master| master.making.is_due(now));
            lacking.retain(|name, _| !queues.contains_key(name) && is_due(name));
            for (name, master) in lacking.keys().filter_map(|name| known.get_key_value(name)) {
                if !master.queues.is_empty() {
                    tracing::warn!(
                        broker = %name, topic = self.topic,
                        "a broker has lost the topic of wake-ups, which is made again; those in it are left to the sweep"
                    );
                }
            }
        }
        if lacking.is_empty() {
            return false;
        }
        let made = timeout(PREPARE_WITHIN, admin.ensure(&lacking, &self.topic, &self.group)).await;
        let made = made.unwrap_or_else(|_| Err(transient("brokers do not answer")));
        if let Err(error) = &made {
            tracing::debug!(%error, "brokers without the topic cannot be used yet");
        }
        self.masters.change(|known| {
            for name in lacking.keys() {
                if let Some(master) = known.get_mut(name) {
                    // Until it turns out that it has the topic.
                    let is_first = master.making.failed(now);
                    if let Err(error) = &made
                        && is_first
                        && !error.is_transient()
                    {
                        tracing::warn!(broker = %name, %error, "a broker without the topic cannot be used; it is tried again");
                    }
                }
            }
        });
        true
    }

    /// Looks at each master, all at once.
    async fn see_each(&self, admin: &Arc<Admin>) -> Vec<Seen> {
        let mut looks = JoinSet::new();
        let now = Instant::now();
        for (name, master) in self.masters.known().iter_mut() {
            let question = Question {
                name: name.clone(),
                address: master.address.clone(),
                boot: master.boot.clone(),
                holds: master.holding.is_some(),
                groups: master.groups,
                flow: master.flow.is_due(now),
                wanted: self.wanted.clone(),
                topic: self.topic.clone(),
                group: self.group.clone(),
            };
            let admin = admin.clone();
            looks.spawn(Box::pin(async move { question.ask(&admin).await }));
        }
        looks.join_all().await
    }

    /// Tells when wake-ups are delivered and nobody takes them, and when they are taken again.
    fn follow(&self, seen: &Seen) {
        let Some(taken) = seen.taken else { return };
        let mut known = self.masters.known();
        let news = known
            .get_mut(&seen.name)
            .and_then(|master| master.flow.look(Instant::now(), taken));
        drop(known);
        match news {
            Some(News::Stopped) => tracing::warn!(
                broker = %seen.name, topic = self.topic, group = self.group, waiting = taken.left,
                "a broker delivers wake-ups and no worker takes them, so each task waits for the sweep, half a second or \
                 more; see that workers run, and that their group may consume there"
            ),
            Some(News::Flows) => {
                tracing::info!(broker = %seen.name, group = self.group, "the wake-ups of a broker are taken again");
            }
            None => {}
        }
    }

    /// Makes the consumer group anew that a master has lost; says whether it is there now.
    async fn make_group(&self, admin: &Admin, name: &CheetahString) -> bool {
        let address = {
            let known = self.masters.known();
            let master = known
                .get(name)
                .filter(|master| master.grouping.is_due(Instant::now()));
            master.map(|master| master.address.clone())
        };
        let Some(address) = address else { return false };
        let made = timeout(PREPARE_WITHIN, admin.make_group(&address, &self.group)).await;
        let made = made.unwrap_or_else(|_| Err(transient("the broker does not answer")));
        let mut known = self.masters.known();
        let Some(master) = known.get_mut(name) else {
            return false;
        };
        match &made {
            Ok(()) => {
                master.grouping.succeeded();
                tracing::warn!(broker = %name, group = self.group, "a broker lacked the consumer group, which is made; nothing came from there until now");
            }
            Err(error) if master.grouping.failed(Instant::now()) => tracing::warn!(
                broker = %name, group = self.group, %error,
                "a broker lacks the consumer group and it cannot be made, so nothing comes from there: it is not sent to \
                 until the group is there; make it, or let the account do so"
            ),
            Err(_) => {}
        }
        made.is_ok()
    }

    /// Takes what was seen for what is known.
    async fn judge(&self, seen: Seen, is_listed: bool, queues: Option<&[MessageQueue]>, is_grouped: bool) {
        let Seen {
            name,
            figures,
            holding,
            groups,
            ..
        } = seen;
        let holding = holding.and_then(|told| self.wanted.or_assumed(&name, told));
        if let Some(Holding::Not(why)) = &holding {
            tracing::warn!(broker = %name, %why, "a broker holds no messages; it is not used");
        }
        let absent = matches!(figures, Err(Unanswered::Absent(_)));
        let (was, restarted, is_to_stay) = self.masters.change(|known| {
            if absent && !is_listed {
                known.remove(&name);
            }
            let Some(master) = known.get_mut(&name) else {
                return (Health::Absent, false, true);
            };
            if let Some(queues) = queues {
                master.queues = queues.to_vec();
                if !queues.is_empty() {
                    master.making.succeeded();
                }
            }
            master.groups = groups;
            if !is_grouped {
                master.health = Health::Unwell;
            }
            let was = master.health;
            let is_due = master.trial.is_due(Instant::now());
            let mut restarted = false;
            let was_silent = std::mem::replace(&mut master.silent, absent);
            match (&figures, holding) {
                // One answer that does not come in time may be a machine's that is busy.
                (Err(Unanswered::Absent(_)), _) if was == Health::Well && !was_silent => {}
                (Err(Unanswered::Absent(_)), _) => master.health = Health::Absent,
                (figures, Some(holding)) => {
                    // One that is new here may have a topic that is newer than the consumer.
                    restarted = master.boot.is_some() || master.holding.is_none();
                    let boot = figures.as_ref().ok().and_then(|figures| figures.read(BOOT));
                    master.restarted(boot, holding);
                }
                (_, None) => {}
            }
            if let Ok(figures) = &figures {
                for (level, is_stuck) in master.look_at_levels(Instant::now(), figures) {
                    if is_stuck {
                        tracing::warn!(broker = %name, ?level, "a level has stopped delivering; it is not used until it goes on");
                    } else {
                        tracing::info!(broker = %name, ?level, "a level delivers again");
                    }
                }
            }
            if let Err(Unanswered::Absent(error)) = &figures
                && was != Health::Absent
                && master.health == Health::Absent
            {
                tracing::warn!(broker = %name, %error, "a broker does not answer; it is not sent to until it does");
            }
            // It is tried once more after a pause, which is longer each time that it then takes nothing.
            let is_to_stay = match was {
                Health::Well => true,
                Health::Unwell => !is_due,
                Health::Absent => false,
            };
            (was, restarted, is_to_stay && !restarted)
        });
        if absent || is_to_stay || !is_grouped {
            return;
        }
        let queue = self
            .masters
            .known()
            .get(&name)
            .and_then(|master| master.queues.first().cloned());
        let Some(queue) = queue else { return };
        let reached = self.lines.reach(&queue).await;
        // One that does not tell when it was started may have been started again.
        let is_worn = restarted || reached.is_err() || was == Health::Absent && figures.is_err();
        // Without a nameserver fresh lines lead nowhere, and those in use may still do.
        if is_worn
            && let Err(error) = self.lines.renew(&queue).await
            && reached.is_err()
        {
            tracing::warn!(broker = %name, %error, "a broker is there again, and cannot be sent to yet");
            self.masters.unwell(&name);
            return;
        }
        if was != Health::Well {
            tracing::info!(broker = %name, "a broker is sent to again");
        }
        self.masters.change(|known| {
            if let Some(master) = known.get_mut(&name) {
                master.health = Health::Well;
                match was {
                    Health::Unwell if !restarted => master.misses.on_trial(),
                    _ => master.misses.took(),
                }
            }
        });
    }
}

async fn first_look(admin: &Admin, options: &RocketMqOptions, wanted: &Wanted) -> Result<Masters, Error> {
    let listed = admin.masters().await?;
    let mut known = BTreeMap::new();
    let mut absent = None;
    for (name, address) in &listed {
        let mut master = Master::new(address.clone());
        let told = within(FIRST_ANSWER_WITHIN, wanted.ask(admin, address)).await;
        if let Err(Unanswered::Absent(error)) = &told {
            tracing::warn!(broker = %name, %error, "a broker does not answer");
            master.health = Health::Absent;
            absent = Some(error.to_string());
        }
        if let Some(holding) = wanted.or_assumed(name, told) {
            if let Holding::Not(why) = holding {
                return Err(permanent(format!("the broker {name} cannot be used: {why}")));
            }
            let figures = within(FIRST_ANSWER_WITHIN, admin.figures(address))
                .await
                .unwrap_or_default();
            master.restarted(figures.read(BOOT), holding);
        }
        known.insert(name.clone(), master);
    }
    let holdings = known.values().filter_map(|master| master.holding.as_ref());
    let Some(reach) = holdings.filter_map(Holding::reach).next() else {
        return Err(transient(
            absent.unwrap_or_else(|| "no broker answers".to_owned()),
        ));
    };
    admin.ensure(&listed, &options.topic, &options.group).await?;
    for (name, queues) in admin.queues(&options.topic).await? {
        if let Some(master) = known.get_mut(&name) {
            master.queues = queues;
        }
    }
    Ok(Masters::new(known, reach))
}
