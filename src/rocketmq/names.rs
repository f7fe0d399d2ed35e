//! Checks the names of topics and consumer groups.

use crate::Error;

/// The longest name of a topic that a broker takes.
const LONGEST_TOPIC: usize = 127;
/// The longest name of a consumer group that a broker takes.
const LONGEST_GROUP: usize = 255;

/// Refuses what cannot be the name of a topic.
pub(super) fn check_topic(topic: &str) -> Result<(), Error> {
    check("topic", topic, LONGEST_TOPIC)
}

/// Refuses what cannot be the name of a consumer group.
pub(super) fn check_group(group: &str) -> Result<(), Error> {
    check("group", group, LONGEST_GROUP)
}

fn check(field: &'static str, name: &str, longest: usize) -> Result<(), Error> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-%|".contains(&byte);
    if (1..=longest).contains(&name.len()) && name.bytes().all(is_allowed) {
        return Ok(());
    }
    Err(Error::invalid(
        field,
        name,
        format!("allowed are 1 to {longest} letters, digits, and any of _-%|"),
    ))
}
