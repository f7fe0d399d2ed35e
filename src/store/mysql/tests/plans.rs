//! How the server goes about each statement.

use std::pin::Pin;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor, MySqlConnection, Row};

use super::{Fixture, LEASE, claim as of_claim, id, run};
use crate::State;
use crate::store::mysql::sql::Sql;
use crate::store::mysql::{MySqlStore, claim, ranges, write};
use crate::store::sql::tests::forms::ranges as forms;
use crate::store::table::Columns;
use crate::store::{Ahead, Page, Store, Sweep, Target};

const ROWS: usize = 100_000;

type Call<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Writes them: half of them history; the rest scheduled for a far future, of three kinds.
async fn fill(connection: &mut MySqlConnection) {
    let rows = format!(
        "INSERT INTO delayline_tasks (id, kind, `key`, state, version, due_at, planned_at, wake_at, attempt, started, stalls, hop,
            created_at, updated_at, headers, payload)
        WITH digits AS (SELECT id - 1 digit FROM JSON_TABLE('[0,1,2,3,4,5,6,7,8,9]', '$[*]' COLUMNS (id FOR ORDINALITY)) j)
        SELECT UNHEX(LPAD(HEX(seq), 32, '0')), CONCAT('k', seq % 3), IF(seq % 4 < 2, NULL, CONCAT('key ', seq % 1000)),
            ELT(1 + seq % 4, 0, 0, 2, 4), 1, 9000000000000 + seq, 0, 9000000000000 + seq, 0, 0, 0, 0, 0, 0, '{{}}', ''
        FROM (SELECT 1 + a.digit + 10 * b.digit + 100 * c.digit + 1000 * d.digit + 10000 * e.digit seq
            FROM digits a, digits b, digits c, digits d, digits e) numbers
        WHERE seq <= {ROWS}"
    );
    run(connection, &rows).await;
}

/// The steps of a plan that do not go by an index, or by another than is meant.
async fn scans(connection: &mut MySqlConnection, sql: &str, is_empty: bool) -> Vec<String> {
    let sql = sql
        .replace("LIMIT ?", "LIMIT 10")
        .replace("JSON_TABLE(?", "JSON_TABLE('[]'")
        .replace("kind = ?", "kind = 'k1'")
        .replace("kind > ?", "kind > 'k0'")
        .replace("= ?", "= '1'")
        .replace("IN (?", "IN ('1'")
        .replace(",?", ",'1'")
        .replace('?', "5");
    let plan = connection
        .fetch_all(AssertSqlSafe(format!("EXPLAIN FORMAT=TRADITIONAL {sql}")))
        .await
        .unwrap();
    let text = |row: &sqlx::mysql::MySqlRow, column: &str| -> String {
        row.try_get::<Option<String>, _>(column)
            .unwrap()
            .unwrap_or_default()
    };
    let mut scans = Vec::new();
    for row in &plan {
        let (table, access, key) = (text(row, "table"), text(row, "type"), text(row, "key"));
        let is_ours = ["t", "l", "n", "r", "f", "delayline_tasks"].contains(&table.as_str());
        let is_searched = match access.as_str() {
            "const" | "eq_ref" | "ref" | "range" => !key.is_empty(),
            // MySQL reads an index of an empty table from its beginning.
            "index" => is_empty && !key.is_empty(),
            _ => false,
        };
        let extra = text(row, "Extra");
        if is_ours && !sql.starts_with("INSERT") && (!is_searched || extra.contains("filesort")) {
            scans.push(format!("{table} {access} {key} {extra}"));
        }
    }
    scans
}

/// Every statement, with a name.
fn all(sql: &Sql) -> Vec<(&'static str, String)> {
    let mut all: Vec<_> = sql
        .all()
        .into_iter()
        .map(|(name, sql)| (name, sql.to_owned()))
        .collect();
    for columns in [Columns::All, Columns::Lean] {
        let text = |range| ranges::text(&sql.table, &[range], columns, 2);
        all.extend(forms().map(|range| ("range", text(range))));
    }
    for width in [1, 2, 500] {
        all.push(("claim", claim::take_text(&sql.table, width)));
    }
    all.extend([false, true].map(|has_texts| ("each", write::each("", &sql.table, has_texts))));
    all
}

