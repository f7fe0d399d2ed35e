//! How a store is set up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;

use super::connections::pools;
use super::sql::Sql;
use super::{MySqlStore, Server, schema};
use crate::store::sql::{check_connections, check_name};
use crate::{Error, defaults};

/// How many connections a store has at the most, unless told otherwise.
const CONNECTIONS: u32 = 8;
const TABLE: &str = "delayline_tasks";

/// Sets up a [`MySqlStore`].
#[derive(Clone)]
#[must_use]
pub struct MySqlBuilder {
    options: MySqlConnectOptions,
    table: String,
    connections: u32,
    keep_history: Duration,
}

impl MySqlBuilder {
    pub(super) fn new(options: MySqlConnectOptions) -> Self {
        Self {
            options,
            table: TABLE.to_owned(),
            connections: CONNECTIONS,
            keep_history: defaults::HISTORY,
        }
    }

    /// Keeps rows in a table of this name, `delayline_tasks` otherwise, in the database that the options name. A
    /// second table, of the same name and `_migrations`, records the version of its schema. Allowed are
    /// `[a-z_][a-z0-9_]{0,39}`.
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// Opens up to `max` connections for verbs and reading, and as many for workers, 8 otherwise, as they are needed.
    pub fn connections(mut self, max: u32) -> Self {
        self.connections = max;
        self
    }

    /// Keeps rows that the store finishes or cancels for `history`; [`defaults::HISTORY`] otherwise.
    pub fn keep_history(mut self, history: Duration) -> Self {
        self.keep_history = history;
        self
    }

    /// The SQL by which a person makes the table in place of [`MySqlStore::migrate`]: all of it, from an empty database
    /// on. Connects to nothing.
    pub fn migrations(&self) -> Result<String, Error> {
        check_name("table", &self.table)?;
        Ok(schema::text(&self.table))
    }

    /// Connects to the server, once to see that it answers.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a setting that cannot be used; [`Error::Store`], transient if the server is away.
    pub async fn connect(self) -> Result<MySqlStore, Error> {
        check_name("table", &self.table)?;
        let count = check_connections(self.connections)?;
        if self.options.get_database().is_none_or(str::is_empty) {
            return Err(Error::invalid(
                "database",
                "",
                "the URL or the options must name one",
            ));
        }
        let server = Server {
            pools: pools(&self.options, count),
            sql: Sql::of(&self.table),
            known: Default::default(),
        };
        server
            .pools
            .callers
            .lend()
            .await
            .map_err(super::errors::failed)?
            .give_back();
        Ok(MySqlStore::new(Arc::new(server), self.keep_history))
    }
}

impl fmt::Debug for MySqlBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The options have the password.
        f.debug_struct("MySqlBuilder")
            .field("host", &self.options.get_host())
            .field("table", &self.table)
            .field("connections", &self.connections)
            .field("keep_history", &self.keep_history)
            .finish_non_exhaustive()
    }
}
