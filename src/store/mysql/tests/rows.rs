//! Values and batches as the server has them.

use std::time::Duration;

use super::{Fixture, LEASE, change, claim, due_rows, held, id, named, new_row, run, settlement, wakes};
use crate::store::sql::tests::each::Each;
use crate::store::{Ending, NewRow, Store, Sweep, Verb};
use crate::{Answer, Error, Scheduled, State};

#[tokio::test]
async fn texts_and_bytes_come_back_as_they_were() {
    let fixture = Fixture::new().await;
    let odd = "quote \" ' \\ nul \0 tab \t \u{1F600} \u{2028} []{} \u{FFFF}";
    let mut row = new_row(1, Duration::ZERO);
    row.key = Some("k\"'{é\\".into());
    row.headers = [(odd.to_owned(), odd.to_owned())].into();
    row.payload = (0..=255).collect();
    row.max_attempts = Some(u32::MAX);
    let inserted = fixture.store.insert_all(vec![row.clone()]).await.unwrap().found;
    assert_eq!(inserted[0].task(), &fixture.find(1).await);

    let claimed = fixture.store.ready(&claim(1)).await.unwrap().found;
    assert_eq!(claimed[0], fixture.find(1).await);
    assert_eq!(claimed[0].payload, row.payload);
    let error = odd.to_owned();
    let dead = Ending::Dead {
        error,
        give_back: false,
    };
    assert_eq!(
        fixture.store.advance(&[settlement(1, 2, dead)]).await.unwrap(),
        [crate::store::Guarded::Done]
    );
    assert_eq!(fixture.find(1).await.last_error.as_deref(), Some(odd));

    let redrive = Verb::Redrive { overdue_after: LEASE };
    let answers = fixture
        .store
        .change_all(vec![change(("k", "k\"'{é\\"), redrive)])
        .await
        .unwrap();
    assert_eq!(answers.found, [Answer::Done(fixture.find(1).await)]);
}

#[tokio::test]
async fn the_largest_numbers_come_back() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows([1])).await;
    let mut other = fixture.foreign().await;
    run(
        &mut other,
        "UPDATE delayline_tasks SET version = 9223372036854775806, attempt = 4294967294, hop = 4294967295",
    )
    .await;
    let sweep = Sweep {
        limit: 10,
        retake: LEASE,
        ahead: None,
    };
    let swept = fixture.store.sweep(&claim(1), &sweep).await.unwrap().found;
    let row = fixture.find(1).await;
    assert_eq!(swept.claimed, std::slice::from_ref(&row));
    assert_eq!(
        (row.version, row.attempt, row.hop),
        (i64::MAX.cast_unsigned(), u32::MAX, u32::MAX)
    );
    let settled = fixture
        .store
        .renew(&[held(id(1), i64::MAX.cast_unsigned())], LEASE)
        .await
        .unwrap();
    assert_eq!(settled, [crate::store::Guarded::Done]);
}

