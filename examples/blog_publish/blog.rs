//! The blog: posts in a table of its own, beside the tasks, in any of the databases.

use std::time::Duration;

use delayline::{Scheduler, Task, Timestamp, Worker};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Error;

/// Binds a task to its handler. It is stored with each task, so it must stay the same from release to release.
const PUBLISH: &str = "post.publish";

/// How soon an `UPDATE` by hand that makes a post earlier is noticed. A blog would keep the default of 5 minutes.
const SEEN_WITHIN: Duration = Duration::from_secs(1);

/// What the rest of the blog does with posts. Each verb is one transaction.
pub(crate) trait Posts {
    async fn now(&self) -> Result<Timestamp, Error>;
    async fn write(&self, title: &str) -> Result<i64, Error>;
    async fn publish_at(&self, post: i64, time: Timestamp) -> Result<(), Error>;
    async fn publish_at_and_fail(&self, post: i64, time: Timestamp) -> Result<(), Error>;
    async fn publish_now(&self, post: i64) -> Result<(), Error>;
    async fn back_to_draft(&self, post: i64) -> Result<(), Error>;
    async fn update_by_hand(&self, post: i64, time: Timestamp) -> Result<(), Error>;
    async fn is_published(&self, post: i64) -> Result<bool, Error>;
    async fn task(&self, post: i64) -> Result<Option<Task>, Error>;
    fn work(&self) -> Working;

