//! Transactions of the service's own, joined by the store.

use tracing::Level;

use super::{Fixture, LEASE, LEVELS, change, claim, held, id, in_time, is, named, new_row, run, wakes};
use crate::logged::Logged;
use crate::store::mysql::insert::MOST;
use crate::store::sql::tests::each::Each;
use crate::store::{Guarded, NewRow, Note, Store, Transaction, Verb};
use crate::{Answer, Scheduled, State};

#[tokio::test]
async fn what_is_done_happens_at_the_commit_or_not_at_all() {
    for level in LEVELS {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        fixture.insert(vec![new_row(1, LEASE)]).await;
        for end in ["ROLLBACK", "COMMIT"] {
            let mut service = fixture.service(level).await;
            let mut joined = store.join(&mut service);
            let new = joined.insert(vec![named(2, "a")]).await.unwrap().found;
            assert!(matches!(new[0], Scheduled::New(_)));
            let moved = joined
                .change(vec![change(id(1), Verb::Cancel)])
                .await
                .unwrap()
                .found;
            assert!(matches!(moved[0], Answer::Done(_)));
            let own = joined.find(&("k", "a").into()).await.unwrap();
            assert_eq!(own.as_ref(), Some(new[0].task()));
            drop(joined);
            assert_eq!(store.find(&id(2).into()).await.unwrap(), None);
            assert_eq!(fixture.find(1).await.state, State::Scheduled);
            run(&mut service, end).await;
        }
        assert_eq!(fixture.find(2).await.state, State::Scheduled);
        assert_eq!(fixture.find(1).await.state, State::Cancelled);
    }
}

#[tokio::test]
async fn a_transaction_sees_what_it_has_done_itself() {
    for level in LEVELS {
        let fixture = Fixture::new().await;
        let mut service = fixture.service(level).await;
        let mut joined = fixture.store.join(&mut service);
        joined.insert(vec![named(1, "a")]).await.unwrap();
        let again = joined
            .insert(vec![named(2, "a"), named(3, "b")])
            .await
            .unwrap()
            .found;
        assert!(
            matches!(&again[0], Scheduled::Existing(row) if row.id == id(1)),
            "{again:?}"
        );
        assert!(matches!(&again[1], Scheduled::New(_)), "{again:?}");
        let cancelled = joined
            .change(vec![change(("k", "a"), Verb::Cancel)])
            .await
            .unwrap()
            .found;
        assert!(matches!(cancelled[0], Answer::Done(_)));
        let free = joined.insert(vec![named(4, "a")]).await.unwrap().found;
        assert!(matches!(free[0], Scheduled::New(_)));
        drop(joined);
        run(&mut service, "COMMIT").await;
        assert_eq!(
            fixture.store.find(&("k", "a").into()).await.unwrap().unwrap().id,
            id(4)
        );
    }
}

/// At `REPEATABLE READ` the transaction goes on to see it.
#[tokio::test]
async fn what_was_removed_since_the_transaction_began_is_not_there() {
    for level in LEVELS {
        let fixture = Fixture::new().await;
        fixture.insert(vec![named(1, "a")]).await;
        let mut service = fixture.service(level).await;
        run(&mut service, "SELECT id FROM delayline_tasks").await;
        let cancel = || vec![change(id(1), Verb::Cancel)];
        fixture.store.change_all(cancel()).await.unwrap();
        run(
            &mut fixture.foreign().await,
            "UPDATE delayline_tasks SET wake_at = 0",
        )
        .await;
        assert_eq!(fixture.store.purge(10).await.unwrap(), 1);

        let mut joined = fixture.store.join(&mut service);
        let again = joined.change(cancel()).await.unwrap().found;
        assert!(matches!(again[0], Answer::NotFound), "{level}: {again:?}");
        // A lock on a row that is not there would be one on the ids that follow.
        in_time(fixture.insert(vec![new_row(3, LEASE)])).await;
        let new = joined.insert(vec![named(2, "a")]).await.unwrap().found;
        assert!(matches!(new[0], Scheduled::New(_)), "{level}: {new:?}");
        drop(joined);
        run(&mut service, "COMMIT").await;
        assert_eq!(fixture.find(2).await.state, State::Scheduled);
    }
}

