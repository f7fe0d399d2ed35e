//! How PostgreSQL goes about each statement.

use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::{Fixture, PostgresStore, due_rows, run};
use crate::State;
use crate::store::Ahead;
use crate::store::postgres::range::Ranges;
use crate::store::sql::Value as OfRange;
use crate::store::sql::tests::each::Each;
use crate::store::sql::tests::forms::ranges;
use crate::store::table::{By, Columns, Range, Start};

/// 100,000 rows: half of them finished and kept, a quarter waits for room, a quarter is due later.
const FILL: &str = "
    INSERT INTO delayline_tasks (id, kind, key, state, version, due_at, planned_at, wake_at, attempt, started, stalls, hop,
        created_at, updated_at, headers, payload)
    SELECT gen_random_uuid(), 'k' || n % 3, CASE WHEN n % 2 = 0 THEN 'key ' || n END,
        CASE WHEN n % 4 < 2 THEN 2 ELSE 0 END, 1, at, at, at, 0, false, 0, 0, 0, 0, '{}', '\\x00'
    FROM (SELECT n, CASE WHEN n % 4 = 2 THEN n ELSE 4000000000000 + n END AS at FROM generate_series(1, 100000) n) rows";

/// As many rows in a table whose statistics are of a moment at which all was done.
async fn fill_again(connection: &mut PgConnection) {
    for sql in [
        "ALTER TABLE delayline_tasks SET (autovacuum_enabled = off)",
        "UPDATE delayline_tasks SET state = 2",
        "VACUUM ANALYZE delayline_tasks",
        FILL,
    ] {
        run(connection, sql).await;
    }
}

/// The statistics of a moment at which nearly all of many tasks was done, of many kinds: the index of live keys is large
/// and nearly empty.
async fn nearly_done(connection: &mut PgConnection) {
    let of_many_kinds =
        "UPDATE delayline_tasks SET state = 0, kind = 'k' || abs(hashtext(id::text)) % 50, key = id::text";
    let most = "UPDATE delayline_tasks SET state = 2 WHERE id <> ALL(SELECT id FROM delayline_tasks ORDER BY id LIMIT 20)";
    for sql in [of_many_kinds, most, "VACUUM ANALYZE delayline_tasks"] {
        run(connection, sql).await;
    }
}

/// A prepared statement called `s`, and that many NULLs for its parameters.
async fn prepare(connection: &mut PgConnection, sql: &str) -> String {
    run(connection, &format!("DEALLOCATE ALL; PREPARE s AS {sql}")).await;
    let count: i32 = sqlx::query_scalar(
        "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 's'",
    )
    .persistent(false)
    .fetch_one(connection)
    .await
    .unwrap();
    vec!["NULL"; usize::try_from(count).unwrap()].join(", ")
}

/// The nodes of the plan by which `s` is executed that touch the table.
async fn nodes(connection: &mut PgConnection, options: &str, values: &str) -> Vec<Value> {
    let values = if values.is_empty() {
        String::new()
    } else {
        format!("({values})")
    };
    let explain = format!("EXPLAIN (FORMAT JSON{options}) EXECUTE s{values}");
    let row = sqlx::raw_sql(AssertSqlSafe(explain))
        .fetch_one(connection)
        .await
        .unwrap();
    let plan: Value = serde_json::from_str(&row.get_unchecked::<String, _>(0)).unwrap();
    let mut found = Vec::new();
    let mut left = vec![plan[0]["Plan"].clone()];
    while let Some(node) = left.pop() {
        left.extend(node["Plans"].as_array().into_iter().flatten().cloned());
        if node["Relation Name"] == "delayline_tasks" && node["Node Type"] != "ModifyTable" {
            found.push(node);
        }
    }
    found
}

