//! Which task, and which store, a command is about.

use std::path::Path;

use super::*;

#[test]
fn what_names_no_task_or_no_store_is_refused() {
    const ID: &str = "01a206e5-bc4a-79c8-ab58-4c5bb7cf652e";
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.db");
    let missing = missing.to_str().unwrap();
    for (arguments, said) in [
        (
            &["tasks", "cancel"][..],
            "no task is named: allowed are KIND and KEY",
        ),
        (&["tasks", "cancel", "k"], "KIND and --all"),
        (
            &["tasks", "cancel", "k", "1", "--all"],
            "'[KEY]' cannot be used with '--all'",
        ),
        (
            &["tasks", "run", "--all", "--id", ID],
            "'--all' cannot be used with '--id <UUID>'",
        ),
        (&["tasks", "cancel", "k", "1", "--key-prefix", "x"], "without KEY"),
        (&["tasks", "cancel", "k", "--dry-run"], "--all"),
        (
            &["tasks", "shift", "k", "1", "--by", "10m"],
            "a sign and a time span",
        ),
        (
            &["tasks", "reschedule", "k", "1"],
            "no time is given: allowed is one of --at and --after",
        ),
        (
            &["tasks", "list", "k", "--state", "late"],
            "scheduled, running, done, dead",
        ),
        // A key, and no option.
        (&["tasks", "show", "k", "-1"], "a file that is there"),
        (&["tasks", "list", "k"], "a file that is there"),
        (&["forecast"], "a file that is there"),
        (&["forecast", "k", "--within", "2h"], "--within"),
    ] {
        let line = refused(&[arguments, &["--store", missing]].concat());
        assert!(line.contains(said), "{arguments:?}: {line}");
    }
    assert!(!Path::new(missing).exists());
}

#[tokio::test]
async fn a_file_without_tables_of_ours_is_left_as_it_is() {
    use sqlx::{ConnectOptions as _, Connection as _};

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&file);
    let mut other = options.create_if_missing(true).connect().await.unwrap();
    sqlx::raw_sql("CREATE TABLE mine (a)")
        .execute(&mut other)
        .await
        .unwrap();
    other.close().await.unwrap();
    let before = std::fs::read(&file).unwrap();
    let name = file.to_str().unwrap();
    let line = refused(&["tasks", "list", "k", "--store", name]);
    assert_eq!(
        line,
        format!(
            "--store is {name:?}: allowed is a file with Delayline's tables, which delayline migrate sqlite makes"
        )
    );
    assert!(std::fs::read(&file).unwrap() == before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
