//! Servers whose settings are made for something else, and poolers: what the stores promise holds there, too.

use std::sync::atomic::{AtomicUsize, Ordering};

use delayline::store::{MySqlStore, NewRow, PostgresStore, When};
use delayline::testing::store::cases;
use delayline::{TaskId, store};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection};
use tempfile::TempDir;

use super::*;
use crate::database::{Database, Server};
use crate::hostile_settings;
use crate::pgbouncer::PgBouncer;

/// Stores in tables of one database, however a URL leads there.
#[derive(Debug)]
struct Tables {
    url: String,
    database: Database,
    count: AtomicUsize,
}

impl Tables {
    fn new(database: Database, url: String) -> Self {
        Self {
            url,
            database,
            count: AtomicUsize::new(0),
        }
    }

    async fn open(&self, table: &str, history: Duration) -> Arc<dyn Store> {
        match self.database {
            Database::Postgres => {
                let store = PostgresStore::builder(self.url.parse().unwrap());
                let store = store.schema("public").table(table).keep_history(history);
                let store = store.connect().await.unwrap();
                store.migrate().await.unwrap();
                Arc::new(store)
            }
            Database::MariaDb => {
                let store = MySqlStore::builder(self.url.parse().unwrap());
                let store = store.table(table).keep_history(history);
                let store = store.connect().await.unwrap();
                store.migrate().await.unwrap();
                Arc::new(store)
            }
        }
    }

    /// What is acknowledged is there for another process, and for the next one.
    async fn keep_what_they_acknowledge(&self) {
        let store = self.open("kept", Duration::from_secs(600)).await;
        let row = NewRow {
            id: TaskId::from_bytes([7; 16]),
            kind: "k".into(),
            key: Some("a".into()),
            payload: b"\\'\" \0".to_vec(),
            headers: [("name".to_owned(), "a \\ b".to_owned())].into(),
            due: When::After(Duration::from_secs(60)),
            overdue_after: Duration::from_secs(60),
            max_attempts: None,
            replace: false,
            note: Default::default(),
        };
        let target = store::Target::Id(row.id);
        assert!(store.insert(vec![row]).await.unwrap().found.remove(0).is_ok());
        let written = store.find(&target).await.unwrap();
        drop(store);
        let another = self.open("kept", Duration::from_secs(600)).await;
        let found = another.find(&target).await.unwrap();
        assert!(found.is_some());
        assert_eq!(found, written);
    }
}

#[async_trait]
impl StoreFixture for Tables {
    async fn store(&self, history: Duration) -> Arc<dyn Store> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        self.open(&format!("tasks_{number}"), history).await
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// Those cases of the contract that need most of a server.
async fn main_cases(tables: &Tables) {
    tables.keep_what_they_acknowledge().await;
    cases::every_value_comes_back_as_it_was(tables).await;
    cases::a_calendar_time_is_kept_to_the_millisecond(tables).await;
    cases::a_key_twice_in_a_batch_is_one_row(tables).await;
    cases::a_scheduled_key_is_replaced_where_asked(tables).await;
    cases::a_big_batch_is_taken(tables).await;
    cases::a_scheduled_row_takes_every_verb_for_live_rows(tables).await;
    cases::changes_of_one_row_apply_in_the_order_given(tables).await;
    cases::a_mixed_batch_tells_each_apart(tables).await;
    cases::a_hop_moves_the_row_on(tables).await;
    cases::the_longest_due_come_first(tables).await;
    cases::an_ended_lease_makes_the_row_scheduled_again(tables).await;
    cases::a_sweep_looks_ahead_where_asked(tables).await;
    cases::a_retry_keeps_its_attempt_and_its_plan(tables).await;
    cases::settlements_are_answered_in_the_order_given(tables).await;
    cases::a_renewal_moves_the_end_of_the_lease_and_nothing_else(tables).await;
    cases::a_list_goes_on_after_its_last_row(tables).await;
    cases::kinds_are_those_that_have_rows_in_the_state(tables).await;
    cases::rows_are_counted_within_each_span(tables).await;
    cases::every_answer_is_of_the_time_of_its_call(tables).await;
    cases::history_is_removed_when_its_time_has_passed(tables).await;
    cases::every_transition_is_noted_in_its_order(tables).await;
    cases::a_wake_that_arrives_everywhere_claims_once(tables).await;
    cases::a_key_that_is_inserted_everywhere_is_one_row(tables).await;
    cases::a_row_is_cancelled_or_claimed_and_never_both(tables).await;
    cases::every_transition_adds_one_to_the_version(tables).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_contract_holds_whatever_a_database_of_postgresql_is_set_to() {
    let url = Database::Postgres.fresh().await;
    let mut owner = PgConnection::connect(&url).await.unwrap();
    let own = [
        "default_transaction_isolation = serializable",
        "default_transaction_read_only = on",
        "synchronous_commit = off",
        "statement_timeout = '1s'",
        "lock_timeout = '1ms'",
        "idle_in_transaction_session_timeout = '1s'",
        "search_path = nowhere",
        "array_nulls = off",
        "enable_indexonlyscan = off",
        "enable_nestloop = off",
        "join_collapse_limit = 1",
    ];
    for setting in hostile_settings::POSTGRES.into_iter().chain(own) {
        let set = format!(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET {}', current_database()); END $$",
            setting.replace('\'', "''")
        );
        owner.execute(AssertSqlSafe(set)).await.unwrap();
    }
    main_cases(&Tables::new(Database::Postgres, url)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_contract_holds_whatever_a_server_of_mariadb_is_set_to() {
    let own = [
        "--transaction-read-only=ON",
        "--max-join-size=1",
        "--init-connect=SET autocommit = 0, completion_type = 2, sql_safe_updates = 1, sql_select_limit = 1, \
         unique_checks = 0, sql_auto_is_null = 1, max_join_size = 1",
    ];
    let settings = hostile_settings::MARIADB
        .into_iter()
        .chain(own)
        .map(str::to_owned)
        .collect();
    let server = Server::start_in_with(TempDir::new().unwrap(), Database::MariaDb, settings);
    // They are what a session without settings of its own has.
    let mut plain = MySqlConnection::connect(&server.url()).await.unwrap();
    let hostile: bool = sqlx::query_scalar("SELECT @@autocommit = 0 AND @@sql_safe_updates = 1")
        .fetch_one(&mut plain)
        .await
        .unwrap();
    assert!(hostile);
    main_cases(&Tables::new(Database::MariaDb, server.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_contract_holds_behind_a_pooler_of_transactions() {
    let url = Database::Postgres.fresh().await;
    let pooler = PgBouncer::start("transaction", &url);
    main_cases(&Tables::new(Database::Postgres, pooler.url())).await;
    // The next client of the connections finds them as they were.
    for _ in 0..8 {
        let mut other = PgConnection::connect_with(&pooler.options()).await.unwrap();
        let left = "SELECT string_agg(name, ', ') FROM pg_settings WHERE source = 'session'
            AND name NOT IN ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings')";
        let left: Option<String> = sqlx::query_scalar(left)
            .persistent(false)
            .fetch_one(&mut other)
            .await
            .unwrap();
        assert_eq!(left, None);
    }
}

#[tokio::test]
async fn a_pooler_of_sessions_is_no_matter() {
    let url = Database::Postgres.fresh().await;
    let pooler = PgBouncer::start("session", &url);
    let tables = Tables::new(Database::Postgres, pooler.url());
    tables.keep_what_they_acknowledge().await;
}
