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

#[tokio::test(start_paused = true)]
async fn the_end_of_a_claim_whose_lease_has_ended_is_no_end_of_a_new_row_of_its_id() {
    let short = Duration::from_secs(1);
    for is_claimed_anew in [false, true] {
        let clock = Clock::simulated(1);
        let engine = Engine::new(MemoryTable::new(clock.clone()), clock, Duration::ZERO);
        engine.insert(vec![row(1, "1", Duration::ZERO)]).await.unwrap();
        let claimed = engine.ready(&claim(short)).await.unwrap().found.remove(0);
        tokio::time::sleep(2 * short).await;
        let end = Step::end(claimed.id, claimed.version, Ending::Done);
        let ended = engine.advance(std::slice::from_ref(&end)).await.unwrap();
        assert_eq!(ended, [Guarded::Done]);
        tokio::time::sleep(short).await;
        assert_eq!(engine.purge(9).await.unwrap(), 1);

        // A new row of the same version, which waits or is claimed; by that the time is known.
        let due = if is_claimed_anew { Duration::ZERO } else { LONG };
        engine.insert(vec![row(1, "1", due)]).await.unwrap();
        if !is_claimed_anew {
            engine.change(vec![later(1)]).await.unwrap();
        }
        engine.ready(&claim(LONG)).await.unwrap();
        let before = engine.find(&id(1).into()).await.unwrap();
        let claimed = Some(Arc::new(claimed));
        let late = Step { claimed, ..end };
        assert_eq!(engine.advance(&[late]).await.unwrap(), [Guarded::Lost]);
        assert_eq!(engine.find(&id(1).into()).await.unwrap(), before);
    }
}
