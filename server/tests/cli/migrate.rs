//! `delayline migrate`, on databases that are there.

use super::*;

/// What the tool says when it is run without a `DATABASE_URL` of the machine's; but for the warning that servers of tests
/// have no TLS.
fn ended(arguments: &[&str], environment: Option<&str>) -> (Option<i32>, String, String) {
    let mut command = tool(&[&["migrate"], arguments].concat());
    command
        .env_remove("DATABASE_URL")
        .envs(environment.map(|url| ("DATABASE_URL", url)));
    let output = command.output().unwrap();
    let [said, complained] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    let is_warning =
        |line: &&str| line.starts_with("delayline: warning: the database is spoken to in plaintext");
    let complained = complained
        .split_inclusive('\n')
        .filter(|line| !is_warning(line))
        .collect();
    (output.status.code(), said, complained)
}

/// What it prints when all is well.
#[track_caller]
fn done(arguments: &[&str]) -> String {
    let (status, said, complained) = ended(arguments, None);
    assert_eq!((status, complained.as_str()), (Some(0), ""), "{arguments:?}");
    said
}

/// The one line that it says when it fails with `status`.
#[track_caller]
fn fails(arguments: &[&str], environment: Option<&str>, status: i32) -> String {
    let (ended, said, line) = ended(arguments, environment);
    assert_eq!(
        (ended, said.as_str()),
        (Some(status), ""),
        "{arguments:?}: {line}"
    );
    let line = line.strip_suffix('\n').unwrap();
    assert!(!line.contains(char::is_control), "{line:?}");
    line.strip_prefix("delayline: ").unwrap().to_owned()
}

const MADE: &str = "the tables are now what this release needs\n";
#[cfg(any(feature = "postgres", feature = "mysql"))]
const CHECKED: &str = "the tables are what this release needs\n";

/// The databases of this build, with what the URLs of each begin with.
const DATABASES: &[(&str, &str)] = &[
    #[cfg(feature = "postgres")]
    ("postgres", "postgres"),
    #[cfg(feature = "mysql")]
    ("mysql", "mysql"),
    #[cfg(feature = "sqlite")]
    ("sqlite", "sqlite"),
];

#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "migrate_servers.rs"]
mod servers;

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;

    #[tokio::test]
    async fn sqlite_gets_its_tables_by_hand_and_by_the_tool() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let by_tool = path("by tool.db");
        assert_eq!(
            [&by_tool; 2].map(|file| done(&["sqlite", "--store", file])),
            [MADE; 2]
        );

        let by_hand = path("by_hand.db");
        let options = sqlx::sqlite::SqliteConnectOptions::new()
            .filename(&by_hand)
            .create_if_missing(true);
        let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
        let sql = sqlx::AssertSqlSafe(done(&["sqlite", "--print"]));
        sqlx::raw_sql(sql).execute(&pool).await.unwrap();
        let tables = "SELECT group_concat(sql, ';') FROM sqlite_schema";
        let made: String = sqlx::query_scalar(tables).fetch_one(&pool).await.unwrap();
        assert_eq!(done(&["sqlite", "--store", &by_hand]), MADE);
        let kept: String = sqlx::query_scalar(tables).fetch_one(&pool).await.unwrap();
        assert_eq!(kept, made);
    }

    #[tokio::test]
    async fn a_file_may_be_named_as_a_url_and_in_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a b.db");
        let url = format!("sqlite://{}?mode=rwc", file.to_str().unwrap().replace(' ', "%20"));
        assert_eq!(
            ended(&["sqlite"], Some(&url)),
            (Some(0), MADE.to_owned(), String::new())
        );
        assert!(file.exists());
    }

    #[test]
    fn a_file_that_cannot_be_made_is_an_error() {
        let line = fails(&["sqlite", "--store", "/nowhere/at/all.db"], None, 1);
        assert!(line.contains("/nowhere/at/all.db"), "{line}");
    }

    #[test]
    fn what_is_not_for_sqlite_is_refused() {
        for (arguments, reason) in [
            (
                &["--check"][..],
                "--check is not for sqlite, whose tables are brought up to date when a file is opened",
            ),
            (&["--table", "later"], "--table is not for sqlite"),
            (&["--schema", "shop"], "--schema is not for sqlite"),
        ] {
            assert_eq!(fails(&[&["sqlite"], arguments].concat(), None, 2), reason);
        }
        for url in [
            "sqlite::memory:",
            "sqlite://x?mode=memory",
            "postgres://me:hunter2@localhost/shop",
        ] {
            let line = fails(&["sqlite", "--store", url], None, 2);
            assert_eq!(
                line,
                "--store is not shown, as it may hold a password: allowed is the path of a file, or sqlite://path"
            );
        }
    }
}

#[test]
fn a_database_that_is_not_known_is_refused() {
    let names: Vec<_> = DATABASES.iter().map(|(name, _)| *name).collect();
    let allowed = names.join(", ");
    assert_eq!(
        fails(&["oracle"], None, 2),
        format!("DATABASE is \"oracle\": allowed are {allowed}")
    );
}

