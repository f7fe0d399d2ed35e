//! Level tables, routing and plans: by table, against independent models, and by property.

use std::time::Duration;

use delayline::Error;
use delayline::backend::{Delays, Reach};
use delayline::delay::{Hop, Level, LevelTable, Plan, ROCKETMQ_LEVELS, Route, Routing, Spelled, plan, route};
use proptest::prelude::*;
use proptest::sample::Index;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const M: Duration = Duration::from_secs(60);
const H: Duration = Duration::from_secs(3_600);
const D: Duration = Duration::from_secs(86_400);

/// The usual lateness of levels, in these tests.
const USUAL: Duration = Duration::from_millis(200);

fn table(text: &str) -> LevelTable {
    text.parse().unwrap()
}

fn by_levels(table: &LevelTable, usual_lateness: Duration) -> Delays {
    Delays {
        reach: Reach::Levels(table.clone()),
        usual_lateness,
    }
}

/// What a step through `table` is called: `run`, `precise` or the level.
fn step(remaining: Duration, routing: &Routing, table: &LevelTable) -> String {
    match route(remaining, routing, Some(&by_levels(table, USUAL))) {
        Route::Run => "run".into(),
        Route::Precise => "precise".into(),
        Route::Hop(hop) => hop.to_string(),
    }
}

fn default_plan(remaining: Duration) -> Plan {
    let levels = LevelTable::default();
    plan(remaining, &Routing::default(), Some(&by_levels(&levels, USUAL)))
}

/// How a chain went whose hops were as late as its test wanted.
struct Chain {
    hops: usize,
    /// What the precise backend got; zero if the last hop ended the chain.
    precise: Duration,
    /// How late the last hop ended the chain; zero if the precise backend did.
    late: Duration,
    /// How late the last hop itself was.
    last: Duration,
}

/// Routes anew at every arrival, each hop late by what `lateness` says.
fn travel(
    delay: Duration,
    routing: &Routing,
    delays: &Delays,
    mut lateness: impl FnMut() -> Duration,
) -> Chain {
    let (mut elapsed, mut hops, mut last) = (Duration::ZERO, 0, Duration::ZERO);
    loop {
        let remaining = delay.saturating_sub(elapsed);
        match route(remaining, routing, Some(delays)) {
            Route::Hop(hop) => {
                last = lateness();
                elapsed += hop.delay() + last;
                hops += 1;
            }
            Route::Precise => {
                return Chain {
                    hops,
                    precise: remaining,
                    late: Duration::ZERO,
                    last,
                };
            }
            Route::Run => {
                return Chain {
                    hops,
                    precise: Duration::ZERO,
                    late: elapsed.saturating_sub(delay),
                    last,
                };
            }
        }
    }
}

// Routes, by table.

#[test]
fn routes_by_the_time_that_remains() {
    let levels = LevelTable::default();
    for (remaining, expected) in [
        (Duration::ZERO, "run"),
        (Duration::from_nanos(1), "precise"),
        (MS, "precise"),
        (999 * MS, "precise"),
        (S, "1s"),
        (4_799 * MS, "1s"),
        // The tolerance: up to 200 ms beyond the due time, and no more.
        (4_800 * MS, "5s"),
        (5 * S, "5s"),
        (299_799 * MS, "4m"),
        (299_800 * MS, "5m"),
        (15 * M, "10m"),
        (2 * H, "2h"),
        (D, "2h"),
        (D + MS, "precise"),
        (Duration::MAX, "precise"),
    ] {
        assert_eq!(
            step(remaining, &Routing::default(), &levels),
            expected,
            "{remaining:?}"
        );
    }
}

