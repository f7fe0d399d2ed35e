//! The example `reminders`, as a user runs it, and its calendar.

#[path = "../../examples/reminders/calendar.rs"]
mod calendar;

use jiff::{Span, ToSpan, Zoned};

use crate::program;

/// It counts by itself: it succeeds only if each reminder was sent once, for the last time, and none for cancelled ones.
#[tokio::test]
async fn everybody_is_told_in_time_and_by_day() {
    let said = program::said("reminders", &[]).await;
    let told: Vec<Zoned> = said
        .lines()
        .filter_map(|line| line.split_once(": it is ")?.1.parse().ok())
        .collect();
    assert!(told.len() >= 7 && !told.iter().any(calendar::is_night), "{said}");
    let last = said.lines().last().unwrap();
    let expected = format!("{} reminders were told, each in time and by day", told.len());
    assert!(last.ends_with(&expected), "{said}");
}

#[track_caller]
fn reminds(appointment: &str, before: Span, at: &str) {
    let appointment: Zoned = appointment.parse().unwrap();
    assert_eq!(calendar::reminder(&appointment, before).unwrap().to_string(), at);
}

#[test]
fn by_day_it_is_when_it_should_be() {
    let at = "2026-03-28T13:00:00+01:00[Europe/Berlin]";
    reminds("2026-03-28T15:00[Europe/Berlin]", 2.hours(), at);
}

#[test]
fn a_day_before_is_at_the_same_time_of_the_day_when_the_clocks_change() {
    let at = "2026-03-28T10:00:00+01:00[Europe/Berlin]";
    reminds("2026-03-29T10:00[Europe/Berlin]", 1.day(), at);
}

#[test]
fn at_night_it_waits_for_the_morning() {
    let at = "2026-03-28T08:00:00-04:00[America/New_York]";
    reminds("2026-03-28T23:30[America/New_York]", 1.day(), at);
    let at = "2026-03-28T08:00:00+09:00[Asia/Tokyo]";
    reminds("2026-03-28T09:00[Asia/Tokyo]", 2.hours(), at);
}

#[test]
fn where_the_morning_is_too_late_it_comes_on_the_evening_before() {
    for appointment in ["2026-03-28T08:30[Asia/Tokyo]", "2026-03-28T00:15[Asia/Tokyo]"] {
        reminds(appointment, 2.hours(), "2026-03-27T21:30:00+09:00[Asia/Tokyo]");
    }
}
