//! Checks the brokers for the first time, before anything is sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cheetah_string::CheetahString;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::clients::FIRST_ANSWER_WITHIN;
use super::decision::Circuit;
use super::delay_mode::DelayMode;
use super::delay_support::DelaySupport;
use super::master::MasterState;
use super::masters::Masters;
use super::observation::{BOOT, within};
use crate::Error;
use crate::rocketmq::{Admin, AskError, BrokerInfo, ClientFactory, RocketMqOptions, permanent, transient};

/// How long the first check may take.
const FIRST_CHECK_WITHIN: Duration = Duration::from_secs(12);

/// Asks the masters which delays they support, and creates the topic where it is missing.
///
/// If no server can be reached, that is an error, or left to later checks, as the options say.
pub(super) async fn open(
    factory: &ClientFactory,
    options: &RocketMqOptions,
    mode: &DelayMode,
) -> Result<Masters, Error> {
    let admin = Arc::new(Admin::open(factory).await?);
    let mut asking = JoinSet::new();
    let checking = first_check(&admin, &mut asking, options, mode);
    let first = timeout(FIRST_CHECK_WITHIN, checking).await;
    let first = first.unwrap_or_else(|_| {
        let asked = factory.nameservers();
        Err(transient(format!(
            "neither the nameservers ({asked}) nor their brokers answer"
        )))
    });
    // So that nothing else holds the admin.
    asking.shutdown().await;
    if let Some(admin) = Arc::into_inner(admin) {
        admin.close().await;
    }
    match first {
        Err(error) if error.is_transient() && options.lazy => {
            tracing::warn!(
                %error,
                "RocketMQ cannot be reached, so the precise backend carries all wake-ups; it is used as soon as it \
                 answers: see that the nameservers and brokers are up"
            );
            Ok(Masters::new(BTreeMap::new(), mode.reach()))
        }
        first => first,
    }
}

/// What a master said.
struct Answer {
    name: CheetahString,
    address: CheetahString,
    delay_support: Result<DelaySupport, AskError>,
    stats: BrokerInfo,
}

/// Asks a master for the delays that it supports, and its statistics if it answers.
async fn ask(admin: &Admin, mode: DelayMode, name: CheetahString, address: CheetahString) -> Answer {
    let delay_support = within(FIRST_ANSWER_WITHIN, &address, mode.ask(admin, &address)).await;
    let stats = match delay_support {
        Err(AskError::Unreachable(_)) => BrokerInfo::default(),
        _ => within(FIRST_ANSWER_WITHIN, &address, admin.runtime_stats(&address))
            .await
            .unwrap_or_default(),
    };
    Answer {
        name,
        address,
        delay_support,
        stats,
    }
}

/// Asks all masters at once, so that several that are silent take no longer than one.
async fn first_check(
    admin: &Arc<Admin>,
    asking: &mut JoinSet<Answer>,
    options: &RocketMqOptions,
    mode: &DelayMode,
) -> Result<Masters, Error> {
    let mut answering = admin.masters().await?;
    for (name, address) in answering.clone() {
        let (admin, mode) = (admin.clone(), mode.clone());
        asking.spawn(Box::pin(async move { ask(&admin, mode, name, address).await }));
    }
    let mut known = BTreeMap::new();
    let mut last_error = None;
    while let Some(answer) = asking.join_next().await {
        let Answer {
            name,
            address,
            delay_support: reported,
            stats,
        } = answer.map_err(|_| permanent("a check of a broker panicked"))?;
        let mut master = MasterState::new(address);
        if let Err(AskError::Unreachable(error)) = &reported {
            tracing::warn!(broker = %name, %error, "a broker does not answer, so nothing is sent to it until it does; others, or the precise backend, carry its wake-ups: see that it is up");
            master.circuit = Circuit::Unreachable;
            last_error = Some(error.once_more());
            // What it lacks is made when it answers a later check.
            answering.remove(&name);
        }
        if let Some(delay_support) = mode.or_assumed(&name, reported) {
            if let DelaySupport::Unsupported(why) = delay_support {
                return Err(permanent(format!("the broker {name} cannot be used: {why}")));
            }
            master.restarted(stats.read(BOOT), delay_support);
        }
        known.insert(name, master);
    }
    let delay_supports = known.values().filter_map(|master| master.delay_support.as_ref());
    let Some(reach) = delay_supports.filter_map(DelaySupport::reach).next() else {
        return Err(last_error.unwrap_or_else(|| transient("no broker answers")));
    };
    admin.ensure(&answering, &options.topic, &options.group).await?;
    for (name, queues) in admin.queues(&options.topic).await? {
        if let Some(master) = known.get_mut(&name) {
            master.queues = queues;
        }
    }
    Ok(Masters::new(known, reach))
}
