//! Why an operation was not done.

use delayline::Error;

/// Why an operation was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The input cannot be used, or the store could not do it.
    #[error(transparent)]
    Error(#[from] Error),
    /// There is no such task, or it is of a kind that the caller may not see.
    #[error("there is no such task")]
    NoTask,
    /// The caller may see and change other kinds.
    #[error("{0}")]
    OtherKinds(String),
    /// This process knows of no such change of many tasks.
    #[error(
        "this server knows of no such change in bulk: another server may have begun it, or this one before it was started \
         anew, with which it has ended; or it has ended long ago"
    )]
    NoJob,
    /// As many changes of many tasks go on as may.
    #[error(
        "{0} changes in bulk go on at this server, which is as many as may: nothing was changed; ask again when one of them \
         has ended, see GET /v1/bulk"
    )]
    TooManyJobs(usize),
    /// More tasks match than can be moved in one go.
    #[error(
        "more than {0} tasks match, and what is moved would match again: nothing was changed; allowed is a filter by which \
         they all fit, such as a narrower due_before"
    )]
    TooManyMatch(usize),
}

impl Refusal {
    /// Says why to a caller; what a store says of its servers is for the log alone.
    pub(crate) fn for_caller(&self) -> String {
        match self {
            Self::Error(error) if error.is_invalid() => error.to_string(),
            // Nothing of it is secret, and the caller may be the operator who is to mend it.
            Self::Error(error) if is_unreadable_pause(error) => {
                tracing::warn!(%error, "a request could not be answered; its caller is to try again");
                error.to_string()
            }
            Self::Error(error) if error.is_transient() => {
                tracing::warn!(%error, "a request could not be answered; its caller is to try again");
                "the store does not answer; what was asked for may have been done or not: ask \
                 again, or look first where it would act twice"
                    .to_owned()
            }
            Self::Error(error) => {
                tracing::error!(%error, "a request could not be answered");
                "the server could not do it; its log says why, beside the id of the request".to_owned()
            }
            refusal => refusal.to_string(),
        }
    }
}

/// Whether a pause cannot be read, which is told by the text alone: what a server said to a store does not begin so.
fn is_unreadable_pause(error: &Error) -> bool {
    let Error::Store { source, .. } = error else {
        return false;
    };
    let said = source.to_string();
    said.starts_with("the row ") && said.contains(" of kind delayline.paused ")
}
