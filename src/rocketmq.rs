//! What everything that speaks to RocketMQ has in common: how to connect, the client's runtime, what brokers are asked,
//! and what their refusals mean.

mod admin;
mod client;
mod credentials;
mod door;
mod failure;
mod forward;
mod hook;
mod options;
mod route;
mod scratch;
mod survey;
#[cfg(feature = "rocketmq-tls")]
mod tls;
mod told;
mod version;

pub(crate) use self::admin::{Admin, Unanswered};
pub(crate) use self::client::{Base, Client, LISTENERS, joined};
pub(crate) use self::failure::{MESSAGE_ILLEGAL, answer, closed, failure, is_refusal, permanent, transient};
pub use self::forward::Forward;
pub use self::options::RocketMqOptions;
pub use self::scratch::Scratch;
pub use self::survey::{Access, Master, Survey, Timers};
pub(crate) use self::told::Told;
pub use self::version::Version;

/// As errors and logs name it.
pub(crate) const NAME: &str = "rocketmq";
