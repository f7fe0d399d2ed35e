//! How SQLite goes about each statement.

use sqlx::{AssertSqlSafe, Row, SqliteConnection};

use super::{Fixture, due_rows, run};
use crate::store::Store;
use crate::store::sqlite::sql;

/// The steps of a plan.
async fn plan(connection: &mut SqliteConnection, sql: &str) -> Vec<String> {
    let plan = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}")))
        .fetch_all(connection)
        .await
        .unwrap();
    plan.iter().map(|step| step.get("detail")).collect()
}

/// Those of its steps that sort.
async fn sorts(connection: &mut SqliteConnection, sql: &str) -> Vec<String> {
    let mut steps = plan(connection, sql).await;
    steps.retain(|step| step.contains("TEMP B-TREE"));
    steps
}

/// Those of its steps that read a table or an index from end to end.
async fn scans(connection: &mut SqliteConnection, sql: &str) -> Vec<String> {
    // What a batch gives, what is found for it, and each kind once; never the table under any of its aliases.
    let harmless = [
        "SCAN j VIRTUAL TABLE",
        "SCAN first",
        "SCAN kinds",
        "SCAN CONSTANT ROW",
        "SCAN 2 CONSTANT ROWS",
        "SCAN g",
        "SCAN out VIRTUAL TABLE",
    ];
    let mut steps = plan(connection, sql).await;
    steps.retain(|step| step.contains("SCAN") && !harmless.iter().any(|prefix| step.starts_with(prefix)));
    steps
}

#[tokio::test]
async fn no_statement_reads_the_table_from_end_to_end() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.foreign().await;
    assert_ne!(
        scans(&mut connection, "SELECT * FROM delayline_tasks").await,
        [""; 0]
    );
    for analyzed in [false, true] {
        let written = [("advance", sql::advance(2)), ("change", sql::change(2))];
        let named = sql::ALL.iter().map(|(name, sql)| (*name, (*sql).to_owned()));
        for (name, sql) in named.chain(written) {
            assert_eq!(
                scans(&mut connection, &sql).await,
                [""; 0],
                "{name}, analyzed: {analyzed}"
            );
        }
        // The statistics of few rows, all of one kind and state, are those that mislead a planner most.
        fixture.store.insert(due_rows(0..20)).await.unwrap();
        run(&mut connection, "ANALYZE").await;
    }
}

#[tokio::test]
async fn no_page_of_a_list_is_sorted() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.foreign().await;
    assert_ne!(
        sorts(&mut connection, "SELECT * FROM delayline_tasks ORDER BY due_at").await,
        [""; 0]
    );
    for analyzed in [false, true] {
        for (name, sql) in [
            ("LIST", sql::LIST),
            ("DUE", sql::DUE),
            ("NEXT_KIND", sql::NEXT_KIND),
        ] {
            assert_eq!(
                sorts(&mut connection, sql).await,
                [""; 0],
                "{name}, analyzed: {analyzed}"
            );
        }
        fixture.store.insert(due_rows(0..20)).await.unwrap();
        run(&mut connection, "ANALYZE").await;
    }
}
