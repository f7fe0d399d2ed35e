//! Reads what a panic said, or passes it on.

use std::any::Any;

use tokio::task::JoinError;

/// The message of a task of tokio's that has panicked; empty if it was only stopped.
pub(crate) fn panic_text(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return String::new();
    };
    text_of(panic)
}

/// The message of a panic that was caught.
pub(crate) fn text_of(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => match panic.downcast::<&str>() {
            Ok(text) => (*text).to_owned(),
            Err(_) => "with a value that is no text".to_owned(),
        },
    }
}

/// What a task of a part gave; its panic is the part's own. None: it was aborted.
pub(crate) fn pass_on<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended {
        Ok(given) => Some(given),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}