#[tokio::test]
async fn a_batch_with_old_and_new_rows_is_decided_row_by_row() {
    let fixture = Fixture::new().await;
    let named = |number, key: &str, payload: u8, replace| NewRow {
        payload: vec![payload],
        replace,
        ..named(number, key)
    };
    fixture
        .insert(vec![named(1, "a", 1, false), new_row(2, LEASE)])
        .await;
    let batch = vec![
        new_row(2, LEASE),
        named(3, "a", 3, true),
        named(4, "a", 4, false),
        named(5, "b", 5, false),
        named(6, "b", 6, true),
        new_row(7, LEASE),
        new_row(7, LEASE),
    ];
    let found = fixture.store.insert_all(batch).await.unwrap().found;
    let seen: Vec<_> = found
        .iter()
        .map(|answer| {
            let task = answer.task();
            let name = match answer {
                Scheduled::New(_) => "new",
                Scheduled::Existing(_) => "existing",
                Scheduled::Replaced(_) => "replaced",
                Scheduled::Running(_) => "running",
            };
            (name, task.id, task.version, task.payload[0])
        })
        .collect();
    let expected = [
        ("existing", id(2), 1, 0),
        ("replaced", id(1), 2, 3),
        ("existing", id(1), 2, 3),
        ("new", id(5), 1, 5),
        ("replaced", id(5), 2, 6),
        ("new", id(7), 1, 0),
        ("existing", id(7), 1, 0),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_batch_that_no_statement_could_carry_is_split() {
    let fixture = Fixture::new().await;
    let row = |number| NewRow {
        payload: vec![b'x'; 3 << 20],
        ..new_row(number, LEASE)
    };
    let found = fixture
        .store
        .insert_all((0..7).map(row).collect())
        .await
        .unwrap()
        .found;
    assert!(found.iter().all(|answer| matches!(answer, Scheduled::New(_))));
    assert_eq!(fixture.find(6).await.payload.len(), 3 << 20);
}

#[tokio::test]
async fn a_payload_that_the_server_takes_in_no_statement_is_refused_before() {
    let fixture = Fixture::new().await;
    let limit = sqlx::query_scalar::<_, u64>("SELECT @@max_allowed_packet");
    let limit = limit.fetch_one(&mut fixture.foreign().await).await.unwrap();
    let big = |number, key: &str| NewRow {
        payload: vec![0; limit as usize + 1],
        replace: true,
        ..named(number, key)
    };
    let refused = |error: Error| {
        assert!(
            matches!(error, Error::Invalid { field: "payload", .. }),
            "{error}"
        );
        assert!(error.to_string().contains("max_allowed_packet"), "{error}");
    };
    let batch = vec![new_row(1, LEASE), big(2, "a"), new_row(5, LEASE)];
    let mut found = fixture.store.insert(batch).await.unwrap().found;
    refused(found.remove(1).unwrap_err());
    assert!(found.iter().all(|answer| matches!(answer, Ok(Scheduled::New(_)))));
    fixture.insert(vec![named(3, "a")]).await;
    refused(fixture.store.insert_all(vec![big(4, "a")]).await.unwrap_err());
    assert_eq!(fixture.find(3).await.version, 1);
}

#[tokio::test]
async fn long_errors_are_cut_and_written_in_several_statements() {
    let fixture = Fixture::new().await;
    let claimed = fixture.running(0..9).await;
    let error = "\u{1}".repeat(1 << 20);
    let end = |number| {
        let error = error.clone();
        settlement(
            number,
            2,
            Ending::Dead {
                error,
                give_back: false,
            },
        )
    };
    let settled = fixture
        .store
        .advance(&(0..9).map(end).collect::<Vec<_>>())
        .await
        .unwrap();
    assert_eq!(
        (claimed.len(), settled),
        (9, vec![crate::store::Guarded::Done; 9])
    );
    let kept = fixture.find(8).await.last_error.unwrap();
    assert!(kept.len() > 100_000 && error.starts_with(&kept), "{}", kept.len());
}

#[tokio::test]
async fn a_row_that_makes_no_sense_is_an_error_but_holds_up_no_other() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows([9])).await;
    let mut other = fixture.foreign().await;
    // Nor is a column of a later release an error for a connection that was there before.
    run(
        &mut other,
        "ALTER TABLE delayline_tasks ADD COLUMN tenant INT NOT NULL DEFAULT 1",
    )
    .await;
    assert_eq!(fixture.store.ready(&claim(9)).await.unwrap().found.len(), 1);
    for (place, spoil) in ["headers = 'x'", "state = 9", "kind = X'FF'", "`key` = X'FF'"]
        .iter()
        .enumerate()
    {
        let (spoiled, sound) = (2 * place, 2 * place + 1);
        fixture.insert(due_rows([spoiled, sound])).await;
        run(
            &mut other,
            &format!("UPDATE delayline_tasks SET {spoil} WHERE {}", super::is(spoiled)),
        )
        .await;
        let error = fixture.store.find(&id(spoiled).into()).await.unwrap_err();
        assert!(!error.is_transient(), "{error}");
        let column = spoil.split(' ').next().unwrap().trim_matches('`');
        assert!(error.to_string().contains(column), "{error}");

        let sweep = Sweep {
            limit: 10,
            retake: LEASE,
            ahead: None,
        };
        let swept = fixture.store.sweep(&claim(9), &sweep).await.unwrap().found;
        assert_eq!(swept.claimed, [fixture.find(sound).await], "{spoil}");
        let ready = fixture.store.ready(&claim(9)).await.unwrap().found;
        assert_eq!(ready, [], "{spoil}");
        let looked = fixture.store.arrive(&wakes([spoiled]), &claim(9)).await;
        assert!(
            looked.is_err() || looked.unwrap().found.claimed.is_empty(),
            "{spoil}"
        );
    }
}

#[tokio::test]
async fn more_kinds_than_one_statement_takes_are_all_found() {
    let fixture = Fixture::new().await;
    let row = |number: usize| NewRow {
        kind: format!("kind {number}").as_str().into(),
        ..new_row(number, Duration::ZERO)
    };
    fixture.insert((0..150).map(row).collect()).await;
    let sweep = Sweep {
        limit: 10,
        retake: LEASE,
        ahead: None,
    };
    for _ in 0..2 {
        let swept = fixture.store.sweep(&claim(9), &sweep).await.unwrap().found;
        assert_eq!(swept.waiting.len(), 150);
        assert!(swept.waiting.values().all(|&count| count == 1));
    }
    let store = fixture.store.clone();
    let cancel = |number| change(id(number), Verb::Cancel);
    store.change_all((0..150).map(cancel).collect()).await.unwrap();
    assert_eq!(fixture.find(149).await.state, State::Cancelled);
    assert_eq!(
        store.sweep(&claim(9), &sweep).await.unwrap().found,
        Default::default()
    );
}
