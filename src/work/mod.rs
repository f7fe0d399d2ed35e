//! Works off what is due: workers, claims without a worker, handlers, and what their attempts come to.

pub(crate) mod budget;
pub(crate) mod claimant;
pub mod claims;
#[cfg(feature = "rocketmq")]
pub(crate) mod forward;
pub(crate) mod handler;
pub(crate) mod lost_answer;
pub(crate) mod retry;
pub(crate) mod verdict;
pub(crate) mod worker;
