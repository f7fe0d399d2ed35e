//! RocketMQ: chains of hops, beside the bare client.

mod bare;
mod calling;
mod client;
mod lengths;
mod made;
mod ours;

use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::time::Duration;

use delayline::backend::{Backend, RocketMqBackend, WheelBackend};
use delayline::delay::{LevelTable, Routing};
use delayline::rocketmq::{RocketMqOptions, Survey};
use delayline::{Scheduler, defaults};

use self::bare::Bare;
use self::lengths::{Chain, Lengths};
use self::made::Made;
use super::compare::Runs;
use super::figure::{Line, Measured};
use super::named::Named;
use super::names::Names;
use super::ours::Ours;
use super::side::KIND;
use super::workload::{Aim, Figure, Unit, Workload};
use super::{Error, Order};
use crate::{Failure, nameservers};

/// How long callers go on in C2.
const SUSTAINED: Duration = Duration::from_secs(10);
/// How often, how long and with how many messages brokers are made warm: their Java is several times slower until it has
/// been used for a while.
const WARM_UPS: usize = 2;
const WARM_UP: Duration = Duration::from_secs(3);
const WARM_UP_BURST: usize = 20_000;
/// By how much more than the tolerance the chains may be later than one level, in ms.
const MORE: f64 = 5.0;

/// The brokers behind nameservers, and where the rows of their tasks are.
pub(crate) struct Brokers {
    nameservers: String,
    /// Where rows are if nobody has named a place for them.
    passing: Option<Named>,
    names: Names,
    made: Made,
    asked: OnceCell<Asked>,
    is_warm: Cell<bool>,
}

/// What brokers say of themselves.
struct Asked {
    levels: LevelTable,
    lengths: Lengths,
    versions: Vec<String>,
}

/// What tasks go through: the chains that the brokers have, and what is beside these.
struct Through<'a> {
    lengths: &'a Lengths,
    /// The chain of one hop.
    one: &'a Chain,
    rows: &'a Named,
    /// Where chains may end.
    redis: Option<&'a Named>,
}

impl Brokers {
    pub(crate) const NAME: &str = "rocketmq";

    /// Those that an option names; nothing is connected to.
    pub(crate) fn named(nameservers: &str, named: &[Named]) -> Result<Self, Failure> {
        let passing = match named.iter().any(Named::keeps_rows) {
            true => None,
            false => Some(Named::passing()?),
        };
        Ok(Self {
            nameservers: nameservers.to_owned(),
            passing,
            names: Names::new(),
            made: Made::default(),
            asked: OnceCell::new(),
            is_warm: Cell::new(false),
        })
    }

    /// Asks them what they are.
    pub(crate) async fn ask(&self) -> Result<(), Failure> {
        let survey = Survey::take(self.nameservers.as_str());
        let survey = survey.await.map_err(nameservers::refused)?;
        let mut tables = survey.masters.iter().filter_map(|master| master.levels.as_ref());
        let levels = survey.levels();
        if tables.any(|table| *table != levels) {
            return Err(Failure::Found(
                "the brokers have unlike levels, which the bare client cannot tell apart".to_owned(),
            ));
        }
        let masters = survey.masters.iter();
        let mut versions: Vec<_> = masters
            .filter_map(|master| Some(master.version.as_ref()?.to_string()))
            .collect();
        versions.sort();
        versions.dedup();
        let lengths = Lengths::of(&levels);
        let asked = Asked {
            levels,
            lengths,
            versions,
        };
        // Once is enough.
        let _ = self.asked.set(asked);
        Ok(())
    }

    /// Their version and their levels, if they were asked.
    pub(crate) fn version(&self) -> Option<String> {
        let asked = self.asked.get()?;
        Some(format!(
            "{}, levels {}",
            asked.versions.join(" and "),
            asked.levels
        ))
    }

    /// Both sides in turns, each on a topic of its own.
    pub(crate) async fn measure(
        &self,
        workload: Workload,
        order: &Order,
        named: &[Named],
    ) -> Result<Vec<Line>, Error> {
        let asked = self.asked.get().ok_or("the brokers were not asked")?;
        let lengths = &asked.lengths;
        let one = lengths.one_hop().ok_or_else(|| {
            format!(
                "no chain through the levels {} takes at most 2 minutes; one through 1s 2s 1h would",
                asked.levels
            )
        })?;
        let through = Through {
            lengths,
            one,
            rows: named
                .iter()
                .chain(&self.passing)
                .find(|place| place.keeps_rows())
                .ok_or("there is no place for rows")?,
            redis: named.iter().find(|place| !place.keeps_rows()),
        };
        self.warm_up(one, order).await?;
        let tasks = workload.tasks(order.tasks);
        let limit = async || {
            let limit = self.limit(workload, tasks, &through).await?;
            self.clean_with(&through).await?;
            Ok(Some(limit))
        };
        let ours = async || {
            let ours = self.ours(workload, tasks, &through).await?;
            self.clean_with(&through).await?;
            Ok(ours)
        };
        let runs = Runs::in_turns(order, Self::NAME, workload, limit, ours).await?;
        Ok(runs.lines(workload, figures(workload, &through), Self::NAME))
    }

    async fn warm_up(&self, one: &Chain, order: &Order) -> Result<(), Error> {
        if self.is_warm.replace(true) {
            return Ok(());
        }
        order.bar.set_message(format!("{}: warming up", Self::NAME));
        for _ in 0..WARM_UPS {
            let bare = self.bare().await?;
            bare.sent(order.tasks, WARM_UP).await?;
            bare.close().await;
            // On another topic, whose consumer does not see those.
            let bare = self.bare().await?;
            bare.burst(WARM_UP_BURST.min(order.tasks), one.level).await?;
            bare.close().await;
            self.clean().await?;
        }
        Ok(())
    }