#[test]
fn without_tolerance_a_level_leaves_time_for_its_usual_lateness() {
    let levels = LevelTable::default();
    let routing = Routing::default().tolerance(Duration::ZERO);
    for (remaining, expected) in [
        (Duration::ZERO, "run"),
        (S, "precise"),
        (1_199 * MS, "precise"),
        (1_200 * MS, "1s"),
        (5 * S, "1s"),
        (5_199 * MS, "1s"),
        (5_200 * MS, "5s"),
        (15 * M, "10m"),
        (10 * M, "9m"),
    ] {
        assert_eq!(step(remaining, &routing, &levels), expected, "{remaining:?}");
    }
}

#[test]
fn the_bounds_are_settings() {
    let levels = LevelTable::default();
    let routing = Routing::default().handoff(30 * S).horizon(H);
    for (remaining, expected) in [
        (30 * S - MS, "precise"),
        (30 * S, "30s"),
        (H, "1h"),
        (H + MS, "precise"),
    ] {
        assert_eq!(step(remaining, &routing, &levels), expected, "{remaining:?}");
    }
}

#[test]
fn a_delay_shorter_than_every_level_is_precise_whatever_the_tolerance() {
    let levels = table("10s 5s");
    for tolerance in [Duration::ZERO, 200 * MS, 10 * S] {
        let routing = Routing::default().tolerance(tolerance);
        assert_eq!(step(5 * S - MS, &routing, &levels), "precise", "{tolerance:?}");
    }
    assert_eq!(step(5 * S, &Routing::default(), &levels), "5s");
}

#[test]
fn without_a_healthy_level_backend_everything_is_precise() {
    for remaining in [MS, S, 15 * M, D, 2 * D] {
        assert_eq!(route(remaining, &Routing::default(), None), Route::Precise);
    }
    assert_eq!(route(Duration::ZERO, &Routing::default(), None), Route::Run);
}

#[test]
fn extreme_settings_do_not_overflow() {
    let levels = LevelTable::default();
    let greedy = Routing::default()
        .handoff(Duration::ZERO)
        .horizon(Duration::MAX)
        .tolerance(Duration::MAX);
    assert_eq!(step(Duration::MAX, &greedy, &levels), "2h");
    assert_eq!(step(S, &greedy, &levels), "2h");
    let strict = greedy.tolerance(Duration::ZERO);
    assert_eq!(
        route(S, &strict, Some(&by_levels(&levels, Duration::MAX))),
        Route::Precise
    );
}

// Timers.

/// What a broker's timers are taken for by default.
fn by_timers(max: Duration, usual_lateness: Duration) -> Delays {
    Delays {
        reach: Reach::Any { max },
        usual_lateness,
    }
}

#[test]
fn a_timer_leaves_the_handoff_even_when_it_is_as_late_as_usual() {
    let timers = by_timers(3 * D, 1_200 * MS);
    for (remaining, expected) in [
        (Duration::ZERO, "run"),
        (MS, "precise"),
        (S, "precise"),
        (2_200 * MS, "precise"),
        // For less than it may be late by, it is not worth a message.
        (3_399 * MS, "precise"),
        (3_400 * MS, "1s 200ms"),
        (6 * S, "3s 800ms"),
        (15 * M, "14m 57s 800ms"),
        // The horizon bounds how many hops there are, and this is one.
        (3 * D, "2d 23h 59m 57s 800ms"),
        (3 * D + 2_200 * MS, "3d"),
        (3 * D + 2_201 * MS, "precise"),
        (Duration::MAX, "precise"),
    ] {
        let step = match route(remaining, &Routing::default(), Some(&timers)) {
            Route::Run => "run".into(),
            Route::Precise => "precise".into(),
            Route::Hop(hop) => hop.to_string(),
        };
        assert_eq!(step, expected, "{remaining:?}");
    }
}

#[test]
fn timers_are_chained_as_far_as_the_horizon_lets_them() {
    let timers = by_timers(3 * D, 1_200 * MS);
    let far = Routing::default().horizon(30 * D);
    assert_eq!(
        plan(30 * D, &far, Some(&timers)).to_string(),
        "9 x 3d + 2d 23h 59m 57s 800ms + 2s 200ms precise"
    );
    assert_eq!(
        plan(30 * D + MS, &far, Some(&timers)).to_string(),
        "30d 1ms precise"
    );
    assert_eq!(
        plan(3 * D, &Routing::default(), Some(&timers)).to_string(),
        "2d 23h 59m 57s 800ms + 2s 200ms precise"
    );
}

