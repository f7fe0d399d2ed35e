//! Times that are reckoned from an earlier answer.

use super::*;
use crate::store::engine::reckoned::Reckoned;

#[tokio::test(start_paused = true)]
async fn no_time_is_reckoned_from_an_answer_since_whose_call_the_machine_has_slept() {
    const A_MOMENT: Duration = Duration::from_millis(300);
    let clock = Clock::simulated(1);
    let noon = Timestamp::from_millis(43_200_000);
    let pass = async |slept: Duration| {
        clock.suspend(slept);
        tokio::time::sleep(slept + A_MOMENT).await;
    };
    for (before, after, known) in [
        (Duration::ZERO, Duration::ZERO, true),
        (LONG, Duration::ZERO, false),
        (Duration::ZERO, LONG, false),
        // For less than an answer is believed.
        (Duration::ZERO, A_MOMENT, false),
    ] {
        let (time, asked) = (Reckoned::default(), clock.moment());
        pass(before).await;
        time.hear(noon, asked, &clock);
        pass(after).await;
        let now = known.then(|| noon.after(A_MOMENT));
        assert_eq!(time.now(&clock), now, "{before:?}, {after:?}");
    }
    // A pause of a virtual machine that its wall clock alone shows.
    let time = Reckoned::default();
    time.hear(noon, clock.moment(), &clock);
    clock.step(3_600_000);
    assert_eq!(time.now(&clock), None);
}
