//! The example `blog_publish`, as a user runs it, on each kind of database.

use crate::program;

/// Runs the morning, which checks its posts itself: it succeeds only if four are out and two are not.
async fn publishes_four_posts(arguments: &[&str]) {
    let said = program::said("blog_publish", arguments).await;
    let published = said.lines().filter(|line| line.contains(" INFO published "));
    assert_eq!(published.count(), 4, "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.ends_with("four posts are out, two are drafts"), "{said}");
}

#[tokio::test]
async fn four_posts_are_published_in_a_file() {
    publishes_four_posts(&[]).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn four_posts_are_published_in_postgres() {
    let url = crate::database::Database::Postgres.fresh().await;
    publishes_four_posts(&["--postgres", &url]).await;
    // Into the tables that are there.
    publishes_four_posts(&["--postgres", &url]).await;
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn four_posts_are_published_in_mariadb() {
    let url = crate::database::Database::MariaDb.fresh().await;
    publishes_four_posts(&["--mysql", &url]).await;
    publishes_four_posts(&["--mysql", &url]).await;
}

/// Fails, with one line without the password.
async fn complains(arguments: &[&str], expected: &str) {
    let output = program::run("blog_publish", arguments).await;
    let complained = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {complained}");
    assert_eq!(complained.lines().count(), 1, "{arguments:?}: {complained}");
    assert!(complained.starts_with("blog_publish: "), "{complained}");
    assert!(complained.contains(expected), "{complained}");
    assert!(!complained.contains("hunter2"), "{complained}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

#[tokio::test]
async fn a_url_that_leads_nowhere_is_an_error_without_its_password() {
    for database in ["postgres", "mysql"] {
        let option = format!("--{database}");
        if (database == "postgres" && !cfg!(feature = "postgres"))
            || (database == "mysql" && !cfg!(feature = "mysql"))
        {
            complains(&[&option, "anything"], &format!("--features {database}")).await;
            continue;
        }
        let allowed = format!("allowed is {database}://user:password@host:port/database");
        // No process listens on port 1.
        complains(
            &[&option, &format!("{database}://me:hunter2@127.0.0.1:1/blog")],
            "Connection refused",
        )
        .await;
        complains(
            &[&option, &format!("{database}://me:hunter2@127.0.0.1:port/blog")],
            &allowed,
        )
        .await;
        complains(&[&option, "http://me:hunter2@127.0.0.1/blog"], &allowed).await;
    }
}
