//! Values and batches as the table has them.

use std::time::Duration;

use super::{Fixture, LEASE, change, claim, done, due_rows, id, new_row, run, sweep, wakes};
use crate::store::Guarded::{Done, Lost};
use crate::store::postgres::errors::LONGEST;
use crate::store::postgres::names::Names;
use crate::store::sql::tests::each::Each;
use crate::store::sql::tests::refused::a_row_is_refused_alone;
use crate::store::sql::{Limits, RowError};
use crate::store::{Claim, Ending, NewRow, Step, Store, Transaction, Verb};
use crate::{Answer, State, Timestamp};

#[tokio::test]
async fn texts_come_back_as_they_were_but_for_nul() {
    let fixture = Fixture::new().await;
    let odd = "quote \" ' \\ nul \0 tab \t \u{1F600} \u{2028} []{}";
    let mut row = new_row(1, Duration::ZERO);
    row.key = Some("k\"'{é".into());
    row.headers = [(odd.to_owned(), odd.to_owned())].into();
    row.payload = (0..=255).collect();
    row.max_attempts = Some(u32::MAX);
    let inserted = fixture.store.insert_all(vec![row.clone()]).await.unwrap().found;
    assert_eq!(inserted[0].task(), &fixture.find(id(1)).await);
    let claimed = fixture.store.ready(&claim(1)).await.unwrap().found;
    assert_eq!(claimed[0], fixture.find(id(1)).await);
    assert_eq!(
        (&claimed[0].payload, &claimed[0].headers),
        (&row.payload, &row.headers)
    );
    let ending = Ending::Dead {
        error: odd.to_owned(),
        give_back: false,
    };
    let end = Step::end(id(1), 2, ending);
    assert_eq!(fixture.store.advance(&[end]).await.unwrap(), [Done]);
    let expected = odd.replace('\0', "\u{FFFD}");
    assert_eq!(fixture.find(id(1)).await.last_error, Some(expected));
}

#[tokio::test]
async fn a_row_that_makes_no_sense_does_not_keep_others_from_running() {
    let fixture = Fixture::new().await;
    fixture.store.insert_all(due_rows(1..=4)).await.unwrap();
    let mut other = fixture.foreign().await;
    let spoil = "UPDATE delayline_tasks SET headers = 'x' WHERE id = '00000000-0000-0000-0000-000000000001'";
    run(&mut other, spoil).await;
    let error = fixture.store.find(&id(1).into()).await.unwrap_err();
    assert!(error.to_string().contains("headers"), "{error}");
    assert!(!error.is_transient());
    let claimed = fixture
        .store
        .arrive(&wakes(1..=3), &claim(9))
        .await
        .unwrap()
        .found
        .claimed;
    assert_eq!(claimed.len(), 2);
    // What else a hand might do to it the table refuses.
    for spoil in ["state = 9", "hop = -1", "version = -1", "attempt = 4294967296"] {
        let sql = format!("UPDATE delayline_tasks SET {spoil}");
        let refused = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut other).await;
        assert!(refused.is_err(), "{spoil}");
    }
}

#[tokio::test]
async fn a_row_that_a_trigger_refuses_is_refused_alone() {
    let fixture = Fixture::new().await;
    let (store, mut other) = (&fixture.store, fixture.foreign().await);
    let refuse = r"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON delayline_tasks FOR EACH ROW WHEN (NEW.payload = '\xBAD0')
            EXECUTE FUNCTION refuse();
        CREATE TRIGGER keep BEFORE UPDATE ON delayline_tasks FOR EACH ROW
            WHEN (OLD.payload = '\x0BAD' AND NEW.state IN (0, 4)) EXECUTE FUNCTION refuse()";
    run(&mut other, refuse).await;
    a_row_is_refused_alone(store, due_rows(0..40)).await;
    // Of the leases that have ended, its own cannot be written; the others go on.
    let lease = Duration::ZERO;
    let claimed = store.ready(&Claim { lease, ..claim(99) }).await.unwrap().found;
    assert_eq!(claimed.len(), 31);
    let swept = store.sweep(&claim(99), &sweep()).await.unwrap().found;
    assert_eq!((swept.expired, swept.claimed.len()), (30, 30));
    let state = async |number| fixture.find(id(number)).await.state;
    assert_eq!(
        (state(18).await, state(19).await),
        (State::Running, State::Cancelled)
    );
}

