//! `delayline plan`.

use super::*;

const LATE: &str = "planned with punctual hops: once they are more than 200ms late in all, a tail of smaller levels is added";

#[test]
fn a_plan_is_printed_for_people() {
    for (arguments, expected) in [
        (
            &["15m"][..],
            format!("delay    15m\nroute    levels\nplan     10m + 5m\nhops     2\nprecise  0s\nnote     {LATE}\n"),
        ),
        (
            &["1d"],
            format!("delay    1d\nroute    levels\nplan     12 x 2h\nhops     12\nprecise  0s\nnote     {LATE}\n"),
        ),
        (
            &["5s 250ms"],
            "delay    5s 250ms\nroute    levels\nplan     5s + 250ms precise\nhops     1\nprecise  250ms\n".into(),
        ),
        (
            &["4900ms"],
            "delay    4s 900ms\nroute    levels\nplan     5s\nhops     1\n\
             precise  0s; the last hop ends 100ms late, which the tolerance allows\n"
                .into(),
        ),
        (
            &["21s", "--tolerance", "0s", "--levels", "1m 10s"],
            "delay    21s\nroute    levels\nplan     10s + 10s + 1s precise\nhops     2\nprecise  1s\n\
             note     planned with punctual hops: late ones change which levels follow, and may add some\n"
                .into(),
        ),
        (
            &["0s"],
            "delay    0s\nroute    run: it is due now\nprecise  0s\n".into(),
        ),
        (
            &["999ms"],
            "delay    999ms\nroute    precise: shorter than the handoff of 1s\nprecise  999ms\n".into(),
        ),
        (
            &["25h"],
            "delay    1d 1h\nroute    precise: longer than the horizon of 1d\nprecise  1d 1h\n".into(),
        ),
        (
            &["9s", "--levels", "10s 1m"],
            "delay    9s\nroute    precise: shorter than every level\nprecise  9s\n".into(),
        ),
        (
            &["10s", "--levels", "10s 1m", "--tolerance", "0s"],
            "delay    10s\nroute    precise: without tolerance no level is short enough to leave time for its usual \
             lateness\nprecise  10s\n"
                .into(),
        ),
        (
            &["3d", "--timers", "3d"],
            "delay    3d\nroute    timers\nplan     2d 23h 59m 57s 800ms + 2s 200ms precise\nhops     1\n\
             precise  2s 200ms\n\
             note     planned with punctual timers: one may be 1s 200ms late, at the cost of the precise rest\n"
                .into(),
        ),
        (
            &["3s", "--timers", "3d"],
            "delay    3s\nroute    precise: too short for a timer, which is late by up to its usual lateness\n\
             precise  3s\n"
                .into(),
        ),
        (
            &["4d", "--timers", "3d"],
            "delay    4d\nroute    precise: longer than the horizon of 1d\nprecise  4d\n".into(),
        ),
    ] {
        assert_eq!(printed(&[&["plan"], arguments].concat()), expected);
    }
}

#[test]
fn json_is_one_line_with_its_members_in_order() {
    assert_eq!(
        printed(&["plan", "15m", "--json"]),
        "{\"delay_ms\":900000,\"route\":\"levels\",\"hops\":[{\"level\":14,\"delay_ms\":600000},\
         {\"level\":9,\"delay_ms\":300000}],\"precise_ms\":0}\n"
    );
    assert_eq!(
        printed(&["plan", "15m", "--timers", "3d", "--json"]),
        "{\"delay_ms\":900000,\"route\":\"timers\",\"hops\":[{\"delay_ms\":897800}],\"precise_ms\":2200}\n"
    );
}

#[test]
fn json_says_what_routing_will_do() {
    let hop = |level: u32, delay_ms: u64| json!({ "level": level, "delay_ms": delay_ms });
    for (arguments, delay_ms, route, hops, precise_ms) in [
        (&["0s"][..], 0_u64, "run", vec![], 0_u64),
        (&["0"], 0, "run", vec![], 0),
        (&["250ms"], 250, "precise", vec![], 250),
        (
            &["12s"],
            12_000,
            "levels",
            vec![hop(3, 10_000), hop(1, 1_000), hop(1, 1_000)],
            0,
        ),
        (
            &["1h 30m"],
            5_400_000,
            "levels",
            vec![hop(17, 3_600_000), hop(16, 1_800_000)],
            0,
        ),
        (
            &["1h30m"],
            5_400_000,
            "levels",
            vec![hop(17, 3_600_000), hop(16, 1_800_000)],
            0,
        ),
        (&["2d"], 172_800_000, "precise", vec![], 172_800_000),
        (
            &["2d", "--horizon", "2d", "--levels", "1d"],
            172_800_000,
            "levels",
            vec![hop(1, 86_400_000); 2],
            0,
        ),
        (&["10s250ms"], 10_250, "levels", vec![hop(3, 10_000)], 250),
        // The broker's numbers, in its order.
        (
            &["70s", "--levels", "1m 5s 10s"],
            70_000,
            "levels",
            vec![hop(1, 60_000), hop(3, 10_000)],
            0,
        ),
        (&["29s", "--handoff", "30s"], 29_000, "precise", vec![], 29_000),
        (
            &["1200ms", "--handoff=0s", "--tolerance=0s"],
            1_200,
            "levels",
            vec![hop(1, 1_000)],
            200,
        ),
        (
            &["3660000d"],
            316_224_000_000_000,
            "precise",
            vec![],
            316_224_000_000_000,
        ),
    ] {
        let json: Value = serde_json::from_str(&printed(&[&["plan", "--json"], arguments].concat())).unwrap();
        assert_eq!(
            json,
            json!({ "delay_ms": delay_ms, "route": route, "hops": hops, "precise_ms": precise_ms }),
            "{arguments:?}"
        );
    }
}