/// Whether a node of a statement finds rows by what names them, or goes through those of a kind where that is asked for.
fn is_search(name: &str, node: &Value) -> bool {
    const OF_KINDS: [&str; 5] = ["claim_due", "range", "kinds", "count", "remove"];
    let sought = match node["Node Type"].as_str() {
        Some("Index Scan" | "Index Only Scan") => &node["Index Cond"],
        Some("Bitmap Heap Scan") => &node["Recheck Cond"],
        _ => return false,
    };
    let sought = sought.as_str().unwrap_or_default();
    sought.contains("(id = ")
        || sought.contains("(key = ")
        || OF_KINDS.contains(&name) && sought.contains("kind")
}

/// Every statement, with a name.
fn all(store: &PostgresStore) -> Vec<(&'static str, String)> {
    let statements = store.database.statements.all();
    let mut all: Vec<_> = statements
        .into_iter()
        .map(|(name, sql)| (name, sql.to_owned()))
        .collect();
    for columns in [Columns::All, Columns::Lean] {
        let of_range = |range| ("range", Ranges::of(&store.database.names, &[range], columns).text);
        all.extend(ranges().map(of_range));
    }
    all.push(("range", of_sweep(store).0));
    all
}

/// What a sweep looks at; its values are of 100 rows each, a second and two.
fn of_sweep(store: &PostgresStore) -> (String, String) {
    let upcoming = Range {
        by: By::Due,
        from: Start::Ago(Ahead::SINCE),
        within: Some(std::time::Duration::from_secs(2)),
        ..Range::overdue(State::Scheduled, 100)
    };
    let overdue = [State::Running, State::Scheduled].map(|state| Range::overdue(state, 100));
    of_ranges(store, &[&overdue[..], &[upcoming]].concat(), Columns::Lean)
}

/// The statement of ranges, and its values as text.
fn of_ranges(store: &PostgresStore, ranges: &[Range], columns: Columns) -> (String, String) {
    let Ranges { text, values } = Ranges::of(&store.database.names, ranges, columns);
    let values = values.iter().map(|value| match value {
        OfRange::Int(number) => number.to_string(),
        OfRange::Text(kind) => format!("'{kind}'"),
        other => panic!("{other:?}"),
    });
    (text, values.collect::<Vec<_>>().join(", "))
}

/// A page of a list.
fn of_list(store: &PostgresStore, kind: &str, state: State) -> (String, String) {
    let page = Range {
        by: By::Due,
        kind: Some(kind.into()),
        within: None,
        ..Range::overdue(state, 100)
    };
    of_ranges(store, &[page], Columns::All)
}

#[tokio::test]
async fn no_statement_reads_the_table_but_by_a_search_in_an_index() {
    let fixture = Fixture::new().await;
    let database = &fixture.store.database;
    let mut other = fixture.foreign().await;
    for stage in ["empty", "few", "full", "analyzed", "full again", "nearly done"] {
        match stage {
            // The statistics of few rows, all of one kind and state, are those that mislead a planner most.
            "few" => {
                fixture.store.insert_all(due_rows(0..20)).await.unwrap();
                run(&mut other, "VACUUM ANALYZE delayline_tasks").await;
            }
            "full" => run(&mut other, FILL).await,
            "analyzed" => run(&mut other, "ANALYZE delayline_tasks").await,
            "full again" => fill_again(&mut other).await,
            "nearly done" => nearly_done(&mut other).await,
            _ => {}
        }
        let mut own = database.pools.callers.lend().await.unwrap();
        for (name, sql) in all(&fixture.store) {
            let nulls = prepare(&mut own, &sql).await;
            for node in nodes(&mut own, "", &nulls).await {
                assert!(is_search(name, &node), "{name}, {stage}: {node:#}");
            }
        }
        drop(own);
        // Those that run on a connection of the service, with its settings. A table of a few pages may be read.
        if ["empty", "few"].contains(&stage) {
            continue;
        }
        run(&mut other, "SET plan_cache_mode = force_generic_plan").await;
        let joined = [
            "add",
            "write_held",
            "same",
            "hold_ids",
            "hold_keys",
            "by_ids",
            "by_keys",
            "by_ids_lean",
            "by_keys_lean",
        ];
        let all = database.statements.all();
        for (name, sql) in all.iter().filter(|(name, _)| joined.contains(name)) {
            let nulls = prepare(&mut other, sql).await;
            for node in nodes(&mut other, "", &nulls).await {
                assert!(is_search(name, &node), "{name}, {stage}, joined: {node:#}");
            }
        }
    }
}