#[test]
fn timers_that_can_hold_nothing_are_not_used() {
    let routing = Routing::default().handoff(Duration::ZERO);
    for (max, usual) in [
        (Duration::ZERO, Duration::ZERO),
        (S, 1_200 * MS),
        (D, Duration::MAX),
    ] {
        for remaining in [MS, S, H, D] {
            let timers = by_timers(max, usual);
            assert_eq!(
                route(remaining, &routing, Some(&timers)),
                Route::Precise,
                "{timers:?}"
            );
        }
    }
}

// Level tables.

#[test]
fn the_default_is_rocketmqs_own_table() {
    let levels = LevelTable::default();
    assert_eq!(levels.to_string(), ROCKETMQ_LEVELS);
    assert_eq!(levels.levels().len(), 18);
    assert_eq!(levels.level_of(10 * M).map(|level| level.number), Some(14));
    assert_eq!(levels.level_of(2 * H).map(|level| level.number), Some(18));
}

#[test]
fn level_numbers_are_the_brokers_positions() {
    // Unsorted, and with one delay twice in two spellings: of equals the first is used, and no number shifts.
    let levels = table("1h 60s 5s 1m 2d 5s");
    let numbered: Vec<_> = levels.levels().map(|level| (level.number, level.delay)).collect();
    assert_eq!(
        numbered,
        [(1, H), (2, M), (3, 5 * S), (4, M), (5, 2 * D), (6, 5 * S)]
    );
    for (delay, number) in [(5 * S, 3), (M, 2), (H, 1), (2 * D, 5)] {
        let level = Some(Level { number, delay });
        assert_eq!(levels.level_of(delay), level);
        assert_eq!(levels.largest_within(delay), level);
        assert_eq!(levels.largest_within(delay + MS), level);
    }
    assert_eq!(levels.level_of(2 * M), None);
    assert_eq!(levels.level_of(M + MS), None);
    assert_eq!(levels.largest_within(5 * S - MS), None);
    let hops = plan(
        H + M + 5 * S,
        &Routing::default(),
        Some(&by_levels(&levels, USUAL)),
    )
    .hops;
    assert_eq!(
        hops,
        [(1, H), (2, M), (3, 5 * S)].map(|(number, delay)| Hop::Level(Level { number, delay }))
    );
}

#[test]
fn a_single_level_is_a_table() {
    let levels = table("7s");
    let plan = plan(23 * S, &Routing::default(), Some(&by_levels(&levels, USUAL)));
    assert_eq!(plan.to_string(), "7s + 7s + 7s + 2s precise");
}

#[test]
fn every_unit_is_read_and_printed_in_the_largest_that_fits() {
    for (text, delay, printed) in [
        ("1s", S, "1s"),
        ("90s", 90 * S, "90s"),
        ("60s", M, "1m"),
        ("007m", 7 * M, "7m"),
        ("120m", 2 * H, "2h"),
        ("25h", 25 * H, "25h"),
        ("48h", 2 * D, "2d"),
        ("3660000d", 3_660_000 * D, "3660000d"),
    ] {
        let level = table(text).levels().next().unwrap();
        assert_eq!(level, Level { number: 1, delay });
        assert_eq!(level.to_string(), printed);
    }
}

#[test]
fn white_space_of_any_amount_separates_levels() {
    let levels = table("1s 5s 1m");
    for text in ["1s  5s 1m", " 1s 5s 1m ", "1s\t5s\n1m\r\n"] {
        assert_eq!(table(text), levels, "{text:?}");
    }
}