const DURATIONS: &str = "allowed are whole numbers with a unit ms, s, m, h or d, such as 250ms, 15m or \"1h 30m\", up to 3660000d";

#[test]
fn what_is_no_duration_is_refused_by_name() {
    for value in [
        "",
        " ",
        "1",
        "15",
        "s",
        "1x",
        "1.5h",
        "-",
        "+1s",
        "1S",
        "1M",
        "1 M",
        "5months",
        "1y",
        "1w",
        "1us",
        "1ns",
        "15min",
        "1h-1m",
        "1h,30m",
        "１s",
        "1é",
        "1m\n\n2s",
        "1s\t",
        "\u{1b}[31m",
        "3660000d 1ms",
        "99999999999999999999d",
        "18446744073709551615s",
    ] {
        assert_eq!(
            refused(&["plan", value]),
            format!("DELAY is {value:?}: {DURATIONS}")
        );
        for option in ["--handoff", "--horizon", "--tolerance"] {
            let line = format!("{option} is {value:?}: {DURATIONS}");
            assert_eq!(refused(&["plan", "15m", option, value]), line);
        }
    }
    for option in ["--handoff", "--horizon", "--tolerance"] {
        assert_eq!(
            refused(&["plan", "15m", option, "-1s"]),
            format!("{option} is \"-1s\": {DURATIONS}")
        );
    }
}

#[test]
fn sums_at_the_end_of_64_bits_are_refused() {
    // `humantime` panics when milliseconds carry over from the largest number of seconds.
    for value in [
        "18446744073709551615s 1000ms",
        "213503982334601d 25215s 1000ms",
        &format!("{}503982334814d 25215s 1000ms", "999999999999d ".repeat(213)),
    ] {
        assert_eq!(
            refused(&["plan", value]),
            format!("DELAY is {value:?}: {DURATIONS}")
        );
    }
}

#[test]
fn what_is_no_level_table_is_refused_by_name() {
    let allowed = "allowed are whole numbers from 1 with a unit s, m, h or d, up to 3660000d, separated by spaces, such as \
                   \"1s 5s 10s 30s 1m\"";
    for (value, why) in [
        ("", ""),
        ("0s", ""),
        ("-1s", ""),
        ("1s 5x 10s", "\"5x\" is no level; "),
        ("messageDelayLevel=1s 5x", "\"5x\" is no level; "),
    ] {
        assert_eq!(
            refused(&["plan", "15m", "--levels", value]),
            format!("--levels is {value:?}: {why}{allowed}")
        );
    }
    for value in ["1s  5s", "1s\t5s", "1s\n5s", "messageDelayLevel=1s  5s"] {
        assert_eq!(
            refused(&["plan", "15m", "--levels", value]),
            format!(
                "--levels is {value:?}: a broker does not start with anything but one space between two levels; allowed is \
                 that"
            )
        );
    }
}

#[test]
fn levels_may_be_pasted_from_the_settings_of_a_broker() {
    let plain = printed(&["plan", "15m", "--levels", "1s 5m 10m"]);
    for pasted in ["messageDelayLevel=1s 5m 10m", " messageDelayLevel = 1s 5m 10m "] {
        assert_eq!(printed(&["plan", "15m", "--levels", pasted]), plain);
    }
}

#[test]
fn a_plan_of_many_hops_says_what_they_cost() {
    let told = printed(&["plan", "1d", "--levels", "1s 18s"]);
    assert!(
        told.contains(
            "hops     4800\nprecise  0s\nnote     4800 hops are as many messages, and as many writes"
        ),
        "{told}"
    );
    assert!(!printed(&["plan", "1d"]).contains("as many writes"));
}

#[test]
fn a_plan_of_too_many_hops_is_refused_before_it_fills_the_memory() {
    let line = |delay: &str| {
        format!(
            "DELAY is \"{delay}\": it takes more than 10000 hops; allowed are a shorter delay, a shorter --horizon, longer --levels or longer --timers"
        )
    };
    let plan = |delay| ["plan", delay, "--levels", "1s", "--horizon", "3660000d", "--json"];
    assert_eq!(refused(&plan("3660000d")), line("3660000d"));
    assert_eq!(refused(&plan("10001s")), line("2h 46m 41s"));
    let longest: Value = serde_json::from_str(&printed(&plan("10000s"))).unwrap();
    assert_eq!(longest["hops"].as_array().unwrap().len(), 10_000);
}
