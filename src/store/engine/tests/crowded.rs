//! More kinds with rows than one call has time for.

use super::*;

const KINDS: u32 = 50;
const OF_EACH: u32 = 10;

/// Rows of many kinds that are all overdue, in a table that has time for a few.
async fn crowded() -> Fixture {
    let fixture = Fixture::new(LONG).await;
    let rows = (0..KINDS * OF_EACH).map(|number| NewRow {
        id: numbered(number),
        kind: format!("k{}", number % KINDS).as_str().into(),
        key: None,
        overdue_after: Duration::ZERO,
        ..row(1, "1", 10 * LONG)
    });
    fixture.engine.insert(rows.collect()).await.unwrap();
    *fixture.others.enough.lock().unwrap() = Some(100);
    fixture
}

fn numbered(number: u32) -> TaskId {
    TaskId::from_bytes((1_000 + u128::from(number)).to_be_bytes())
}

#[tokio::test(start_paused = true)]
async fn a_sweep_gets_to_the_rows_of_every_kind() {
    let fixture = crowded().await;
    let sweep = Sweep {
        limit: 500,
        retake: 2 * LONG,
        ahead: None,
    };
    let nothing = Claim {
        room: Default::default(),
        ..claim(LONG)
    };
    let mut found = BTreeSet::new();
    for _ in 0..25 {
        if let Ok(swept) = fixture.engine.sweep(&nothing, &sweep).await {
            let early = swept.found.early;
            assert!(early.len() <= 100, "{}", early.len());
            found.extend(early.into_iter().map(|row| row.wake.id));
        }
    }
    assert_eq!(found.len(), (KINDS * OF_EACH) as usize);
}

#[tokio::test(start_paused = true)]
async fn history_of_many_kinds_is_removed_part_by_part() {
    let fixture = crowded().await;
    let cancel = |number| Change {
        target: numbered(number).into(),
        ..change(1, Verb::Cancel)
    };
    fixture.change((0..KINDS * OF_EACH).map(cancel).collect()).await;
    fixture.clock.sleep(2 * LONG).await;
    let mut removed = 0;
    for _ in 0..25 {
        removed += fixture.engine.purge(500).await.unwrap_or(0);
    }
    assert!(removed > 0);
    *fixture.others.enough.lock().unwrap() = None;
    assert_eq!(fixture.engine.purge(500).await.unwrap(), 0, "all are gone");
}