/// How many rows of the table the plan of `s` reads for some values.
async fn rows_read(connection: &mut PgConnection, values: &str) -> f64 {
    let number = |node: &Value, name: &str| node[name].as_f64().unwrap_or(0.0);
    let nodes = nodes(connection, ", ANALYZE", values).await;
    let read = nodes.iter().map(|node| {
        let rows = number(node, "Actual Rows") + number(node, "Rows Removed by Filter");
        rows * number(node, "Actual Loops")
    });
    read.sum()
}

#[tokio::test]
async fn of_a_burst_into_a_new_table_no_more_is_read_than_is_taken() {
    let fixture = Fixture::new().await;
    let statements = &fixture.store.database.statements;
    let mut other = fixture.foreign().await;
    // No statistics have been gathered yet, or they were when there was nothing.
    run(
        &mut other,
        "ALTER TABLE delayline_tasks SET (autovacuum_enabled = off)",
    )
    .await;
    run(&mut other, &FILL.replace("100000)", "20000)")).await;
    let due = "UPDATE delayline_tasks SET state = 0, kind = 'k', due_at = 1, wake_at = 4000000000000";
    run(&mut other, due).await;
    let mut own = fixture.store.database.pools.callers.lend().await.unwrap();
    let (sweep, of_sweep) = of_sweep(&fixture.store);
    let (list, of_list) = of_list(&fixture.store, "k", State::Scheduled);
    for (name, sql, values) in [
        ("list", &*list, &*of_list),
        (
            "count",
            statements.count.as_str(),
            "'k', 0::smallint, '{5000}', 100",
        ),
        ("sweep", &*sweep, &*of_sweep),
        (
            "claim_due",
            statements.claim_due.as_str(),
            "'{k}', '{100}', 'me', 30000, 1000000, NULL",
        ),
    ] {
        prepare(&mut own, sql).await;
        let read = rows_read(&mut own, values).await;
        // What is claimed is read once to be locked and once to be written.
        assert!(read <= 200.0, "{name}: {read} rows");
    }
}

#[tokio::test]
async fn what_runs_all_the_time_reads_few_rows() {
    let fixture = Fixture::new().await;
    let statements = &fixture.store.database.statements;
    let mut other = fixture.foreign().await;
    run(&mut other, FILL).await;
    for stage in ["full", "analyzed", "full again", "nearly done"] {
        match stage {
            "analyzed" => run(&mut other, "ANALYZE delayline_tasks").await,
            "full again" => fill_again(&mut other).await,
            "nearly done" => {
                nearly_done(&mut other).await;
                run(&mut other, FILL).await;
            }
            _ => {}
        }
        let mut own = fixture.store.database.pools.callers.lend().await.unwrap();
        let (sweep, of_sweep) = of_sweep(&fixture.store);
        let (list, of_list) = of_list(&fixture.store, "k1", State::Done);
        for (name, sql, values) in [
            ("sweep", &*sweep, &*of_sweep),
            (
                "claim_due",
                statements.claim_due.as_str(),
                "'{k0,k1}', '{5,5}', 'me', 30000, 1000000, NULL",
            ),
            (
                "remove",
                statements.remove.as_str(),
                "'{2,4}', 100, 2::smallint, 4::smallint",
            ),
            ("list", &*list, &*of_list),
            (
                "count",
                statements.count.as_str(),
                "'k1', 0::smallint, '{5000, 86400000}', 100",
            ),
        ] {
            prepare(&mut own, sql).await;
            let read = rows_read(&mut own, values).await;
            // Up to 100 of each kind, each looked at, ahead, and jumped to.
            let kinds = if stage == "nearly done" { 53.0 } else { 3.0 };
            assert!(read <= 240.0 * kinds, "{name}, {stage}: {read} rows");
        }
        drop(own);
    }
}
