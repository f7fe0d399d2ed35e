//! Futures without their types.

use std::future::Future;
use std::pin::Pin;

/// A future whose type is hidden, so that what holds, awaits or spawns it is compiled once.
///
/// Else tokio's tasks are compiled anew for each type, in the crate that spawns it or calls what does: a fifth of the time to
/// build a program. And where a trait's async functions hold the types of RocketMQ's client, the compiler looks through all of
/// these for each of the functions anew, and a service that awaits one must raise the compiler's limit.
pub(crate) type Hidden<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
