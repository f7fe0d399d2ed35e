//! Masters that hold messages by levels.

use cheetah_string::CheetahString;

use crate::LevelTable;
use crate::rocketmq::{Admin, Unanswered};

/// Asks a master for its table.
pub(super) async fn ask(admin: &Admin, address: &CheetahString) -> Result<LevelTable, Unanswered> {
    let settings = admin.settings(address).await?;
    settings.levels().map_err(Unanswered::Refused)
}

/// A master's table: what it tells, or if it is there and does not tell, what was configured, or the default.
pub(super) fn or_assumed(
    name: &CheetahString,
    told: Result<LevelTable, Unanswered>,
    configured: Option<&LevelTable>,
) -> Option<LevelTable> {
    match (told, configured) {
        (Ok(told), Some(configured)) if told != *configured => {
            tracing::warn!(broker = %name, %told, %configured, "a broker has other levels than the configured ones; its own are used");
            Some(told)
        }
        (Ok(told), _) => Some(told),
        (Err(Unanswered::Refused(error)), Some(configured)) => {
            tracing::warn!(broker = %name, %error, levels = %configured, "a broker does not tell its delay levels; the configured ones are used");
            Some(configured.clone())
        }
        (Err(Unanswered::Refused(error)), None) => {
            let levels = LevelTable::default();
            tracing::warn!(
                broker = %name, %error, %levels,
                "a broker does not tell its delay levels, so RocketMQ's default ones are assumed; \
                 if that is wrong, configure them, or wake-ups will be early or late"
            );
            Some(levels)
        }
        (Err(Unanswered::Absent(_)), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rocketmq::transient;

    fn assumed(told: Result<&str, Unanswered>, configured: Option<&str>) -> Option<String> {
        let told = told.map(|text| text.parse().unwrap());
        let configured = configured.map(|text| text.parse().unwrap());
        let table = or_assumed(&"broker-a".into(), told, configured.as_ref());
        table.map(|table| table.to_string())
    }

    #[test]
    fn a_master_that_tells_its_table_has_it_whatever_was_configured() {
        assert_eq!(assumed(Ok("1s 2s"), None).unwrap(), "1s 2s");
        assert_eq!(assumed(Ok("1s 2s"), Some("1s 3s")).unwrap(), "1s 2s");
    }

    #[test]
    fn one_that_is_there_and_does_not_tell_has_the_configured_table_or_the_default_one() {
        let refused = || Err(Unanswered::Refused(transient("no permission")));
        assert_eq!(assumed(refused(), Some("1s 3s")).unwrap(), "1s 3s");
        assert_eq!(
            assumed(refused(), None).unwrap(),
            LevelTable::default().to_string()
        );
    }

    #[test]
    fn nothing_is_assumed_of_one_that_is_not_there() {
        let absent = Err(Unanswered::Absent(transient("refused")));
        assert_eq!(assumed(absent, Some("1s 3s")), None);
    }
}
