//! The servers that are measured, and what each allows.

#[cfg(feature = "rocketmq")]
use super::chains::Brokers;
use super::compare::timers;
use super::crowd::{self, Crowd, Others};
use super::figure::Line;
use super::named::{Named, STORE};
use super::workload::Workload;
use super::{Error, Order};
use crate::Failure;
use crate::database::Address;

/// All that were named.
pub(crate) struct Servers {
    named: Vec<Named>,
    /// What else the stores have in them.
    others: Others,
    /// The stores once more, each for its crowd, if there are others.
    crowded: Vec<Named>,
    #[cfg(feature = "rocketmq")]
    brokers: Option<Brokers>,
}

impl Servers {
    /// As options name them; nothing is connected to.
    pub(crate) fn named(
        stores: &[String],
        redis: Option<&str>,
        rocketmq: Option<&str>,
        others: Others,
    ) -> Result<Self, Failure> {
        const VARIABLE: &str = "DATABASE_URL";
        let mut addresses = Vec::new();
        for store in stores {
            addresses.push(Address::given(STORE, Some(store))?);
        }
        // Whoever names a server means no other.
        let names_none = stores.is_empty() && redis.is_none() && rocketmq.is_none();
        if names_none && std::env::var_os(VARIABLE).is_some() {
            addresses.push(Address::given(STORE, None)?);
        }
        let kept = || addresses.iter().map(Named::store).collect::<Result<Vec<_>, _>>();
        let mut named = kept()?;
        let mut crowded = Vec::new();
        if !others.are_none() {
            if addresses.is_empty() {
                return Err(Failure::Argument(
                    "--pending, --finished and --history are allowed with --store or DATABASE_URL".to_owned(),
                ));
            }
            crowded = kept()?;
        }
        if let Some(url) = redis {
            named.push(Named::wakes(url)?);
        }
        #[cfg(feature = "rocketmq")]
        return Ok(Self {
            brokers: rocketmq
                .map(|nameservers| Brokers::named(nameservers, &named))
                .transpose()?,
            named,
            others,
            crowded,
        });
        #[cfg(not(feature = "rocketmq"))]
        match rocketmq {
            None => Ok(Self {
                named,
                others,
                crowded,
            }),
            Some(_) => Err(Failure::Argument(
                "--rocketmq is given, but needs the feature rocketmq, which this build does not have"
                    .to_owned(),
            )),
        }
    }

    /// Whether one of them, or the process alone, allows it.
    fn allows(&self, workload: Workload) -> bool {
        match workload {
            _ if !self.others.are_none() => crowd::WORKLOADS.contains(&workload),
            Workload::W7 => true,
            #[cfg(feature = "rocketmq")]
            Workload::C1 | Workload::C2 | Workload::C3 => self.brokers.is_some(),
            _ => self.named.iter().any(|server| server.allows(workload)),
        }
    }

    /// What is measured: what was named, each of which a server must allow, or else all that any does.
    pub(crate) fn choose(&self, wanted: Option<Vec<Workload>>) -> Result<Vec<Workload>, Failure> {
        let is_allowed = |workload: &Workload| self.allows(*workload);
        let Some(wanted) = wanted else {
            return Ok(Workload::ALL.into_iter().filter(is_allowed).collect());
        };
        match wanted.iter().find(|workload| !is_allowed(workload)) {
            None => Ok(wanted),
            Some(workload) => Err(Failure::Argument(format!(
                "WORKLOAD is \"{workload}\": it is allowed with {}",
                match workload {
                    _ if !self.others.are_none() => "neither --pending nor --finished nor --history",
                    Workload::W4 => "--redis redis://…, or with --store redis://…",
                    Workload::C1 | Workload::C2 | Workload::C3 => "--rocketmq HOST:PORT",
                    _ => "--store, DATABASE_URL or --redis",
                }
            ))),
        }
    }