    /// Waits until a post is out.
    async fn published(&self, post: i64) -> Result<(), Error> {
        while !self.is_published(post).await? {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

/// A worker in the background.
pub(crate) struct Working {
    stop: oneshot::Sender<()>,
    worker: JoinHandle<Result<(), delayline::Error>>,
}

impl Working {
    fn start(worker: Worker) -> Self {
        let (stop, stopped) = oneshot::channel();
        let worker = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
        Self { stop, worker }
    }

    pub(crate) async fn stop(self) -> Result<(), Error> {
        let _ = self.stop.send(());
        Ok(self.worker.await??)
    }
}

/// The blog on one driver. The text is the same for all of them: only the types differ, and how each is opened.
macro_rules! blog {
    (
        $driver:ident, $database:ty, $store:ty,
        begin: $begin:expr, open: $open:expr, id: $id:literal, newest: $newest:literal
    ) => {
        pub(crate) mod $driver {
            use std::collections::BTreeMap;
            use std::sync::Arc;

            use delayline::expected::{Check, Expected};
            use delayline::{Answer, Context, Failure, Key, NewTask, Outcome, Scheduled, State};
            use sqlx::{Pool, QueryBuilder, Row, Transaction};
            use tracing::info;

            use super::*;

            #[derive(Clone)]
            pub(crate) struct Blog {
                pool: Pool<$database>,
                store: $store,
                scheduler: Scheduler,
            }

            type Query = QueryBuilder<$database>;

            impl Blog {
                pub(crate) async fn open(url: &str) -> Result<Self, Error> {
                    let (store, pool): ($store, Pool<$database>) = $open(url.to_owned()).await?;
                    let table = concat!(
                        "CREATE TABLE IF NOT EXISTS blog_posts (id ",
                        $id,
                        ", title TEXT NOT NULL, status VARCHAR(20) NOT NULL, publish_at BIGINT)"
                    );
                    sqlx::query(table).execute(&pool).await?;
                    let times = pool.clone();
                    let check = Check::new(move |posts| publish_times(times.clone(), posts)).every(SEEN_WITHIN);
                    let scheduler = Scheduler::builder(Arc::new(store.clone()))
                        .follow(PUBLISH, check)
                        .build()?;
                    Ok(Self { pool, store, scheduler })
                }

                async fn begin(&self) -> Result<Transaction<'static, $database>, sqlx::Error> {
                    $begin(self.pool.clone()).await
                }

                /// The handler: publishes the post and finishes its task, in one transaction.
                async fn publish(self, post: i64, context: Context) -> Result<Outcome, Failure> {
                    let mut tx = self.begin().await?;
                    set(&mut tx, post, "published", None).await?;
                    context.finish_in(self.store.join(&mut tx)).await?;
                    tx.commit().await?;
                    info!(post, lateness = ?context.lateness(), "published");
                    Ok(Outcome::Done)
                }
            }

            impl Posts for Blog {
                async fn now(&self) -> Result<Timestamp, Error> {
                    Ok(delayline::store::Store::now(&self.store).await?)
                }

                async fn write(&self, title: &str) -> Result<i64, Error> {
                    let mut tx = self.begin().await?;
                    let mut insert = Query::new("INSERT INTO blog_posts (title, status) VALUES (");
                    insert.push_bind(title.to_owned()).push(", 'draft')");
                    insert.build().execute(&mut *tx).await?;
                    // Of this connection: another's may have a later id.
                    let post: i64 = sqlx::query_scalar($newest).fetch_one(&mut *tx).await?;
                    tx.commit().await?;
                    info!(post, title, "written");
                    Ok(post)
                }

                /// Also moves a post that is to be published at another time: `replace` moves its task.
                async fn publish_at(&self, post: i64, time: Timestamp) -> Result<(), Error> {
                    let mut tx = self.begin().await?;
                    set(&mut tx, post, "scheduled", Some(time)).await?;
                    let task = NewTask::new(PUBLISH, &post).key(post.to_string()).at(time).replace();
                    let receipt = self.scheduler.schedule_in(self.store.join(&mut tx), task).await?;
                    if let Scheduled::Running(_) = receipt.answer() {
                        tx.rollback().await?;
                        return Err(format!("post {post} is being published, so it was not moved").into());
                    }
                    tx.commit().await?;
                    self.scheduler.committed(receipt).await;
                    info!(post, %time, "to be published");
                    Ok(())
                }

                async fn publish_at_and_fail(&self, post: i64, time: Timestamp) -> Result<(), Error> {
                    let mut tx = self.begin().await?;
                    set(&mut tx, post, "scheduled", Some(time)).await?;
                    let task = NewTask::new(PUBLISH, &post).key(post.to_string()).at(time);
                    let _ = self.scheduler.schedule_in(self.store.join(&mut tx), task).await?;
                    tx.rollback().await?;
                    info!(post, "rolled back");
                    Ok(())
                }

                async fn publish_now(&self, post: i64) -> Result<(), Error> {
                    let now = self.now().await?;
                    self.publish_at(post, now).await
                }

                async fn back_to_draft(&self, post: i64) -> Result<(), Error> {
                    let mut tx = self.begin().await?;
                    set(&mut tx, post, "draft", None).await?;
                    let target = (PUBLISH, post.to_string());
                    let receipt = self.scheduler.cancel_in(self.store.join(&mut tx), target).await?;
                    let is_out = match receipt.answer() {
                        Answer::TooLate(_) => true,
                        Answer::Finished(task) => task.state == State::Done,
                        Answer::Done(_) | Answer::Conflict(_) | Answer::NotFound => false,
                    };
                    if is_out {
                        tx.rollback().await?;
                        return Err(format!("post {post} is out, or at this moment").into());
                    }
                    tx.commit().await?;
                    let _ = self.scheduler.committed(receipt).await;
                    Ok(())
                }

                async fn update_by_hand(&self, post: i64, time: Timestamp) -> Result<(), Error> {
                    let mut tx = self.begin().await?;
                    set(&mut tx, post, "scheduled", Some(time)).await?;
                    Ok(tx.commit().await?)
                }

                async fn is_published(&self, post: i64) -> Result<bool, Error> {
                    let mut query = Query::new("SELECT status FROM blog_posts WHERE id = ");
                    query.push_bind(post);
                    let status: String = query.build_query_scalar().fetch_one(&self.pool).await?;
                    Ok(status == "published")
                }

                async fn task(&self, post: i64) -> Result<Option<Task>, Error> {
                    Ok(self.scheduler.find((PUBLISH, post.to_string())).await?)
                }

                fn work(&self) -> Working {
                    let blog = self.clone();
                    let worker = Worker::new(&self.scheduler)
                        .handle(PUBLISH, move |post, context| blog.clone().publish(post, context));
                    Working::start(worker)
                }
            }

            async fn set(
                tx: &mut Transaction<'static, $database>,
                post: i64,
                status: &'static str,
                publish_at: Option<Timestamp>,
            ) -> Result<(), sqlx::Error> {
                let mut update = Query::new("UPDATE blog_posts SET status = ");
                update.push_bind(status);
                if let Some(time) = publish_at {
                    update.push(", publish_at = ").push_bind(time.as_millis());
                }
                update.push(" WHERE id = ").push_bind(post);
                update.build().execute(&mut **tx).await?;
                Ok(())
            }

            /// Reads the times of the posts, in one statement for a batch of tasks.
            async fn publish_times(pool: Pool<$database>, posts: Vec<Key>) -> Result<Vec<Expected>, Failure> {
                let mut query = Query::new("SELECT id, publish_at FROM blog_posts WHERE status = 'scheduled' AND id IN (");
                let mut ids = query.separated(", ");
                for post in &posts {
                    ids.push_bind(post.as_str().parse::<i64>()?);
                }
                query.push(")");
                let mut times = BTreeMap::new();
                for row in query.build().fetch_all(&pool).await? {
                    let (id, time): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
                    times.insert(id.to_string(), Timestamp::from_millis(time));
                }
                let expected = |post: &Key| match times.get(post.as_str()) {
                    Some(time) => Expected::At(*time),
                    // Deleted, or a draft again, whose task `publish_at` schedules again.
                    None => Expected::Gone,
                };
                Ok(posts.iter().map(expected).collect())
            }
        }
    };
}

blog!(
    sqlite,
    sqlx::Sqlite,
    delayline::store::SqliteStore,
    // SQLite lets a transaction that has read write only if no other has written: so it takes the lock at once.
    begin: |pool: Pool<sqlx::Sqlite>| async move { pool.begin_with("BEGIN IMMEDIATE").await },
    open: |file: String| async move {
        let store = delayline::store::SqliteStore::open(&file).await?;
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&file);
        Ok::<_, Error>((store, sqlx::SqlitePool::connect_with(options).await?))
    },
    id: "INTEGER PRIMARY KEY",
    newest: "SELECT last_insert_rowid()"
);

#[cfg(feature = "postgres")]
blog!(
    postgres,
    sqlx::Postgres,
    delayline::store::PostgresStore,
    begin: |pool: Pool<sqlx::Postgres>| async move { pool.begin().await },
    open: |url: String| async move {
        let store = delayline::store::PostgresStore::connect(&url).await?;
        store.migrate().await?;
        Ok::<_, Error>((store, sqlx::PgPool::connect(&url).await?))
    },
    id: "BIGSERIAL PRIMARY KEY",
    newest: "SELECT lastval()"
);

#[cfg(feature = "mysql")]
blog!(
    mysql,
    sqlx::MySql,
    delayline::store::MySqlStore,
    begin: |pool: Pool<sqlx::MySql>| async move { pool.begin().await },
    open: |url: String| async move {
        let store = delayline::store::MySqlStore::connect(&url).await?;
        store.migrate().await?;
        Ok::<_, Error>((store, sqlx::MySqlPool::connect(&url).await?))
    },
    id: "BIGINT AUTO_INCREMENT PRIMARY KEY",
    // By itself it is unsigned, and so no i64.
    newest: "SELECT CAST(last_insert_id() AS SIGNED)"
);
