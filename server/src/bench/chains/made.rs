//! Topics and groups of the run on brokers.

use std::sync::{Arc, Mutex, PoisonError};

use delayline::rocketmq::{RocketMqOptions, Scratch};

use super::super::Error;
use crate::in_runtime;

/// What was made on brokers and is not deleted yet.
///
/// Both are done by threads that are waited for at the end: what is abandoned while it is made, or deleted, would stay.
#[derive(Default)]
pub(super) struct Made(Arc<Mutex<Vec<Scratch>>>);

impl Made {
    /// Makes a topic and a group of the same name; gives the options for them, and the name.
    pub(super) async fn make(&self, options: RocketMqOptions) -> Result<(RocketMqOptions, String), Error> {
        let made = Arc::clone(&self.0);
        let making = move || -> Result<_, Error> {
            let scratch = in_runtime(Scratch::make(options))??;
            let named = (scratch.options().clone(), scratch.topic().to_owned());
            made.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
            Ok(named)
        };
        tokio::task::spawn_blocking(making).await?
    }

    /// Deletes all of them, when nothing consumes any more; tells the first of the failures.
    pub(super) async fn delete(&self) -> Result<(), Error> {
        let made = Arc::clone(&self.0);
        let next = move || made.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let deleting = move || -> Result<(), Error> {
            let mut all = Ok(());
            while let Some(scratch) = next() {
                all = all.and(in_runtime(scratch.delete())?.map_err(Error::from));
            }
            all
        };
        tokio::task::spawn_blocking(deleting).await?
    }
}
