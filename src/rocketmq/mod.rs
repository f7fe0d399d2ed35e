//! Speaks to RocketMQ: reads messages ([`Inbox`]), publishes them ([`Publisher`]), looks at clusters ([`Survey`]), and says
//! how to connect ([`RocketMqOptions`]).

mod absence;
mod admin;
mod body;
mod broker_info;
mod client;
mod consumer;
mod credentials;
mod delivery_queue;
mod failure;
mod hook;
mod inbox;
pub(crate) mod message;
mod names;
mod options;
mod publish_error;
mod publisher;
mod received;
mod requests;
mod route;
mod scratch;
mod survey;
#[cfg(feature = "rocketmq-tls")]
mod tls;
mod version;

pub(crate) use self::admin::{Admin, AskError};
pub(crate) use self::broker_info::BrokerInfo;
pub(crate) use self::client::{Client, ClientFactory, LISTENERS, joined};
pub(crate) use self::consumer::{Consumption, Listener, start as start_consumer};
pub(crate) use self::delivery_queue::{Delivered, DeliveryQueue};
pub(crate) use self::failure::{answer, closed, failure, is_refusal, permanent, transient, unreached};
pub use self::inbox::Inbox;
pub use self::message::Message;
pub use self::options::RocketMqOptions;
pub use self::publish_error::PublishError;
pub use self::publisher::Publisher;
pub use self::received::Received;
pub use self::scratch::Scratch;
pub use self::survey::{Access, Master, Survey, Timers};
pub use self::version::Version;
pub(crate) use crate::clock::hidden::Hidden;

/// The name in errors and logs.
pub(crate) const NAME: &str = "rocketmq";