#[tokio::test]
async fn no_statement_reads_the_table_from_end_to_end() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.foreign().await;
    assert_ne!(
        scans(&mut connection, "SELECT * FROM delayline_tasks t", true).await,
        [""; 0]
    );
    for stage in ["empty", "filled", "analyzed"] {
        match stage {
            "filled" => fill(&mut connection).await,
            "analyzed" => run(&mut connection, "ANALYZE TABLE delayline_tasks").await,
            _ => {}
        }
        for (name, sql) in all(&fixture.store.server.sql) {
            let scans = scans(&mut connection, &sql, stage == "empty").await;
            assert_eq!(scans, [""; 0], "{name}, {stage}");
        }
    }
}

/// How many rows and index entries a store of one connection has read.
async fn reads(store: &MySqlStore) -> u64 {
    let mut lent = store.server.pools.workers.lend().await.unwrap();
    let rows = lent
        .fetch_all("SHOW SESSION STATUS LIKE 'Handler_read%'")
        .await
        .unwrap();
    lent.give_back();
    let count = |row: &sqlx::mysql::MySqlRow| row.get::<String, _>(1).parse::<u64>().unwrap();
    rows.iter().map(count).sum()
}

#[tokio::test]
async fn no_call_reads_more_than_it_needs() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.foreign().await;
    fill(&mut connection).await;
    let builder = MySqlStore::builder(fixture.url.parse().unwrap());
    let store = builder.connections(1).connect().await.unwrap();
    let ahead = Ahead {
        within: Duration::from_secs(400 * 365 * 24 * 3_600),
        limit: 10,
    };
    let sweep = |ahead| Sweep {
        limit: 10,
        retake: LEASE,
        ahead,
    };
    let page = Page {
        after: Some((crate::Timestamp::from_millis(9_000_000_050_000), id(7))),
        ..Page::new("k1", State::Done).limit(10)
    };
    for is_analyzed in [false, true] {
        // Which kinds there are is learned once.
        store.sweep(&of_claim(9), &sweep(None)).await.unwrap();
        store.purge(9).await.unwrap();
        let mut before = reads(&store).await;
        let calls: [(&str, Call<'_>); 7] = [
            (
                "sweep",
                Box::pin(async { drop(store.sweep(&of_claim(9), &sweep(None)).await.unwrap()) }),
            ),
            (
                "ahead",
                Box::pin(async { drop(store.sweep(&of_claim(9), &sweep(Some(ahead))).await.unwrap()) }),
            ),
            (
                "purge",
                Box::pin(async { assert_eq!(store.purge(9).await.unwrap(), 0) }),
            ),
            (
                "ready",
                Box::pin(async { assert_eq!(store.ready(&of_claim(9)).await.unwrap().found, []) }),
            ),
            (
                "list",
                Box::pin(async { assert_eq!(store.list(&page).await.unwrap().len(), 10) }),
            ),
            (
                "due within",
                Box::pin(async {
                    let spans = [ahead.within; 8];
                    let counted = store.due_within(&"k1".into(), State::Scheduled, &spans, 10).await;
                    assert_eq!(counted.unwrap().found, [10; 8]);
                }),
            ),
            (
                "find",
                Box::pin(async { drop(store.find(&Target::from(("k1", "key 1"))).await.unwrap()) }),
            ),
        ];
        for (name, call) in calls {
            call.await;
            let after = reads(&store).await;
            assert!(
                after - before < 500,
                "{name}, analyzed: {is_analyzed}: {} reads",
                after - before
            );
            before = after;
        }
        run(&mut connection, "ANALYZE TABLE delayline_tasks").await;
    }
}
