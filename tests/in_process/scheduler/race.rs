//! The definite answer, at the moment at which it is hardest to give.

use delayline::{Answer, NewTask, Shift, State, Timestamp};

use crate::support::{KIND, Setup, ms};

/// What the caller does while the wake-up is in flight, or has just arrived.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Cancel,
    Later,
    Earlier,
    RunNow,
}

const VERBS: [Verb; 4] = [Verb::Cancel, Verb::Later, Verb::Earlier, Verb::RunNow];

/// How the answers of all moments are spread: each kind of answer must have been given, or nothing was raced.
#[derive(Debug, Default)]
struct Spread {
    in_time: [usize; 4],
    too_late: [usize; 4],
}

#[tokio::test(start_paused = true)]
async fn at_a_thousand_moments_each_answer_is_true() {
    let mut spread = Spread::default();
    for seed in 0..1_000 {
        race(seed, &mut spread).await;
    }
    for (verb, name) in VERBS.iter().enumerate() {
        assert!(spread.in_time[verb] >= 50, "{name:?}: {spread:?}");
        assert!(spread.too_late[verb] >= 50, "{name:?}: {spread:?}");
    }
}

async fn race(seed: u64, spread: &mut Spread) {
    let world = Setup {
        seed,
        table: Some("1s 2s"),
        ..Setup::default()
    }
    .build();
    // Every statement takes its time, before and after its effect, so that the two cross in every way.
    world.store.take(ms(5));
    let _worker = world.work();
    let draw = |below| world.clock.random_below(below);
    let delay = 20 + draw(3_000);
    let scheduled = world
        .scheduler
        .schedule(NewTask::new(KIND, &1).after(ms(delay)))
        .await;
    let row = scheduled.unwrap().task().clone();

    // Around the due time: the wake-up arrives, the row is claimed, the handler runs.
    let due_in = u64::try_from(row.due_at.millis_since(world.clock.now())).unwrap();
    let moment = (due_in + draw(40)).saturating_sub(20);
    world.pass(ms(moment)).await;
    let which = draw(4) as usize;
    let by = ms(1 + draw(30));
    let answer = match VERBS[which] {
        Verb::Cancel => world.scheduler.cancel(row.id).await,
        Verb::Later => world.scheduler.shift(row.id, Shift::Later(by)).await,
        Verb::Earlier => world.scheduler.shift(row.id, Shift::Earlier(by)).await,
        Verb::RunNow => world.scheduler.run_now(row.id).await,
    };
    let answer = answer.unwrap();
    let answered = world.now();
    let before = world.runs.count();
    world.settle().await;
    world.pass(ms(5_000)).await;

    let told = format!(
        "seed {seed}, {:?}: {answer:?}, runs {:?}",
        VERBS[which],
        world.runs.all()
    );
    let end = world.row(row.id).await;
    match &answer {
        Answer::Done(task) if task.state == State::Cancelled => {
            spread.in_time[which] += 1;
            assert_eq!(world.runs.count(), 0, "{told}");
            assert_eq!(end, *task, "{told}");
        }
        Answer::Done(task) => {
            spread.in_time[which] += 1;
            let [run] = &world.runs.all()[..] else {
                panic!("{told}");
            };
            // As it was moved, not as it was before; and not before its new time.
            assert_eq!(run.task.due_at, task.due_at, "{told}");
            assert!(run.task.version > task.version, "{told}");
            assert!(run.at >= millis(task.due_at), "{told}");
            // The answer came with its own delay: what is due by then may have been started already.
            let latest = millis(task.due_at).max(answered) + LATEST;
            assert!(run.at <= latest, "{told}");
            assert_eq!(end.state, State::Done, "{told}");
        }
        Answer::TooLate(task) | Answer::Finished(task) => {
            spread.too_late[which] += 1;
            assert_eq!(task.due_at, row.due_at, "{told}");
            let [run] = &world.runs.all()[..] else {
                panic!("{told}");
            };
            assert!(
                run.task.due_at == row.due_at && run.at >= millis(row.due_at),
                "{told}"
            );
            assert!(before == 1 || matches!(answer, Answer::TooLate(_)), "{told}");
        }
        Answer::Conflict(_) | Answer::NotFound => panic!("{told}"),
    }
}

/// A wake-up waits behind one batch before it and takes one look itself: of at most 10 ms each, besides the hop.
const LATEST: i64 = 60;

fn millis(time: Timestamp) -> i64 {
    time.as_millis() - crate::support::START
}