#[test]
fn tables_are_equal_if_their_delays_and_order_are() {
    assert_eq!(table("60s 1h"), table("1m 60m"));
    assert_ne!(table("1m 1h"), table("1h 1m"));
    assert_ne!(table("1m 1h"), table("1m 1m 1h"));
    assert_eq!(format!("{:?}", table("60s 1h")), "LevelTable(1m 1h)");
}

#[test]
fn what_is_no_table_is_refused_with_the_part_that_is_wrong() {
    for (text, wrong) in [
        ("", ""),
        ("   ", "   "),
        ("\t\n", "\t\n"),
        ("0s", "0s"),
        ("1s 0m 5s", "0m"),
        ("1", "1"),
        ("1s 5 10s", "5"),
        ("s", "s"),
        ("1 s", "1"),
        ("1.5s", "1.5s"),
        ("-1s", "-1s"),
        ("+1s", "+1s"),
        ("1S", "1S"),
        ("1ms", "1ms"),
        ("1w", "1w"),
        ("1sec", "1sec"),
        ("1h30m", "1h30m"),
        ("1ss", "1ss"),
        ("1s,5s", "1s,5s"),
        ("0x10s", "0x10s"),
        ("1_000s", "1_000s"),
        ("3660001d", "3660001d"),
        ("316224000001s", "316224000001s"),
        // In 64 bits its seconds would wrap to 44.
        ("307445734561825861m", "307445734561825861m"),
        ("99999999999999999999s", "99999999999999999999s"),
        ("9223372036854775807d", "9223372036854775807d"),
        ("18446744073709551615s", "18446744073709551615s"),
        // A full-width digit, letters of several bytes, a space that is not ASCII.
        ("１s", "１s"),
        ("1é", "1é"),
        ("é", "é"),
        ("1ｓ", "1ｓ"),
        ("1s\u{3000}5s", "1s\u{3000}5s"),
        ("1s\0", "1s\0"),
    ] {
        match text.parse::<LevelTable>() {
            Err(Error::Invalid {
                field,
                value,
                allowed,
            }) => {
                assert_eq!((field, value.as_str()), ("level table", wrong), "{text:?}");
                assert!(allowed.contains("s, m, h or d"), "{allowed}");
            }
            other => panic!("{text:?} gave {other:?}"),
        }
    }
}

// Plans.

#[test]
fn plans_are_printed_for_people() {
    let precise = |precise| Plan {
        hops: Vec::new(),
        precise,
    };
    for (plan, printed) in [
        (default_plan(Duration::ZERO), "now"),
        (default_plan(250 * MS), "250ms precise"),
        (default_plan(15 * M), "10m + 5m"),
        (default_plan(H + 3 * M + 20 * S), "1h + 3m + 10s + 10s"),
        (default_plan(10 * S + 250 * MS), "10s + 250ms precise"),
        (default_plan(4 * S), "1s + 1s + 1s + 1s"),
        (default_plan(D), "12 x 2h"),
        (default_plan(11 * H + 10 * S), "5 x 2h + 1h + 10s"),
        (default_plan(30 * D), "30d precise"),
        (precise(H + 30 * M), "1h 30m precise"),
        (precise(29 * S + 950 * MS), "29s 950ms precise"),
    ] {
        assert_eq!(plan.to_string(), printed);
    }
}

#[test]
fn durations_are_spelled_for_people() {
    for (duration, spelled) in [
        (Duration::ZERO, "0s"),
        (MS, "1ms"),
        (1_500 * MS, "1s 500ms"),
        (15 * M, "15m"),
        (D + 2 * H + 3 * M + 4 * S + 5 * MS, "1d 2h 3m 4s 5ms"),
        (Duration::from_nanos(1_500), "1.5µs"),
        (D, "1d"),
    ] {
        assert_eq!(Spelled(duration).to_string(), spelled);
    }
}

