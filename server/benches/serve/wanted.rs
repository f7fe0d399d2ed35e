//! What the arguments ask for.

use std::time::Duration;

use crate::Error;
use crate::place::Place;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    Http,
    Claims,
    Idle,
    Pages,
    #[cfg(feature = "rocketmq")]
    Gateway,
    #[cfg(feature = "rocketmq")]
    Trip,
}

const WORKLOADS: &[(&str, Workload)] = &[
    ("http", Workload::Http),
    ("claims", Workload::Claims),
    ("idle", Workload::Idle),
    ("pages", Workload::Pages),
    #[cfg(feature = "rocketmq")]
    ("gateway", Workload::Gateway),
    #[cfg(feature = "rocketmq")]
    ("trip", Workload::Trip),
];

impl Workload {
    fn needs_brokers(self) -> bool {
        !matches!(self, Self::Http | Self::Claims | Self::Idle | Self::Pages)
    }
}

/// How much of each.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// How often each side is measured.
    pub(crate) rounds: usize,
    /// How many tasks are put.
    pub(crate) put: usize,
    /// How many are due at once.
    pub(crate) due: usize,
    /// How many wait while nothing is to be done, and for how long it is watched.
    pub(crate) pending: usize,
    pub(crate) idle: Duration,
    /// Of how many the pages are.
    pub(crate) seen: usize,
    /// With how many messages a broker is warmed up, and for how long it then gives away others without a pause.
    #[cfg(feature = "rocketmq")]
    pub(crate) warm_up: usize,
    #[cfg(feature = "rocketmq")]
    pub(crate) sustained: Duration,
    /// How many messages go in and out.
    #[cfg(feature = "rocketmq")]
    pub(crate) trips: usize,
}

const FULL: Sizes = Sizes {
    rounds: 3,
    put: 100_000,
    due: 20_000,
    pending: 100_000,
    idle: Duration::from_secs(10),
    seen: 1_000_000,
    #[cfg(feature = "rocketmq")]
    warm_up: 50_000,
    #[cfg(feature = "rocketmq")]
    sustained: Duration::from_secs(20),
    #[cfg(feature = "rocketmq")]
    trips: 300,
};

const QUICK: Sizes = Sizes {
    rounds: 1,
    put: 10_000,
    due: 5_000,
    pending: 10_000,
    idle: Duration::from_secs(3),
    seen: 10_000,
    #[cfg(feature = "rocketmq")]
    warm_up: 10_000,
    #[cfg(feature = "rocketmq")]
    sustained: Duration::from_secs(3),
    #[cfg(feature = "rocketmq")]
    trips: 50,
};

#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) workloads: Vec<Workload>,
    pub(crate) places: Vec<Place>,
    #[cfg(feature = "rocketmq")]
    pub(crate) nameserver: Option<String>,
    pub(crate) sizes: Sizes,
}

impl Wanted {
    pub(crate) fn read(arguments: &[String]) -> Result<Self, Error> {
        let (mut workloads, mut places) = (Vec::new(), Vec::new());
        let (mut nameserver, mut sizes) = (None, FULL);
        for argument in arguments {
            let named = WORKLOADS.iter().find(|(name, _)| name == argument);
            match argument.as_str() {
                _ if named.is_some() => workloads.extend(named.map(|(_, workload)| *workload)),
                "--quick" => sizes = QUICK,
                "sqlite" => places.push(Place::Sqlite),
                url if url.starts_with("postgres://") => places.push(Place::Postgres(url.to_owned())),
                url if url.starts_with("redis://") => places.push(Place::Redis(url.to_owned())),
                address if !address.contains('/') && address.contains(':') => {
                    nameserver = Some(address.to_owned());
                }
                other => {
                    let names: Vec<_> = WORKLOADS.iter().map(|(name, _)| *name).collect();
                    return Err(format!(
                        "{other:?} is not known: allowed are {}, sqlite, postgres://…, redis://…, the HOST:PORT of a \
                         RocketMQ nameserver, and --quick",
                        names.join(", ")
                    )
                    .into());
                }
            }
        }
        if places.is_empty() {
            places.push(Place::Sqlite);
        }
        if workloads.is_empty() {
            let all = WORKLOADS.iter().map(|(_, workload)| *workload);
            workloads.extend(all.filter(|workload| nameserver.is_some() || !workload.needs_brokers()));
        }
        Ok(Self {
            workloads,
            places,
            #[cfg(feature = "rocketmq")]
            nameserver,
            sizes,
        })
    }
}
