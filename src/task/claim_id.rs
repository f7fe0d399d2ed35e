//! Names a claim.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Task, TaskId};

/// The permanent name of one claim: a task, and the version that its claim has made of it.
///
/// Printed and parsed as `<task id>.<version>`, such as `019aa0f6-9c00-7000-8000-000000000001.2`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId {
    task: TaskId,
    version: u64,
}

impl ClaimId {
    pub(crate) fn of(claimed: &Task) -> Self {
        Self {
            task: claimed.id,
            version: claimed.version,
        }
    }

    /// Returns the task that is claimed.
    pub const fn task_id(&self) -> TaskId {
        self.task
    }

    /// Returns the version that the claim has made.
    pub const fn version(&self) -> u64 {
        self.version
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.task, self.version)
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ClaimId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = text.split_once('.').and_then(|(task, version)| {
            let task = task.parse().ok()?;
            Some(Self {
                task,
                version: version_of(version)?,
            })
        });
        parsed.ok_or_else(|| {
            Error::invalid(
                "claim id",
                text,
                "allowed is the id of a task, a dot and a version, such as \
                 019aa0f6-9c00-7000-8000-000000000001.2",
            )
        })
    }
}

/// Parses a version as it is printed, if a row can have it.
fn version_of(text: &str) -> Option<u64> {
    let version: u64 = text.parse().ok()?;
    (i64::try_from(version).is_ok() && version.to_string() == text).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "019aa0f6-9c00-7000-8000-000000000001";

    #[test]
    fn is_printed_and_parsed_as_a_task_and_a_version() {
        let text = format!("{ID}.2");
        let claim: ClaimId = text.parse().unwrap();
        assert_eq!((claim.task_id(), claim.version()), (ID.parse().unwrap(), 2));
        assert_eq!((claim.to_string(), format!("{claim:?}")), (text.clone(), text));
    }

    #[test]
    fn another_text_is_refused_and_the_error_says_what_is_allowed() {
        let too_large = format!("{ID}.{}", 1_u64 << 63);
        let texts = [
            "",
            ".",
            ID,
            "1.2",
            &format!("{ID}."),
            &format!("{ID}.x"),
            &too_large,
        ];
        let more = [
            format!("{ID}.+2"),
            format!("{ID}.02"),
            format!("{ID}.2.3"),
            format!(" {ID}.2"),
        ];
        for text in texts.into_iter().chain(more.iter().map(String::as_str)) {
            let error = text.parse::<ClaimId>().unwrap_err();
            assert!(error.is_invalid());
            let said = error.to_string();
            assert!(
                said.starts_with(&format!("claim id is {text:?}: allowed is the id of a task")),
                "{said}"
            );
        }
    }
}
