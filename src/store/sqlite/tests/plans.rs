//! How SQLite goes about each statement.

use sqlx::{AssertSqlSafe, Row, SqliteConnection};

use super::{Fixture, due_rows, run};
use crate::store::Store;
use crate::store::sql::tests::forms::ranges;
use crate::store::sqlite::statements;
use crate::store::table::{By, Columns, Range};

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
        "SCAN fitting",
        "SCAN kinds",
        "SCAN CONSTANT ROW",
        "SCAN 3 CONSTANT ROWS",
        "SCAN 3-ROW VALUES CLAUSE",
        "SCAN g",
        "SCAN (subquery",
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
        for (name, sql) in statements::all() {
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
        // Those of one kind: of each kind in turn, and of what a claim has room for, the few that were found are sorted.
        let is_one = |range: &Range| range.kind.is_some() && range.by == By::Due && range.bytes == usize::MAX;
        let one_kind = ranges().filter(is_one);
        for range in one_kind {
            assert_eq!(
                sorts(&mut connection, &statements::range(&range, Columns::All)).await,
                [""; 0],
                "{range:?}, analyzed: {analyzed}"
            );
        }
        fixture.store.insert(due_rows(0..20)).await.unwrap();
        run(&mut connection, "ANALYZE").await;
    }
}
