//! Values and batches as the table has them.

use std::time::Duration;

use super::{Fixture, LEASE, claim, done, due_rows, id, new_row, run, wakes};
use crate::store::Guarded::{Done, Lost};
use crate::store::postgres::table::Table;
use crate::store::sql::Each;
use crate::store::{Ending, Step, Store};
use crate::{State, Timestamp};

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
    let table = Table::new(Some("s".to_owned()), "t".to_owned());
    let statements = super::super::sql::Statements::of(&table);
    let advance = statements.advance.as_str();
    assert!(advance.contains(&last), "{advance}");
    assert!(
        statements
            .all()
            .iter()
            .all(|(_, sql)| !sql.contains(['{', '}']) || sql.contains("'{}'"))
    );
}