#[test]
fn a_plan_takes_as_few_hops_as_any_could() {
    // The fewest levels that make up each whole second, as in making change.
    const LONGEST: usize = 8 * 3_600;
    let coins: Vec<usize> = LevelTable::default()
        .levels()
        .map(|level| usize::try_from(level.delay.as_secs()).unwrap())
        .collect();
    let mut fewest = vec![0_usize; LONGEST + 1];
    for seconds in 1..=LONGEST {
        fewest[seconds] = 1 + coins
            .iter()
            .filter(|&&coin| coin <= seconds)
            .map(|coin| fewest[seconds - coin])
            .min()
            .unwrap();
    }
    for (seconds, &fewest) in fewest.iter().enumerate() {
        let plan = default_plan(Duration::from_secs(seconds as u64));
        assert_eq!(
            (plan.hops.len(), plan.precise),
            (fewest, Duration::ZERO),
            "{seconds} s: {plan}"
        );
    }
}

#[test]
fn fifteen_minutes_take_two_hops_also_when_each_is_150_ms_late() {
    let levels = LevelTable::default();
    for late in 0..=150 {
        let chain = travel(15 * M, &Routing::default(), &by_levels(&levels, USUAL), || {
            late * MS
        });
        assert_eq!(chain.hops, 2, "{late} ms");
        assert_eq!(chain.late, 2 * late * MS);
    }
}

#[test]
fn without_tolerance_and_with_a_handoff_of_30_s_fifteen_minutes_take_three_hops() {
    let levels = LevelTable::default();
    let routing = Routing::default().handoff(30 * S).tolerance(Duration::ZERO);
    for late in 1..=150 {
        let chain = travel(15 * M, &routing, &by_levels(&levels, USUAL), || late * MS);
        assert_eq!(
            (chain.hops, chain.precise),
            (3, 30 * S - 3 * late * MS),
            "{late} ms"
        );
    }
}

#[test]
fn a_day_takes_twelve_punctual_hops_and_about_22_late_ones() {
    const SEEDS: u64 = 10_000;
    let levels = LevelTable::default();
    assert_eq!(default_plan(D).hops.len(), 12);
    let mut taken = Vec::new();
    for seed in 0..SEEDS {
        let mut chance = fastrand::Rng::with_seed(seed);
        let chain = travel(D, &Routing::default(), &by_levels(&levels, USUAL), || {
            Duration::from_millis(chance.u64(20..=150))
        });
        taken.push(chain.hops);
    }
    let mean = taken.iter().sum::<usize>() as f64 / SEEDS as f64;
    let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
    println!("24 h, each hop 20-150 ms late: {mean:.1} hops on average, {least} to {most}, {SEEDS} seeds");
    assert!((18.0..=26.0).contains(&mean), "{mean}");
}

// Properties, of any table, order and routing.

/// The table's own delays too, so that a model need not ask the code under test for them.
fn any_table() -> impl Strategy<Value = (Vec<Duration>, LevelTable)> {
    let level = prop_oneof![
        (1..=120_u64).prop_map(|count| (count, 's', 1)),
        (1..=90_u64).prop_map(|count| (count, 'm', 60)),
        (1..=30_u64).prop_map(|count| (count, 'h', 3_600)),
        (1..=2_u64).prop_map(|count| (count, 'd', 86_400)),
    ];
    prop::collection::vec(level, 1..=20).prop_map(|levels| {
        let text: Vec<_> = levels
            .iter()
            .map(|(count, unit, _)| format!("{count}{unit}"))
            .collect();
        let delays = levels
            .iter()
            .map(|(count, _, size)| Duration::from_secs(count * size))
            .collect();
        (delays, table(&text.join(" ")))
    })
}

fn any_routing() -> impl Strategy<Value = Routing> {
    let tolerance = prop_oneof![Just(0), Just(1), Just(200), 0..=60_000_u64];
    (0..=60_000_u64, 0..=172_800_000_u64, tolerance).prop_map(|(handoff, horizon, tolerance)| {
        Routing::default()
            .handoff(Duration::from_millis(handoff))
            .horizon(Duration::from_millis(horizon))
            .tolerance(Duration::from_millis(tolerance))
    })
}