    /// The limit of each figure.
    async fn limit(
        &self,
        workload: Workload,
        tasks: usize,
        through: &Through<'_>,
    ) -> Result<Vec<Measured>, Error> {
        let bare = self.bare().await?;
        let measured = match workload {
            Workload::C1 => bare.steady(tasks, through.one.level).await?,
            Workload::C2 => bare.sent(tasks, SUSTAINED).await?,
            _ => bare.burst(tasks, through.one.level).await?,
        };
        bare.close().await;
        // One level is the limit of every chain, and one burst that of both figures.
        let mut limits = vec![measured; figures(workload, through).len()];
        if let (Workload::C1, Some(redis), Some(_)) = (workload, through.redis, through.lengths.to_redis()) {
            limits.pop();
            limits.push(redis.late_if_bare(tasks, calling::EVERY).await?);
        }
        Ok(limits)
    }

    /// What the library does, in the order of the figures.
    async fn ours(
        &self,
        workload: Workload,
        tasks: usize,
        through: &Through<'_>,
    ) -> Result<Vec<Measured>, Error> {
        let mut measured = Vec::new();
        // Not what a scheduler has by default, which sees to the end of a chain by the rows themselves.
        let wheel = || Arc::new(WheelBackend::new());
        let chained = async || self.chained(through.rows, Routing::default(), wheel()).await;
        match workload {
            Workload::C1 => {
                for chain in through.lengths.chains() {
                    measured.push(ours::steady(chained().await?, tasks, chain).await?);
                }
                if let (Some(redis), Some(chain)) = (through.redis, through.lengths.to_redis()) {
                    let precise = redis.precise().await?;
                    let ours = self.chained(through.rows, lengths::to_redis(), precise);
                    measured.push(ours::steady(ours.await?, tasks, chain).await?);
                }
            }
            Workload::C2 => measured.push(ours::schedule(chained().await?, tasks, SUSTAINED).await?),
            _ => {
                measured.push(ours::burst(chained().await?, tasks, through.one).await?);
                if let Some(two) = through.lengths.two_hops() {
                    measured.push(ours::burst(chained().await?, tasks, two).await?);
                }
            }
        }
        Ok(measured)
    }

    /// The bare client, on a topic of its own.
    async fn bare(&self) -> Result<Bare, Error> {
        let (options, topic) = self.made.make(self.options()).await?;
        // Not before the nameservers know of the topic, or the consumer would learn of it only half a minute later.
        RocketMqBackend::connect(options).await?.close().await?;
        Bare::start(&self.nameservers, topic).await
    }

    /// The library over brokers, on a topic of its own.
    async fn chained(
        &self,
        rows: &Named,
        routing: Routing,
        precise: Arc<dyn Backend>,
    ) -> Result<Ours, Error> {
        let (options, _) = self.made.make(self.options()).await?;
        let store = rows.rows().await?;
        let scheduler = Scheduler::builder(Arc::clone(&store))
            .carrier(Arc::new(RocketMqBackend::connect(options).await?))
            .precise(precise)
            .routing(routing)
            .build()?;
        let kind = KIND.into();
        Ok(Ours {
            store,
            scheduler,
            kind,
        })
    }

    /// A name for a topic and for its group.
    fn options(&self) -> RocketMqOptions {
        let name = self.names.next();
        RocketMqOptions::new(&self.nameservers).topic(&name).group(&name)
    }

    /// Removes everything that this run has made on brokers, and rows that nobody has named a place for.
    pub(crate) async fn clean(&self) -> Result<(), Error> {
        let deleted = self.made.delete().await;
        if let Some(passing) = &self.passing {
            passing.clean().await?;
        }
        deleted
    }

    async fn clean_with(&self, through: &Through<'_>) -> Result<(), Error> {
        self.clean().await?;
        for place in [through.rows].into_iter().chain(through.redis) {
            place.clean().await?;
        }
        Ok(())
    }
}

/// What is measured, in the order in which it is.
fn figures(workload: Workload, through: &Through<'_>) -> Vec<Figure> {
    let lengths = through.lengths;
    let figure = |what: String, unit, aim| Figure {
        what: what.into(),
        unit,
        aim,
    };
    match workload {
        Workload::C1 => {
            let later = Aim::AtMostLaterBy(defaults::TOLERANCE.as_secs_f64() * 1e3 + MORE);
            let late =
                |chain: &Chain| figure(format!("at 500/s through {chain}, late"), Unit::Lateness, later);
            let precise = |chain: &Chain| {
                let what = format!("at 500/s through {chain} and Redis, late");
                figure(what, Unit::Lateness, Aim::AtMost(2.5))
            };
            let to_redis = through.redis.and(lengths.to_redis());
            lengths
                .chains()
                .iter()
                .map(late)
                .chain(to_redis.map(precise))
                .collect()
        }
        Workload::C2 => {
            let what = format!("by 64 callers, until on brokers, rows in {}", through.rows.name());
            vec![figure(what, Unit::Rate, Aim::AtLeast(0.6))]
        }
        _ => {
            let time = |what: &str| {
                figure(
                    format!("out of one level at once, until {what}"),
                    Unit::Time,
                    Aim::AtMost(1.5),
                )
            };
            let next = lengths.two_hops().map(|_| time("on the next hop"));
            [time("run")].into_iter().chain(next).collect()
        }
    }
}
