//! The service's own tables, in its own connections: orders, and their effects.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use delayline::Timestamp;
use delayline::backend::WokenBy;
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use tokio::sync::Notify;

/// `effects` is the proof: every change of an order that a customer would notice, in the transaction that makes it.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS orders (
        id         INTEGER PRIMARY KEY,
        state      TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'paid', 'cancelled')),
        created_ms INTEGER NOT NULL,
        due_ms     INTEGER NOT NULL, -- as last promised to the customer
        extended   INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX IF NOT EXISTS orders_by_state ON orders (state, due_ms);
    CREATE TABLE IF NOT EXISTS effects (
        order_id INTEGER NOT NULL REFERENCES orders (id),
        effect   TEXT NOT NULL,
        at_ms    INTEGER NOT NULL,
        hops     INTEGER,
        woken_by TEXT
    );";

#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) pool: SqlitePool,
    ended: Arc<Notify>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) id: i64,
    /// When it is to be cancelled.
    pub(crate) due: Timestamp,
}

impl Orders {
    /// Opens the service's tables in an existing file.
    pub(crate) async fn open(file: &Path) -> Result<Self, sqlx::Error> {
        // SQLite has one writer at a time: a second connection would only wait for the first.
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .connect_with(SqliteConnectOptions::new().filename(file))
            .await?;
        sqlx::raw_sql(TABLES).execute(&pool).await?;
        Ok(Self {
            pool,
            ended: Arc::default(),
        })
    }

    pub(crate) async fn create(&self, time_to_pay: Duration) -> Result<Order, sqlx::Error> {
        let now = now_ms();
        let due = Timestamp::from_millis(now).after(time_to_pay);
        let id = sqlx::query_scalar("INSERT INTO orders (created_ms, due_ms) VALUES (?, ?) RETURNING id")
            .bind(now)
            .bind(due.as_millis())
            .fetch_one(&self.pool)
            .await?;
        Ok(Order { id, due })
    }

    /// Marks the order as paid; false if it has ended already.
    pub(crate) async fn pay(&self, order: i64) -> Result<bool, sqlx::Error> {
        self.end(order, "paid", None).await
    }

    /// Marks the order as cancelled; false if it has ended already.
    pub(crate) async fn cancel(&self, order: i64, hops: u32, woken_by: WokenBy) -> Result<bool, sqlx::Error> {
        self.end(order, "cancelled", Some((hops, woken_by))).await
    }

    /// Ends an open order: its state and the effect in one transaction. Only one of any number of callers wins.
    async fn end(
        &self,
        order: i64,
        state: &'static str,
        how: Option<(u32, WokenBy)>,
    ) -> Result<bool, sqlx::Error> {
        // Before waiting for the database, so that it shows when this was decided, also if that was too early.
        let at = now_ms();
        let mut transaction = self.pool.begin().await?;
        let update = sqlx::query("UPDATE orders SET state = ? WHERE id = ? AND state = 'open'")
            .bind(state)
            .bind(order);
        if update.execute(&mut *transaction).await?.rows_affected() == 0 {
            return Ok(false);
        }
        let insert = "INSERT INTO effects (order_id, effect, at_ms, hops, woken_by) VALUES (?, ?, ?, ?, ?)";
        sqlx::query(insert)
            .bind(order)
            .bind(state)
            .bind(at)
            .bind(how.map(|(hops, _)| hops))
            .bind(how.map(|(_, woken_by)| woken_by.to_string()))
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        self.ended.notify_one();
        Ok(true)
    }

    /// Promises a later time.
    pub(crate) async fn extend(&self, order: i64, due: Timestamp) -> Result<(), sqlx::Error> {
        sqlx::query("UPDATE orders SET due_ms = ?, extended = 1 WHERE id = ? AND state = 'open'")
            .bind(due.as_millis())
            .bind(order)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    pub(crate) async fn paid(&self) -> Result<Vec<i64>, sqlx::Error> {
        sqlx::query_scalar("SELECT id FROM orders WHERE state = 'paid'")
            .fetch_all(&self.pool)
            .await
    }

    pub(crate) async fn open_ones(&self) -> Result<Vec<Order>, sqlx::Error> {
        let open: Vec<(i64, i64)> = sqlx::query_as("SELECT id, due_ms FROM orders WHERE state = 'open'")
            .fetch_all(&self.pool)
            .await?;
        let order = |(id, due)| Order {
            id,
            due: Timestamp::from_millis(due),
        };
        Ok(open.into_iter().map(order).collect())
    }

    /// When the last of the open orders is due; none if no order is open.
    pub(crate) async fn latest_due(&self) -> Result<Option<i64>, sqlx::Error> {
        sqlx::query_scalar("SELECT MAX(due_ms) FROM orders WHERE state = 'open'")
            .fetch_one(&self.pool)
            .await
    }

    /// Waits until an order has ended since the last call.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }
}

/// The time, by the clock of this machine, which is also the clock of an SQLite store; the part of a ms cut off.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
