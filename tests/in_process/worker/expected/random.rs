//! Whatever is edited in the table, and whenever.

use std::collections::BTreeMap;

use delayline::State;
use delayline::expected::Expected;
use delayline::testing::Faults;

use super::{Posts, world_of};
use crate::support::{KIND, START, Setup, World, at, ms};

/// What the table said of a task, from when on.
type Said = BTreeMap<String, Vec<(i64, Expected)>>;

const EVERY: i64 = 30_000;
const LONGEST: i64 = 600_000;

#[tokio::test(start_paused = true)]
async fn every_task_runs_at_the_time_that_was_said_last_and_never_before() {
    for seed in 0..6 {
        for without_precise in [false, true] {
            let table = [None, Some("1s 5s 30s 1m 10m")][seed as usize % 2];
            let usual = Faults {
                usual: ms(40),
                ..Faults::default()
            };
            let setup = Setup {
                seed,
                table,
                without_precise,
                level_faults: usual,
                precise_faults: usual,
                ..Setup::default()
            };
            let (world, posts) = world_of(setup, |check| check.every(ms(EVERY.unsigned_abs())));
            let said = edit(&world, &posts).await;
            assert_followed(&world, &said).await;
        }
    }
}

/// Random edits for a while; then all that is left comes to its end.
async fn edit(world: &World, posts: &Posts) -> Said {
    let _worker = world.work();
    let mut said = Said::new();
    let random = |bound: i64| {
        let drawn = world.clock.random_below(bound.unsigned_abs());
        i64::try_from(drawn).unwrap()
    };
    for n in 0..8 {
        let (key, due) = (n.to_string(), 1_000 + random(LONGEST));
        world.publish(posts, &key, due).await;
        said.entry(key).or_default().push((0, Expected::At(at(due))));
    }
    while world.now() < LONGEST {
        world.pass(ms(random(40_000).unsigned_abs())).await;
        let now = world.now();
        let key = random(8).to_string();
        let expected = match random(20) {
            0 => Expected::Run,
            1 => Expected::Gone,
            2..5 => Expected::At(at(now - random(60_000))),
            5..12 => Expected::At(at(now + random(60_000))),
            _ => Expected::At(at(now + random(LONGEST))),
        };
        posts.say(&key, expected);
        said.entry(key).or_default().push((now, expected));
    }
    // No edit reaches further than that from the last moment of an edit.
    world.pass_until(2 * LONGEST + EVERY + LATE).await;
    for state in [State::Scheduled, State::Running] {
        assert_eq!(world.rows_in(KIND, state).await, []);
    }
    said
}

/// How late a wake-up, its sweep and the answer may be in all.
const LATE: i64 = 1_500;

async fn assert_followed(world: &World, said: &Said) {
    let runs = world.runs.all();
    for (key, said) in said {
        let ran: Vec<_> = runs
            .iter()
            .filter(|run| run.task.key.as_ref().is_some_and(|of| of.as_str() == key))
            .map(|run| run.at)
            .collect();
        // What the table said at a moment.
        let at_moment = |moment: i64| {
            let last = said.iter().rev().find(|(from, _)| *from <= moment);
            last.expect("it was said at the start").1
        };
        match ran[..] {
            // Cancelled: at some moment it was gone.
            [] => assert!(
                said.iter().any(|(_, expected)| *expected == Expected::Gone),
                "{key} never ran: {said:?}"
            ),
            [ran] => {
                match at_moment(ran) {
                    Expected::Run => {}
                    Expected::At(time) => {
                        let time = time.as_millis() - START;
                        assert!(time <= ran, "{key} ran at {ran}, before {time}: {said:?}");
                    }
                    _ => panic!("{key} ran at {ran} though it was gone: {said:?}"),
                }
                // At no moment before was it due for longer than it takes to notice.
                let ripe = ripe_since(said, ran);
                assert!(
                    ran - ripe <= EVERY + LATE,
                    "{key} ran at {ran}, ripe since {ripe}: {said:?}"
                );
                let kept = said.len() == 1;
                assert!(
                    !kept || ran - ripe <= LATE,
                    "{key} was never edited: {ran} {said:?}"
                );
            }
            _ => panic!("{key} ran more than once: {ran:?}"),
        }
    }
}

/// Since when the table had said, without a break, that a task which ran at `ran` was to run.
fn ripe_since(said: &[(i64, Expected)], ran: i64) -> i64 {
    let mut ripe = ran;
    for (from, expected) in said.iter().rev().filter(|(from, _)| *from <= ran) {
        let due = match expected {
            Expected::Run => *from,
            Expected::At(time) => time.as_millis() - START,
            _ => return ripe,
        };
        if due > ripe {
            return ripe;
        }
        ripe = due.max(*from);
        if due > *from {
            return ripe;
        }
    }
    ripe
}
