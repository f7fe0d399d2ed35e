//! A blog whose posts are published at their time: each verb in one transaction with the post's row.
//!
//! With no server at all, in a few seconds:
//!
//! ```sh
//! cargo run --example blog_publish
//! ```
//!
//! In the blog's own PostgreSQL, MySQL or MariaDB, with the same code:
//!
//! ```sh
//! cargo run --example blog_publish --features postgres -- --postgres postgres://localhost/blog
//! cargo run --example blog_publish --features mysql -- --mysql mysql://root@localhost/blog
//! ```
//!
//! The tables `blog_posts` and `delayline_tasks` are made if they are not there.

mod blog;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use delayline::{State, Timestamp};
use tracing::info;
use tracing_subscriber::EnvFilter;

use crate::blog::Posts;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Publishes some posts of a blog, each at its time, moves others about, and waits until all is done.
#[derive(Debug, Parser)]
#[command(name = "blog_publish")]
struct Options {
    /// Keep posts and tasks in this PostgreSQL database.
    #[arg(long, value_name = "URL", conflicts_with = "mysql")]
    postgres: Option<String>,

    /// Keep posts and tasks in this MySQL or MariaDB database.
    #[arg(long, value_name = "URL")]
    mysql: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let shown = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(shown)
        .with_target(false)
        .with_timer(tracing_subscriber::fmt::time::uptime())
        .with_ansi(std::io::stdout().is_terminal())
        .init();
    match run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("blog_publish: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), Error> {
    match options {
        #[cfg(feature = "postgres")]
        Options {
            postgres: Some(url), ..
        } => morning(blog::postgres::Blog::open(&url).await?).await,
        #[cfg(feature = "mysql")]
        Options { mysql: Some(url), .. } => morning(blog::mysql::Blog::open(&url).await?).await,
        Options {
            postgres: None,
            mysql: None,
        } => {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("blog.db");
            morning(blog::sqlite::Blog::open(&file.to_string_lossy()).await?).await
        }
        #[cfg(not(feature = "postgres"))]
        Options {
            postgres: Some(_), ..
        } => Err("--postgres needs the feature: --features postgres".into()),
        #[cfg(not(feature = "mysql"))]
        Options { mysql: Some(_), .. } => Err("--mysql needs the feature: --features mysql".into()),
    }
}

/// A morning at the blog, in a few seconds.
async fn morning(blog: impl Posts) -> Result<(), Error> {
    let seconds = Duration::from_secs;
    let now = blog.now().await?;
    let working = blog.work();

    let first = blog.write("Good morning").await?;
    blog.publish_at(first, now.after(seconds(2))).await?;

    // A calendar time; far away, but each of its wake-ups checks the post.
    let later = blog.write("Happy new year").await?;
    blog.publish_at(later, "2100-01-01T08:00:00+01:00".parse::<Timestamp>()?)
        .await?;
    info!(post = later, "no, now");
    blog.publish_now(later).await?;

    let moved = blog.write("Lunch menu").await?;
    blog.publish_at(moved, now.after(seconds(3_600))).await?;
    info!(post = moved, "no, sooner");
    blog.publish_at(moved, now.after(seconds(3))).await?;

    let draft = blog.write("Half a thought").await?;
    blog.publish_at(draft, now.after(seconds(3_600))).await?;
    info!(post = draft, "back to draft");
    blog.back_to_draft(draft).await?;

    let by_hand = blog.write("The editor's whim").await?;
    blog.publish_at(by_hand, now.after(seconds(3_600))).await?;
    info!(post = by_hand, "an UPDATE by hand, and no call to the library");
    blog.update_by_hand(by_hand, now.after(seconds(4))).await?;

    // A failure between the post and the commit: neither of the two happens.
    let unlucky = blog.write("Never to be").await?;
    blog.publish_at_and_fail(unlucky, now.after(seconds(1))).await?;

    for post in [later, first, moved, by_hand] {
        blog.published(post).await?;
    }
    for post in [draft, unlucky] {
        let task = blog.task(post).await?;
        let is_waiting = task.is_some_and(|task| task.state != State::Cancelled);
        if is_waiting || blog.is_published(post).await? {
            return Err(format!("post {post} was not to be published").into());
        }
    }
    working.stop().await?;
    info!("four posts are out, two are drafts");
    Ok(())
}