    /// Each workload on each store, with others in it.
    async fn measure_among(&self, workloads: &[Workload], order: &Order) -> Result<Vec<Line>, Failure> {
        order
            .bar
            .set_length((self.crowded.len() * workloads.len() * order.runs) as u64);
        let mut lines = Vec::new();
        for (place, crowded) in self.named.iter().zip(&self.crowded) {
            let gathered = Crowd::gather(crowded, self.others, order).await;
            let crowd = gathered.map_err(|error| {
                Failure::Found(format!("{} could not be filled: {error}", crowded.name()))
            })?;
            for &workload in workloads {
                let measured = crowd.compare(place, workload, order).await;
                lines.extend(measured.map_err(|error| failed(place.name(), workload, &error))?);
            }
        }
        Ok(lines)
    }

    /// Each workload on each server that allows it.
    pub(crate) async fn measure(&self, workloads: &[Workload], order: &Order) -> Result<Vec<Line>, Failure> {
        if !self.others.are_none() {
            return self.measure_among(workloads, order).await;
        }
        // Before anything else: which figures there are depends on what brokers say, and whether there are any.
        #[cfg(feature = "rocketmq")]
        if let Some(brokers) = &self.brokers {
            brokers.ask().await?;
        }
        let mut planned = Vec::new();
        for server in &self.named {
            let allowed = workloads.iter().filter(|workload| server.allows(**workload));
            planned.extend(allowed.map(|&workload| (server, workload)));
        }
        let besides = workloads.iter().filter(|workload| match workload {
            Workload::W7 => true,
            workload => workload.is_of_brokers(),
        });
        order
            .bar
            .set_length(((planned.len() + besides.count()) * order.runs) as u64);
        let mut lines = Vec::new();
        for (server, workload) in planned {
            let measured = server.measure(workload, order).await;
            lines.extend(measured.map_err(|error| failed(server.name(), workload, &error))?);
        }
        if workloads.contains(&Workload::W7) {
            let measured = timers(order).await;
            lines.extend(measured.map_err(|error| failed("the process", Workload::W7, &error))?);
        }
        #[cfg(feature = "rocketmq")]
        if let Some(brokers) = &self.brokers {
            for &workload in workloads.iter().filter(|workload| workload.is_of_brokers()) {
                let measured = brokers.measure(workload, order, &self.named).await;
                lines.extend(measured.map_err(|error| failed(Brokers::NAME, workload, &error))?);
            }
        }
        Ok(lines)
    }

    /// The version of each, as it says; what it does not say is left out.
    pub(crate) async fn versions(&self) -> Vec<(&'static str, String)> {
        let mut versions = Vec::new();
        for server in &self.named {
            let version = server.version().await;
            versions.extend(version.ok().map(|version| (server.name(), version)));
        }
        #[cfg(feature = "rocketmq")]
        if let Some(version) = self.brokers.as_ref().and_then(Brokers::version) {
            versions.push((Brokers::NAME, version));
        }
        versions
    }

    /// Removes what was made on any of them; tells the first of the failures.
    pub(crate) async fn clean(&self) -> Result<(), Failure> {
        let mut all = Ok(());
        for server in self.named.iter().chain(&self.crowded) {
            let cleaned = server.clean().await;
            all = all.and(cleaned.map_err(|error| uncleaned(server.name(), &error)));
        }
        #[cfg(feature = "rocketmq")]
        if let Some(brokers) = &self.brokers {
            let cleaned = brokers.clean().await;
            all = all.and(cleaned.map_err(|error| uncleaned(Brokers::NAME, &error)));
        }
        all
    }
}

fn uncleaned(server: &str, error: &Error) -> Failure {
    Failure::Found(format!("what was made on {server} may be there still: {error}"))
}

fn failed(server: &str, workload: Workload, error: &Error) -> Failure {
    Failure::Found(format!("{workload} on {server} could not be measured: {error}"))
}