/// While one release takes the place of the other both are at work, on one table.
#[tokio::test]
async fn columns_and_states_of_a_later_release_do_not_stop_an_earlier_one() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.insert_all(due_rows(1..=4)).await.unwrap();
    store.ready(&claim(0)).await.unwrap();
    let later = "ALTER TABLE delayline_tasks ADD COLUMN tenant text NOT NULL DEFAULT '';
        ALTER TABLE delayline_tasks DROP CONSTRAINT delayline_tasks_state_check;
        UPDATE delayline_tasks SET state = 7 WHERE id = '00000000-0000-0000-0000-000000000001'";
    run(&mut fixture.foreign().await, later).await;
    store.insert_all(due_rows(5..=6)).await.unwrap();
    let swept = store.sweep(&claim(9), &sweep()).await.unwrap().found;
    let mut claimed = store.ready(&claim(9)).await.unwrap().found;
    claimed.extend(swept.claimed);
    assert_eq!(claimed.len(), 5);
    let ends = claimed
        .iter()
        .map(|task| Step::end(task.id, task.version, Ending::Done));
    let ends: Vec<_> = ends.collect();
    assert_eq!(store.advance(&ends).await.unwrap(), [Done; 5]);
    let cancel = |number| change(id(number), Verb::Cancel);
    let found = store.change(vec![cancel(1), cancel(6)]).await.unwrap().found;
    assert!(
        matches!(found.as_slice(), [Err(_), Ok(Answer::Finished(_))]),
        "{found:?}"
    );
}

#[tokio::test]
async fn one_row_may_be_named_twice_in_a_batch() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store
        .insert_all(vec![new_row(1, LEASE), new_row(2, Duration::ZERO)])
        .await
        .unwrap();
    let hop = |version| Step::hop(id(1), version, LEASE);
    let recorded = store.advance(&[hop(1), hop(1), hop(2), hop(9)]).await.unwrap();
    assert_eq!(recorded, [Done, Lost, Done, Lost]);
    let row = fixture.find(id(1)).await;
    assert_eq!((row.version, row.hop), (3, 2));

    store.ready(&claim(9)).await.unwrap();
    let settled = store
        .advance(&[done(2, 1), done(2, 2), done(2, 2), done(2, 3)])
        .await;
    assert_eq!(settled.unwrap(), [Lost, Done, Lost, Lost]);
    assert_eq!(fixture.find(id(2)).await.state, State::Done);
}

#[tokio::test]
async fn the_last_moment_in_the_statements_is_the_last_moment() {
    let last = Timestamp::MAX.as_millis().to_string();
    let names = Names::new(Some("s".to_owned()), "t".to_owned());
    let statements = super::super::sql::Statements::of(&names);
    let add = statements.add.as_str();
    assert!(add.contains(&last), "{add}");
    assert!(
        statements
            .all()
            .iter()
            .all(|(_, sql)| !sql.contains(['{', '}']) || sql.contains("'{}'"))
    );
}

/// PostgreSQL ends the connection of a client that sends more than 1 GiB at once.
#[tokio::test]
async fn a_batch_that_no_message_could_carry_goes_in_several_statements() {
    let fixture = Fixture::new().await;
    let large = |number| NewRow {
        payload: vec![7; 1 << 20],
        ..new_row(number, LEASE)
    };
    fixture
        .store
        .insert_all((1..=9).map(large).collect())
        .await
        .unwrap();
    let mut service = fixture.foreign().await;
    run(&mut service, "BEGIN").await;
    let rows = (11..=19).map(large).collect();
    let joined = fixture.store.join(&mut service).insert(rows).await.unwrap().found;
    // Of the store's own statements each is a transaction, and of a service's transaction each has a number.
    let count = "SELECT count(DISTINCT (xmin::text, cmin::text)) FROM delayline_tasks
        GROUP BY id < $1 ORDER BY id < $1";
    let statements: Vec<i64> = sqlx::query_scalar(count)
        .bind(uuid::Uuid::from_bytes(*id(10).as_bytes()))
        .fetch_all(&mut service)
        .await
        .unwrap();
    assert_eq!(statements, [3, 3]);
    run(&mut service, "COMMIT").await;
    for answer in &joined {
        assert_eq!(answer.task(), &fixture.find(answer.task().id).await);
    }
}

#[tokio::test]
async fn a_row_that_no_message_could_carry_is_refused_by_name() {
    let row = NewRow {
        payload: vec![7; 50],
        headers: [("trace".to_owned(), "x".repeat(5))].into(),
        ..new_row(1, LEASE)
    };
    let limits = |longest| Limits {
        budget: 0,
        longest,
        by: "the server",
    };
    // A header may take six bytes for each of its own, and what is around them.
    assert!(limits(147).refuses(&row).is_none());
    let Some(RowError::Invalid {
        field,
        value,
        allowed,
    }) = limits(146).refuses(&row)
    else {
        panic!("it is too long");
    };
    assert_eq!((field, value.as_str()), ("payload", "147 bytes long"));
    assert!(allowed.contains("146 bytes"), "{allowed}");
    const { assert!(LONGEST < 1 << 30) };
}
