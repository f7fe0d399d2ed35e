//! On servers that are there.

use sqlx::AssertSqlSafe;

use super::*;
use crate::database::Database;

/// Does what a person does with the SQL.
async fn apply(database: Database, url: &str, sql: String) {
    let sql = sqlx::raw_sql(AssertSqlSafe(sql));
    match database {
        #[cfg(feature = "postgres")]
        Database::Postgres => drop(
            sql.execute(&sqlx::PgPool::connect(url).await.unwrap())
                .await
                .unwrap(),
        ),
        #[cfg(feature = "mysql")]
        Database::MariaDb => drop(
            sql.execute(&sqlx::MySqlPool::connect(url).await.unwrap())
                .await
                .unwrap(),
        ),
        #[allow(unreachable_patterns)]
        other => unreachable!("the feature of {other:?} is on where its tests are"),
    }
}

/// Makes the tables by the SQL that is printed, and by the tool, under the names that `options` give.
async fn makes_the_tables(database: Database, name: &str, options: &[&str], before: &[&str]) {
    let by_hand = database.fresh().await;
    let by_tool = database.fresh().await;
    for url in [&by_hand, &by_tool] {
        for &sql in before {
            apply(database, url, sql.to_owned()).await;
        }
        let check = [&[name, "--check", "--store", url], options].concat();
        let line = fails(&check, None, 1);
        assert!(line.contains("is not there"), "{line}");
        for remedy in [
            format!("`delayline migrate {name}`"),
            format!("`delayline migrate {name} --print`"),
        ] {
            assert!(line.contains(&remedy), "{line}");
        }
    }

    let sql = done(&[&[name, "--print"], options].concat());
    apply(database, &by_hand, sql).await;
    let migrate = [&[name, "--store", &by_tool], options].concat();
    assert_eq!([done(&migrate), done(&migrate)], [MADE, MADE]);
    for url in [&by_hand, &by_tool] {
        assert_eq!(
            done(&[&[name, "--check", "--store", url], options].concat()),
            CHECKED
        );
        if !options.is_empty() {
            // The tables of the usual name are not there: only the named ones were made.
            fails(&[name, "--check", "--store", url], None, 1);
        }
    }
    // What was made by hand is found to be so, too.
    assert_eq!(done(&[&[name, "--store", &by_hand], options].concat()), MADE);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn postgres_gets_its_tables_by_hand_and_by_the_tool() {
    makes_the_tables(Database::Postgres, "postgres", &[], &[]).await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn mysql_gets_its_tables_by_hand_and_by_the_tool() {
    makes_the_tables(Database::MariaDb, "mysql", &[], &[]).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn the_names_of_schema_and_table_are_those_that_were_asked_for() {
    let schema = ["CREATE SCHEMA shop"];
    let options = ["--schema", "shop", "--table", "later"];
    makes_the_tables(Database::Postgres, "postgres", &options, &schema).await;
    makes_the_tables(Database::Postgres, "postgres", &options[..2], &schema).await;
    makes_the_tables(Database::Postgres, "postgres", &options[2..], &[]).await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn the_name_of_the_table_is_the_one_that_was_asked_for() {
    makes_the_tables(Database::MariaDb, "mysql", &["--table", "later"], &[]).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_schema_that_is_not_there_is_not_made() {
    let url = Database::Postgres.fresh().await;
    let line = fails(&["postgres", "--store", &url, "--schema", "shop"], None, 1);
    assert!(line.contains("shop"), "{line}");
}

#[tokio::test]
async fn the_url_may_come_from_the_environment() {
    for (database, name) in [
        #[cfg(feature = "postgres")]
        (Database::Postgres, "postgres"),
        #[cfg(feature = "mysql")]
        (Database::MariaDb, "mysql"),
    ] {
        let (here, elsewhere) = (database.fresh().await, database.fresh().await);
        assert_eq!(
            ended(&[name], Some(&here)),
            (Some(0), MADE.to_owned(), String::new())
        );
        assert_eq!(done(&[name, "--check", "--store", &here]), CHECKED);
        // What is said on the command line goes first.
        let (status, ..) = ended(&[name, "--check", "--store", &elsewhere], Some(&here));
        assert_eq!(status, Some(1));
    }
}

#[tokio::test]
async fn a_password_that_is_refused_is_not_shown() {
    for (database, name) in [
        #[cfg(feature = "postgres")]
        (Database::Postgres, "postgres"),
        #[cfg(feature = "mysql")]
        (Database::MariaDb, "mysql"),
    ] {
        let url = database.fresh().await;
        let (scheme, rest) = url.split_once("://").unwrap();
        let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
        let url = format!("{scheme}://unknown:hunter2@{place}");
        let line = fails(&[name, "--store", &url], None, 1);
        assert!(!line.contains("hunter2"), "{line}");
    }
}