#[test]
fn what_may_be_a_password_is_never_repeated() {
    const PASSWORD: &str = "hunter2";
    let name = DATABASES[0].0;
    // As addresses, as other tools have it, and as a shell hands over what was not quoted.
    for arguments in [
        &["postgres://me:hunter2@localhost/shop"][..],
        &["me:hunter2@localhost/shop"],
        &["hunter2@localhost"],
        &[name, "postgres://me:hunter2@localhost/shop"],
        &[name, "me:hunter2@localhost/shop"],
        &[name, "host=localhost password=hunter2"],
        &[name, "--store", "postgres://me:a", "hunter2", "b@localhost/shop"],
        &[name, "hunter2"],
        &[name, "-phunter2"],
        &[name, "-p", "hunter2"],
        &[name, "--password=hunter2"],
        &[name, "--password", "hunter2"],
        &[name, "--me:hunter2@localhost"],
        &[name, "--print=hunter2"],
        &[name, "--check=me:hunter2@localhost/shop"],
        &[name, "--store", "a", "--store", "me:hunter2@localhost/shop"],
    ] {
        let line = fails(arguments, None, 2);
        assert!(!line.contains(PASSWORD), "{arguments:?}: {line}");
        assert!(line.contains("allowed are"), "{arguments:?}: {line}");
    }
    assert!(!refused(&["me:hunter2@localhost/shop"]).contains(PASSWORD));
    let line = fails(&[name, "hunter2"], None, 2);
    assert!(
        line.starts_with(
            "an argument is not known, and not shown, as it may hold a password; allowed are <DATABASE>, --store <URL>"
        ),
        "{line}"
    );
    let names: Vec<_> = DATABASES.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        fails(&["me:hunter2@localhost/shop"], None, 2),
        format!(
            "DATABASE is not shown, as it may hold a password: allowed are {}",
            names.join(", ")
        )
    );
}

#[test]
fn a_missing_url_is_refused() {
    for (name, _) in DATABASES {
        let line = fails(&[name], None, 2);
        assert_eq!(line, "--store is missing, and DATABASE_URL is not set");
        assert_eq!(
            fails(&[name, "--store", ""], None, 2),
            "--store is empty or not UTF-8"
        );
        assert_eq!(fails(&[name], Some(""), 2), "DATABASE_URL is empty or not UTF-8");
    }
}

#[test]
fn printing_and_checking_at_once_is_refused() {
    for (name, _) in DATABASES {
        let line = fails(&[name, "--print", "--check"], None, 2);
        assert!(
            line.starts_with("the argument '--print' cannot be used with '--check'"),
            "{line}"
        );
    }
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
#[test]
fn a_bad_name_is_refused_before_anything_is_reached() {
    for (name, scheme) in DATABASES.iter().filter(|(name, _)| *name != "sqlite") {
        let url = format!("{scheme}://localhost:1/shop");
        for how in [
            &["--print"][..],
            &["--store", &url],
            &["--check", "--store", &url],
        ] {
            for table in [
                "",
                "Later",
                "1st",
                "a-b",
                "a\"; DROP TABLE x; --",
                &"x".repeat(41),
            ] {
                let line = fails(&[&[*name], how, &["--table", table]].concat(), None, 2);
                assert!(
                    line.starts_with(&format!("table is {table:?}: allowed ")),
                    "{line}"
                );
            }
        }
    }
    #[cfg(feature = "postgres")]
    {
        let line = fails(&["postgres", "--print", "--schema", "a.b"], None, 2);
        assert!(line.starts_with("schema is \"a.b\": allowed "), "{line}");
    }
}

#[cfg(feature = "mysql")]
#[test]
fn a_schema_is_not_for_mysql() {
    assert_eq!(
        fails(&["mysql", "--print", "--schema", "shop"], None, 2),
        "--schema is not for mysql"
    );
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
#[test]
fn a_url_that_cannot_be_used_is_refused_without_being_shown() {
    for (name, scheme) in DATABASES.iter().filter(|(name, _)| *name != "sqlite") {
        for url in [
            "hunter2".to_owned(),
            format!("{scheme}:hunter2"),
            format!("{scheme}://me:hunter2@localhost:port/shop"),
            format!("{scheme}://me:hun/ter2@localhost/shop"),
            format!("{scheme}://me:hunter2%ff@localhost/shop"),
            format!("{scheme}://me@localhost/shop?sslmode=hunter2"),
            "http://me:hunter2@localhost/shop".to_owned(),
        ] {
            let allowed = format!(
                "is not shown, as it may hold a password: allowed is {scheme}://user:password@host:port/database"
            );
            for check in [&[][..], &["--check"]] {
                let line = fails(&[&[*name, "--store", &url], check].concat(), None, 2);
                assert_eq!(line, format!("--store {allowed}"), "{url}");
                let line = fails(&[&[*name], check].concat(), Some(&url), 2);
                assert_eq!(line, format!("DATABASE_URL {allowed}"), "{url}");
            }
        }
    }
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
#[test]
fn a_server_that_cannot_be_reached_is_an_error_without_the_password() {
    for (name, scheme) in DATABASES.iter().filter(|(name, _)| *name != "sqlite") {
        // Nothing listens on port 1.
        let url = format!("{scheme}://me:hunter2@127.0.0.1:1/shop");
        for check in [&[][..], &["--check"]] {
            let line = fails(&[&[*name, "--store", &url], check].concat(), None, 1);
            assert!(
                line.starts_with(&format!("127.0.0.1:1: store {name}: ")) && !line.contains("hunter2"),
                "{line}"
            );
        }
    }
}