#[tokio::test]
async fn a_handler_may_finish_its_task_and_schedule_the_next_of_its_key() {
    for level in LEVELS {
        let fixture = Fixture::new().await;
        fixture.insert(vec![named(1, "a")]).await;
        fixture.store.arrive(&wakes([1]), &claim(1)).await.unwrap();
        let mut service = fixture.service(level).await;
        let mut joined = fixture.store.join(&mut service);
        assert!(!joined.finish(id(1), 1, Note::default()).await.unwrap());
        assert!(joined.finish(id(1), 2, Note::default()).await.unwrap());
        assert!(!joined.finish(id(1), 2, Note::default()).await.unwrap());
        let next = joined.insert(vec![named(2, "a")]).await.unwrap().found;
        assert!(matches!(next[0], Scheduled::New(_)), "{level}: {next:?}");
        let past = joined
            .change(vec![change(id(1), Verb::Cancel)])
            .await
            .unwrap()
            .found;
        assert!(matches!(past[0], Answer::Finished(_)), "{level}: {past:?}");
        drop(joined);
        // Its worker is told that the row is locked, and not that it is lost.
        let renewed = in_time(fixture.store.renew(&[held(id(1), 2)], LEASE))
            .await
            .unwrap();
        assert_eq!(renewed, [Guarded::Blocked]);
        run(&mut service, "COMMIT").await;
        assert_eq!(fixture.find(1).await.state, State::Done);
        assert_eq!(fixture.find(2).await.state, State::Scheduled);
    }
}

#[tokio::test]
async fn verbs_decide_by_rows_as_they_are_and_lock_none_that_runs() {
    for level in LEVELS {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        fixture.insert(vec![named(1, "a"), named(2, "b")]).await;
        let mut service = fixture.service(level).await;
        // So that at REPEATABLE READ it sees the rows as they are now until it ends.
        run(&mut service, "SELECT * FROM delayline_tasks").await;
        store.arrive(&wakes([1]), &claim(1)).await.unwrap();
        fixture.insert(vec![named(3, "c")]).await;
        store.change_all(vec![change(id(2), Verb::Cancel)]).await.unwrap();

        let mut joined = store.join(&mut service);
        let mut answers = Vec::new();
        for target in [
            crate::store::Target::from(id(1)),
            ("k", "a").into(),
            ("k", "b").into(),
            ("k", "c").into(),
        ] {
            answers.extend(
                joined
                    .change(vec![change(target, Verb::Cancel)])
                    .await
                    .unwrap()
                    .found,
            );
        }
        let found = joined
            .insert(vec![named(4, "a"), named(5, "b"), named(6, "c")])
            .await;
        let found = found.unwrap().found;
        drop(joined);
        assert!(
            matches!(&answers[0], Answer::TooLate(row) if row.version == 2),
            "{level}: {answers:?}"
        );
        assert!(
            matches!(&answers[1], Answer::TooLate(row) if row.version == 2),
            "{level}: {answers:?}"
        );
        assert!(matches!(&answers[2], Answer::Finished(_)), "{level}: {answers:?}");
        assert!(matches!(&answers[3], Answer::Done(_)), "{level}: {answers:?}");
        assert!(
            matches!(&found[0], Scheduled::Running(row) if row.id == id(1)),
            "{level}: {found:?}"
        );
        assert!(matches!(&found[1], Scheduled::New(_)), "{level}: {found:?}");
        assert!(matches!(&found[2], Scheduled::New(_)), "{level}: {found:?}");
        let renewed = in_time(store.renew(&[held(id(1), 2)], LEASE)).await.unwrap();
        assert_eq!(renewed, [Guarded::Done], "{level}");
        run(&mut service, "COMMIT").await;
        assert_eq!(fixture.find(3).await.state, State::Cancelled);
    }
}

#[tokio::test]
async fn rows_that_were_changed_are_locked_until_the_end() {
    for level in LEVELS {
        let fixture = Fixture::new().await;
        fixture.insert(vec![named(1, "a")]).await;
        let mut service = fixture.service(level).await;
        let mut joined = fixture.store.join(&mut service);
        let answers = joined
            .change(vec![change(("k", "a"), Verb::Cancel)])
            .await
            .unwrap();
        assert!(matches!(answers.found[0], Answer::Done(_)));
        drop(joined);
        let looked = in_time(fixture.store.arrive(&wakes([1]), &claim(1)))
            .await
            .unwrap()
            .found;
        assert_eq!(looked, Default::default());
        run(&mut service, "COMMIT").await;
        let looked = fixture.store.arrive(&wakes([1]), &claim(1)).await.unwrap().found;
        assert_eq!(looked.stale, 1);
    }
}