/// Mostly up to 30 min, where small levels matter; sometimes up to 2 days, for the horizon.
fn any_delay() -> impl Strategy<Value = Duration> {
    prop_oneof![4 => 0..=1_800_000_u64, 1 => 0..=172_800_000_u64].prop_map(Duration::from_millis)
}

/// A delay near the places where a decision turns: a level, the handoff, the horizon; each with the tolerance or the
/// lateness before or after it.
fn near(delays: &[Duration], routing: &Routing, usual: Duration, place: Index, shift: Index) -> Duration {
    let mut places = delays.to_vec();
    places.extend([routing.handoff, routing.horizon]);
    let place = *place.get(&places);
    *shift.get(&[
        place,
        place + MS,
        place.saturating_sub(MS),
        place + usual,
        (place + usual).saturating_sub(MS),
        place.saturating_sub(routing.tolerance),
        place.saturating_sub(routing.tolerance + MS),
    ])
}

/// The table of routes, written down once more, as plainly as can be.
fn model(remaining: Duration, routing: &Routing, delays: &[Duration], usual: Duration) -> Route {
    if remaining.is_zero() {
        return Route::Run;
    }
    let shortest = *delays.iter().min().unwrap();
    if remaining < routing.handoff || remaining > routing.horizon || remaining < shortest {
        return Route::Precise;
    }
    let mut best: Option<Level> = None;
    for (at, &delay) in delays.iter().enumerate() {
        let fits = if routing.tolerance.is_zero() {
            delay + usual <= remaining
        } else {
            delay <= remaining + routing.tolerance
        };
        if fits && best.is_none_or(|best| delay > best.delay) {
            best = Some(Level {
                number: at + 1,
                delay,
            });
        }
    }
    best.map_or(Route::Precise, |level| Route::Hop(Hop::Level(level)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn routes_as_the_model_does(
        (delays, table) in any_table(),
        routing in any_routing(),
        usual in 0..=500_u64,
        remaining in any_delay(),
        place in any::<Index>(),
        shift in any::<Index>(),
    ) {
        let usual = Duration::from_millis(usual);
        for remaining in [remaining, near(&delays, &routing, usual, place, shift)] {
            prop_assert_eq!(
                route(remaining, &routing, Some(&by_levels(&table, usual))),
                model(remaining, &routing, &delays, usual)
            );
        }
    }

    #[test]
    fn a_table_is_printed_as_it_is_parsed((delays, levels) in any_table()) {
        prop_assert_eq!(&table(&levels.to_string()), &levels);
        let listed: Vec<_> = levels.levels().map(|level| level.delay).collect();
        prop_assert_eq!(listed, delays);
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in prop_oneof![".*", "[0-9smhd \t+.é１-]{0,30}", "([0-9]{1,3}[smhd] ?){1,5}"]) {
        if let Ok(levels) = text.parse::<LevelTable>() {
            prop_assert_eq!(levels.levels().len(), text.split_ascii_whitespace().count());
            prop_assert!(levels.levels().all(|level| level.delay >= S));
            prop_assert_eq!(&table(&levels.to_string()), &levels);
        }
    }

    #[test]
    fn a_plan_loses_no_time((_, table) in any_table(), routing in any_routing(), delay in any_delay()) {
        let plan = plan(delay, &routing, Some(&by_levels(&table, USUAL)));
        let hops: Duration = plan.hops.iter().map(Hop::delay).sum();
        let all = hops + plan.precise;
        if plan.precise.is_zero() {
            prop_assert!(delay <= all && all <= delay + routing.tolerance, "{} for {:?}", plan, delay);
        } else {
            prop_assert_eq!(all, delay);
        }
        for hop in &plan.hops {
            prop_assert!(table.levels().any(|known| Hop::Level(known) == *hop));
        }
    }

    #[test]
    fn no_chain_ends_later_than_its_last_hop_and_the_tolerance(
        (_, table) in any_table(),
        routing in any_routing(),
        delay in any_delay(),
        worst in 0..=5_000_u64,
        seed in any::<u64>(),
    ) {
        let mut chance = fastrand::Rng::with_seed(seed);
        let chain = travel(delay, &routing, &by_levels(&table, USUAL), || {
            Duration::from_millis(chance.u64(0..=worst))
        });
        prop_assert!(
            chain.late <= chain.last + routing.tolerance,
            "{:?} late, last hop {:?}",
            chain.late,
            chain.last
        );
    }

    #[test]
    fn without_tolerance_every_chain_ends_precise_and_no_level_overshoots(
        (_, table) in any_table(),
        routing in any_routing(),
        delay in any_delay(),
        usual in 1..=500_u64,
        seed in any::<u64>(),
    ) {
        prop_assume!(!delay.is_zero());
        let routing = routing.tolerance(Duration::ZERO);
        let levels = by_levels(&table, Duration::from_millis(usual));
        prop_assert!(!plan(delay, &routing, Some(&levels)).precise.is_zero());
        let mut chance = fastrand::Rng::with_seed(seed);
        let chain = travel(delay, &routing, &levels, || {
            // Less than usual, and punctual about every second time.
            Duration::from_millis(if chance.bool() { 0 } else { chance.u64(0..usual) })
        });
        prop_assert!(!chain.precise.is_zero());
        prop_assert_eq!(chain.late, Duration::ZERO);
    }

    #[test]
    fn no_timer_overshoots_and_every_chain_of_them_ends_precise(
        routing in any_routing(),
        delay in any_delay(),
        max in 1_200..=172_800_000_u64,
        usual in 1..=5_000_u64,
        seed in any::<u64>(),
    ) {
        prop_assume!(!delay.is_zero() && max >= 10 * usual);
        let (max, usual) = (Duration::from_millis(max), Duration::from_millis(usual));
        let timers = by_timers(max, usual);
        let planned = plan(delay, &routing, Some(&timers));
        let hops: Duration = planned.hops.iter().map(Hop::delay).sum();
        prop_assert_eq!(hops + planned.precise, delay);
        prop_assert!(planned.hops.iter().all(|hop| matches!(hop, Hop::Timer(held) if *held <= max)));
        let wanted = delay.saturating_sub(routing.handoff + usual);
        if delay <= routing.horizon || wanted <= max {
            // As few as can hold it.
            prop_assert!(planned.hops.len() as u128 <= wanted.as_nanos().div_ceil(max.as_nanos()), "{}", planned);
        } else {
            prop_assert!(planned.hops.is_empty(), "{}", planned);
        }
        let mut chance = fastrand::Rng::with_seed(seed);
        let chain = travel(delay, &routing, &timers, || {
            Duration::from_millis(chance.u64(0..=usual.as_millis() as u64))
        });
        prop_assert!(chain.hops <= planned.hops.len(), "{} hops, planned {}", chain.hops, planned);
        prop_assert_eq!(chain.late, Duration::ZERO);
        prop_assert!(chain.hops == 0 || chain.precise >= routing.handoff, "{:?} left", chain.precise);
    }

    #[test]
    fn a_late_timer_makes_no_chain_later_than_itself(
        routing in any_routing(),
        delay in any_delay(),
        max in 60_000..=172_800_000_u64,
        worst in 0..=60_000_u64,
        seed in any::<u64>(),
    ) {
        let timers = by_timers(Duration::from_millis(max), 1_200 * MS);
        let mut chance = fastrand::Rng::with_seed(seed);
        let chain = travel(delay, &routing, &timers, || Duration::from_millis(chance.u64(0..=worst)));
        prop_assert!(chain.late <= chain.last, "{:?} late, last timer {:?}", chain.late, chain.last);
    }
}
