//! The settings of a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;

use super::connections::{Database, prepare};
use super::errors::failed;
use super::names::Names;
use super::{PostgresStore, schema};
use crate::store::sql::{check_connections, check_name};
use crate::{Error, defaults};

/// How many connections a store opens at the most unless told.
const CONNECTIONS: u32 = 8;

/// Makes a [`PostgresStore`].
#[must_use]
#[derive(Clone)]
pub struct PostgresBuilder {
    options: PgConnectOptions,
    schema: Option<String>,
    table: String,
    connections: u32,
    keep_history: Duration,
    notify: bool,
}

impl PostgresBuilder {
    pub(super) fn new(options: PgConnectOptions) -> Self {
        Self {
            options,
            schema: None,
            table: "delayline_tasks".to_owned(),
            connections: CONNECTIONS,
            keep_history: defaults::HISTORY,
            notify: false,
        }
    }

    /// The schema of the table; otherwise the one where the connection's `search_path` finds the table, or would make
    /// it. It must be there.
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = Some(name.into());
        self
    }

    /// The table of the tasks; `delayline_tasks` otherwise.
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// How many connections to open at the most for verbs and reading, and as many for workers, 1 or more; 8 otherwise.
    /// One more listens where [`notify`](Self::notify) is set.
    pub fn connections(mut self, max: u32) -> Self {
        self.connections = max;
        self
    }

    /// Keeps rows that this store finishes or cancels for `history`; [`defaults::HISTORY`] otherwise.
    pub fn keep_history(mut self, history: Duration) -> Self {
        self.keep_history = history;
        self
    }

    /// Tells the workers of other processes (`NOTIFY`) when rows are scheduled that are due within
    /// [`defaults::LOOK_AHEAD`], and listens for it. Without it they find such a row when they next sweep.
    ///
    /// It has its price: PostgreSQL lets only one transaction that notifies commit at a time. Through a pooler of transactions
    /// nothing is heard; then it warns.
    pub fn notify(mut self) -> Self {
        self.notify = true;
        self
    }

    /// The SQL by which a person makes the table in place of [`PostgresStore::migrate`]: all of it, from an empty
    /// schema on. Connects to nothing.
    pub fn migrations(&self) -> Result<String, Error> {
        self.check_names()?;
        let names = Names::new(self.schema.clone(), self.table.clone());
        Ok(schema::script(&names))
    }

    fn check_names(&self) -> Result<(), Error> {
        check_name("table", &self.table)?;
        match &self.schema {
            Some(schema) => check_name("schema", schema),
            None => Ok(()),
        }
    }

    /// Connects, and finds out where the table is; it need not be there yet.
    pub async fn connect(self) -> Result<PostgresStore, Error> {
        self.check_names()?;
        let connections = check_connections(self.connections)?;
        let options = prepare(self.options.clone());
        let database = Database::connect(options, connections, self.schema, self.table, self.notify)
            .await
            .map_err(failed)?;
        Ok(PostgresStore::new(Arc::new(database), self.keep_history))
    }
}

impl fmt::Debug for PostgresBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the options, which may hold a password.
        f.debug_struct("PostgresBuilder")
            .field("schema", &self.schema)
            .field("table", &self.table)
            .field("connections", &self.connections)
            .field("keep_history", &self.keep_history)
            .field("notify", &self.notify)
            .finish_non_exhaustive()
    }
}
