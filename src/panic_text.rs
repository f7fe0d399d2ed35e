//! What a task of tokio's said that has panicked.

use tokio::task::JoinError;

/// The message; empty if it is no text, or the task was only stopped.
pub(crate) fn panic_text(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return String::new();
    };
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic
            .downcast::<&str>()
            .map_or_else(|_| String::new(), |text| (*text).to_owned()),
    }
}
