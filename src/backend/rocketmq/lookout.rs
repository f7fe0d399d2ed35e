//! Keeps what is known of the masters true.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_model::message::MessageQueue;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::lines::Lines;
use super::masters::{Health, Master, Masters};
use crate::rocketmq::{Admin, Base, RocketMqOptions, Unanswered, transient};
use crate::{Error, LevelTable};

/// How often brokers are looked at while all are well.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often, while one is not.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The least time between two looks, whatever happens.
const LEAST_PAUSE: Duration = Duration::from_millis(300);
/// For how long somebody who is asked may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// The same at the start, when a broker that is slow is better than none.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// Looks at the brokers again and again: who is there, with which levels, and whether the levels deliver.
///
/// Its futures belong into the client's runtime and must not be abandoned.
pub(super) struct Lookout {
    base: Base,
    topic: String,
    /// For masters that do not tell theirs.
    configured: Option<LevelTable>,
    masters: Arc<Masters>,
    lines: Arc<Lines>,
    /// Who asks, until somebody does not answer: then its connections may be worn. Held while looking.
    admin: Mutex<Option<Admin>>,
    closing: Notify,
}

/// What a look has found out about one master.
struct Seen {
    name: CheetahString,
    figures: Result<BTreeMap<String, String>, Unanswered>,
    /// Its table, if it was asked for it.
    table: Option<Result<LevelTable, Unanswered>>,
}

impl Lookout {
    /// Looks for the first time: reads the masters' tables, and makes the topic where it is missing.
    pub(super) async fn open(base: &Base, options: &RocketMqOptions) -> Result<Masters, Error> {
        let admin = Admin::open(base).await?;
        let first = first_look(&admin, options).await;
        admin.close().await;
        first
    }

