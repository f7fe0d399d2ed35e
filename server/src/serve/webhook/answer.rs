//! Decides the outcome of a task by its receiver's answer.

use std::time::{Duration, SystemTime};

use delayline::Outcome;
use reqwest::StatusCode;

/// How long a receiver may make a task wait.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3_600);
/// How much of an answer is kept beside its status, in bytes.
const KEPT: usize = 200;

/// Decides the outcome. `said` is the beginning of the body; `now` is compared with a date in `retry-after`.
pub(super) fn outcome(status: StatusCode, retry_after: Option<&str>, said: &str, now: SystemTime) -> Outcome {
    if status.is_success() {
        return Outcome::Done;
    }
    let reason = reason(status, said);
    if status == StatusCode::GONE {
        return Outcome::Discard(reason);
    }
    match retry_after.and_then(|retry_after| wait(retry_after, now)) {
        Some(wait) => Outcome::RetryAfter(reason, wait.min(LONGEST_WAIT)),
        None => Outcome::Retry(reason),
    }
}

/// Puts the answer into one line.
fn reason(status: StatusCode, said: &str) -> String {
    let words = said.split(|sign: char| sign.is_control() || sign.is_whitespace());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let mut said = words.join(" ");
    said.truncate(said.floor_char_boundary(KEPT));
    let mut reason = format!("answered {}", status.as_u16());
    for (between, more) in [(" ", status.canonical_reason()), (": ", Some(said.as_str()))] {
        if let Some(more) = more.filter(|more| !more.is_empty()) {
            reason.push_str(between);
            reason.push_str(more);
        }
    }
    reason
}

/// Returns how long to wait: a number of seconds, or until a date. Anything else is ignored.
fn wait(retry_after: &str, now: SystemTime) -> Option<Duration> {
    let retry_after = retry_after.trim();
    if !retry_after.is_empty() && retry_after.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that is too large is longer than the longest.
        let seconds = retry_after.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(retry_after).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_means() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let retry = |reason: &str| Outcome::Retry(reason.to_owned());
        let after =
            |reason: &str, seconds| Outcome::RetryAfter(reason.to_owned(), Duration::from_secs(seconds));
        let discard = |reason: &str| Outcome::Discard(reason.to_owned());
        for (status, retry_after, said, expected) in [
            (200, None, "fine", Outcome::Done),
            (204, Some("30"), "", Outcome::Done),
            (299, None, "", Outcome::Done),
            (
                410,
                None,
                "gone for good",
                discard("answered 410 Gone: gone for good"),
            ),
            (410, Some("30"), "", discard("answered 410 Gone")),
            (429, None, "", retry("answered 429 Too Many Requests")),
            (
                429,
                Some("30"),
                "slowly",
                after("answered 429 Too Many Requests: slowly", 30),
            ),
            (502, Some(" 0 "), "", after("answered 502 Bad Gateway", 0)),
            (
                503,
                Some("3600"),
                "",
                after("answered 503 Service Unavailable", 3_600),
            ),
            (504, None, "", retry("answered 504 Gateway Timeout")),
            (
                503,
                Some("Sun, 06 Nov 1994 08:50:37 GMT"),
                "",
                after("answered 503 Service Unavailable", 60),
            ),
            (
                503,
                Some("Sunday, 06-Nov-94 08:50:37 GMT"),
                "",
                after("answered 503 Service Unavailable", 60),
            ),
            (
                500,
                Some("Sun, 06 Nov 1994 08:00:00 GMT"),
                "",
                after("answered 500 Internal Server Error", 0),
            ),
            (
                500,
                Some("86401"),
                "",
                after("answered 500 Internal Server Error", 86_400),
            ),
            (
                500,
                Some("99999999999999999999999"),
                "",
                after("answered 500 Internal Server Error", 86_400),
            ),
            (
                500,
                Some("Sat, 06 Nov 2094 08:49:37 GMT"),
                "",
                after("answered 500 Internal Server Error", 86_400),
            ),
            (500, Some("-1"), "", retry("answered 500 Internal Server Error")),
            (500, Some("soon"), "", retry("answered 500 Internal Server Error")),
            (500, Some(""), "", retry("answered 500 Internal Server Error")),
            (100, None, "", retry("answered 100 Continue")),
            (302, None, "", retry("answered 302 Found")),
            (308, Some("5"), "", after("answered 308 Permanent Redirect", 5)),
            (
                404,
                None,
                "<p>\r\n\tno\u{0}\u{1b}[1m such\u{85}page",
                retry("answered 404 Not Found: <p> no [1m such page"),
            ),
            (599, None, "x", retry("answered 599: x")),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(
                outcome(status, retry_after, said, now),
                expected,
                "{status} {retry_after:?} {said:?}"
            );
        }
    }

    #[test]
    fn a_long_answer_is_cut_between_characters() {
        let said = format!("x{}", "é".repeat(500));
        let cut = format!("answered 500 Internal Server Error: x{}", "é".repeat(99));
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        assert_eq!(
            outcome(status, None, &said, SystemTime::now()),
            Outcome::Retry(cut)
        );
    }
}