#[tokio::test]
async fn a_deadlock_is_told_to_the_service_as_transient() {
    let fixture = Fixture::new().await;
    fixture.insert(vec![new_row(1, LEASE), new_row(2, LEASE)]).await;
    fixture
        .insert((100..200).map(|number| new_row(number, LEASE)).collect())
        .await;
    let mut other = fixture.foreign().await;
    run(&mut other, "START TRANSACTION").await;
    run(
        &mut other,
        "UPDATE delayline_tasks SET hop = 1 WHERE id >= UNHEX('00000000000000000000000000000064')",
    )
    .await;
    run(
        &mut other,
        &format!("UPDATE delayline_tasks SET hop = 1 WHERE {}", is(2)),
    )
    .await;
    let mut service = fixture.service("REPEATABLE READ").await;
    run(
        &mut service,
        &format!("SELECT * FROM delayline_tasks WHERE {} FOR UPDATE", is(1)),
    )
    .await;
    let mut joined = fixture.store.join(&mut service);
    // Whichever waits first, it is the smaller transaction that is undone.
    let one = is(1);
    let cross = async {
        run(
            &mut other,
            &format!("UPDATE delayline_tasks SET hop = 1 WHERE {one}"),
        )
        .await;
        run(&mut other, "ROLLBACK").await;
    };
    let changed = async { joined.change(vec![change(id(2), Verb::Cancel)]).await };
    let (changed, ()) = in_time(async { tokio::join!(changed, cross) }).await;
    assert!(changed.unwrap_err().is_transient());
}

#[tokio::test]
async fn the_settings_of_a_service_do_not_matter() {
    let fixture = Fixture::new().await;
    let mut service = fixture.service("REPEATABLE READ").await;
    run(
        &mut service,
        "SET time_zone = '+10:00', sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
    )
    .await;
    let before = fixture.store.now().await.unwrap();
    let mut joined = fixture.store.join(&mut service);
    let new = joined.insert(vec![named(1, "a\\\"'")]).await.unwrap();
    let changed = joined.change(vec![change(id(1), Verb::Cancel)]).await.unwrap();
    drop(joined);
    run(&mut service, "COMMIT").await;
    let after = fixture.store.now().await.unwrap();
    assert!(before <= new.now && new.now <= changed.now && changed.now <= after);
    assert_eq!(fixture.find(1).await.finished_at, Some(changed.now));
    assert_eq!(fixture.find(1).await.key, Some("a\\\"'".into()));
}

/// The driver logs the texts of a service's statements, and values are no part of them.
#[tokio::test]
async fn no_payload_is_logged() {
    let fixture = Fixture::new().await;
    // Not before the driver has logged something: of a place that another test reaches first, which does not listen, `tracing`
    // may remember that no test does.
    let (logged, _listening) = Logged::by_thread(Level::TRACE);
    let secret = |number: usize| NewRow {
        payload: b"geheim".to_vec(),
        headers: [("trace".to_owned(), "geheim".to_owned())].into(),
        replace: true,
        ..named(number, &format!("geheim {number}"))
    };
    let mut service = fixture.service("READ COMMITTED").await;
    let mut joined = fixture.store.join(&mut service);
    // As many as there are statements for, others, and some that are there.
    for (first, count) in [(1, 1), (10, 3), (1_000, MOST), (9, 3)] {
        let rows = (first..first + count).map(secret).collect();
        assert_eq!(joined.insert(rows).await.unwrap().found.len(), count);
    }
    drop(joined);
    run(&mut service, "COMMIT").await;
    fixture.insert((20..25).map(secret).collect()).await;
    let logged = logged.text().to_lowercase();
    assert!(logged.contains("insert into delayline_tasks"), "it did listen");
    let in_hex: String = b"geheim".iter().map(|byte| format!("{byte:02x}")).collect();
    for shown in ["geheim", &in_hex] {
        assert_eq!(logged.matches(shown).count(), 0, "{shown}");
    }
}

#[tokio::test]
async fn rows_of_one_call_are_of_one_moment_however_many_statements_write_them() {
    let fixture = Fixture::new().await;
    let mut service = fixture.service("READ COMMITTED").await;
    let rows = (0..MOST + 100).map(|number| new_row(number, LEASE)).collect();
    let added = fixture.store.join(&mut service).insert(rows).await.unwrap();
    run(&mut service, "COMMIT").await;
    for (number, added) in added.found.iter().enumerate() {
        assert_eq!(added.task(), &fixture.find(number).await);
    }
}