    pub(super) fn new(
        base: Base,
        options: &RocketMqOptions,
        masters: Arc<Masters>,
        lines: Arc<Lines>,
    ) -> Self {
        Self {
            base,
            topic: options.topic.clone(),
            configured: options.levels.clone(),
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

    /// Whether a master that has levels answers.
    pub(super) async fn reach_one(&self) -> Result<(), Error> {
        let mut unreached = transient("no broker offers a level");
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
        let (listed, queues) = tokio::join!(
            timeout(ANSWER_WITHIN, admin.masters()),
            timeout(ANSWER_WITHIN, admin.queues(&self.topic)),
        );
        // Without nameservers everything stays as it was.
        let (listed, queues) = (listed.ok().and_then(Result::ok), queues.ok().and_then(Result::ok));
        let mut all_answered = listed.is_some() && queues.is_some();
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
        for seen in self.see_each(admin).await {
            let is_listed = listed
                .as_ref()
                .is_none_or(|listed| listed.contains_key(&seen.name));
            let queues = queues.as_ref().and_then(|queues| queues.get(&seen.name));
            all_answered &= !matches!(seen.figures, Err(Unanswered::Absent(_)));
            self.judge(seen, is_listed, queues).await;
        }
        all_answered
    }

    /// Asks each master for its figures, and for its table if that may be another one; all at once.
    async fn see_each(&self, admin: &Arc<Admin>) -> Vec<Seen> {
        let mut looks = JoinSet::new();
        for (name, master) in self.masters.known().iter() {
            let (admin, name, address) = (admin.clone(), name.clone(), master.address.clone());
            let (boot, has_table) = (master.boot.clone(), master.table.is_some());
            looks.spawn(Box::pin(async move {
                let figures = within(ANSWER_WITHIN, admin.figures(&address)).await;
                let again = match &figures {
                    Ok(figures) => !has_table || boot.as_ref() != figures.get(BOOT),
                    Err(Unanswered::Refused(_)) => !has_table,
                    Err(Unanswered::Absent(_)) => false,
                };
                let table = match again {
                    true => Some(within(ANSWER_WITHIN, table_of(&admin, &address)).await),
                    false => None,
                };
                Seen { name, figures, table }
            }));
        }
        looks.join_all().await
    }

    /// Takes what was seen for what is known.
    async fn judge(&self, seen: Seen, is_listed: bool, queues: Option<&Vec<MessageQueue>>) {
        let Seen { name, figures, table } = seen;
        let table = table.and_then(|told| table_or_assumed(&name, told, self.configured.as_ref()));
        let absent = matches!(figures, Err(Unanswered::Absent(_)));
        let (was, restarted) = self.masters.change(|known| {
            if absent && !is_listed {
                known.remove(&name);
            }
            let Some(master) = known.get_mut(&name) else {
                return (Health::Absent, false);
            };
            if let Some(queues) = queues {
                master.queues.clone_from(queues);
            }
            let was = master.health;
            let mut restarted = false;
            match (&figures, table) {
                (Err(Unanswered::Absent(_)), _) => master.health = Health::Absent,
                (figures, Some(table)) => {
                    restarted = master.boot.is_some();
                    let boot = figures.as_ref().ok().and_then(|figures| figures.get(BOOT).cloned());
                    master.restarted(boot, table);
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
            (was, restarted)
        });
        match figures {
            Err(Unanswered::Absent(error)) => {
                if was != Health::Absent {
                    tracing::warn!(broker = %name, %error, "a broker does not answer; it is not sent to until it does");
                }
                return;
            }
            _ if was == Health::Well && !restarted => return,
            _ => {}
        }
        let queue = self
            .masters
            .known()
            .get(&name)
            .and_then(|master| master.queues.first().cloned());
        let Some(queue) = queue else { return };
        let renew = restarted || was == Health::Absent || self.lines.reach(&queue).await.is_err();
        if renew && let Err(error) = self.lines.renew(&queue).await {
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
            }
        });
    }
}

/// When the broker was started, in its figures.
const BOOT: &str = "bootTimestamp";

async fn first_look(admin: &Admin, options: &RocketMqOptions) -> Result<Masters, Error> {
    let listed = admin.masters().await?;
    let mut known = BTreeMap::new();
    let mut absent = None;
    for (name, address) in &listed {
        let mut master = Master::new(address.clone());
        let told = within(FIRST_ANSWER_WITHIN, table_of(admin, address)).await;
        if let Err(Unanswered::Absent(error)) = &told {
            tracing::warn!(broker = %name, %error, "a broker does not answer");
            master.health = Health::Absent;
            absent = Some(error.to_string());
        }
        if let Some(table) = table_or_assumed(name, told, options.levels.as_ref()) {
            let figures = within(FIRST_ANSWER_WITHIN, admin.figures(address))
                .await
                .unwrap_or_default();
            master.restarted(figures.get(BOOT).cloned(), table);
        }
        known.insert(name.clone(), master);
    }
    let Some(table) = known.values().find_map(|master| master.table.clone()) else {
        return Err(transient(
            absent.unwrap_or_else(|| "no broker answers".to_owned()),
        ));
    };
    admin.ensure_topic(&listed, &options.topic).await?;
    for (name, queues) in admin.queues(&options.topic).await? {
        if let Some(master) = known.get_mut(&name) {
            master.queues = queues;
        }
    }
    Ok(Masters::new(known, table))
}

async fn within<T>(
    patience: Duration,
    asking: impl Future<Output = Result<T, Unanswered>>,
) -> Result<T, Unanswered> {
    timeout(patience, asking)
        .await
        .unwrap_or_else(|_| Err(Unanswered::Absent(transient("no answer in time"))))
}

async fn table_of(admin: &Admin, address: &CheetahString) -> Result<LevelTable, Unanswered> {
    let settings = admin.settings(address).await?;
    let levels = settings
        .get("messageDelayLevel")
        .ok_or_else(|| Unanswered::Refused(transient("the broker's settings have no messageDelayLevel")))?;
    levels.parse().map_err(Unanswered::Refused)
}

/// A master's table: what it tells, or if it is there and does not tell, what was configured, or the default.
fn table_or_assumed(
    name: &CheetahString,
    told: Result<LevelTable, Unanswered>,
    configured: Option<&LevelTable>,
) -> Option<LevelTable> {
    match (told, configured) {
        (Ok(told), Some(configured)) if told != *configured => {
            tracing::warn!(broker = %name, %told, %configured, "a broker has other levels than the configured ones; its own are used");
            Some(told)
        }
        (Ok(told), _) => Some(told),
        (Err(Unanswered::Refused(error)), Some(configured)) => {
            tracing::warn!(broker = %name, %error, levels = %configured, "a broker does not tell its delay levels; the configured ones are used");
            Some(configured.clone())
        }
        (Err(Unanswered::Refused(error)), None) => {
            let levels = LevelTable::default();
            tracing::warn!(
                broker = %name, %error, %levels,
                "a broker does not tell its delay levels, so RocketMQ's default ones are assumed; \
                 if that is wrong, configure them, or wake-ups will be early or late"
            );
            Some(levels)
        }
        (Err(Unanswered::Absent(_)), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assumed(told: Result<&str, Unanswered>, configured: Option<&str>) -> Option<String> {
        let told = told.map(|text| text.parse().unwrap());
        let configured = configured.map(|text| text.parse().unwrap());
        let table = table_or_assumed(&"broker-a".into(), told, configured.as_ref());
        table.map(|table| table.to_string())
    }

    #[test]
    fn a_master_that_tells_its_table_has_it_whatever_was_configured() {
        assert_eq!(assumed(Ok("1s 2s"), None).unwrap(), "1s 2s");
        assert_eq!(assumed(Ok("1s 2s"), Some("1s 3s")).unwrap(), "1s 2s");
    }

    #[test]
    fn one_that_is_there_and_does_not_tell_has_the_configured_table_or_the_default_one() {
        let refused = || Err(Unanswered::Refused(transient("no permission")));
        assert_eq!(assumed(refused(), Some("1s 3s")).unwrap(), "1s 3s");
        assert_eq!(
            assumed(refused(), None).unwrap(),
            LevelTable::default().to_string()
        );
    }

    #[test]
    fn nothing_is_assumed_of_one_that_is_not_there() {
        let absent = Err(Unanswered::Absent(transient("refused")));
        assert_eq!(assumed(absent, Some("1s 3s")), None);
    }
}
