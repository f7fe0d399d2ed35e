//! A PostgreSQL server.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;
use tokio::task::block_in_place;

use super::space::Space;
use super::{Place, hostile, loopback};
use crate::database::{Database, Server};
use crate::fault::Harm;
use crate::hostile_settings;
use crate::suspend::signal;

/// What lets the service in, and what lets no client in.
const LETS_IN: &str = "host all delayline 127.0.0.1/32 trust\n";
const LETS_NO_CLIENT_IN: &str = "host all delayline 127.0.0.1/32 reject\n";

const THROW_ALL_OUT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                             WHERE usename = 'delayline' AND pid <> pg_backend_pid()";

pub(crate) struct Postgres {
    server: Server,
    /// Another program's transaction.
    held: Option<PgConnection>,
    space: Option<Space>,
}

impl Postgres {
    /// Starts one, perhaps with hostile settings.
    pub(crate) fn start(is_hostile: bool) -> Self {
        let folder = TempDir::new().unwrap();
        let space = Space::mount(&folder, "500m");
        let server = Server::start_in(folder, Database::Postgres);
        let settings = server.folder().join("data/postgresql.conf");
        // So that the log alone does not fill the disk; and that a transaction of the service whose connection hangs does
        // not keep its locks for ever.
        let mut lines = vec![
            "max_wal_size = 128MB",
            "min_wal_size = 32MB",
            "idle_in_transaction_session_timeout = 20s",
        ];
        if is_hostile {
            lines.extend(hostile_settings::POSTGRES);
            lines.extend(hostile::POSTGRES);
        }
        let mut file = fs::OpenOptions::new().append(true).open(settings).unwrap();
        file.write_all(format!("{}\n", lines.join("\n")).as_bytes())
            .unwrap();
        let place = Self {
            server,
            held: None,
            space,
        };
        place.reload();
        place
    }

    async fn admin(&self) -> PgConnection {
        let mut admin = PgConnection::connect(&self.server.url()).await.unwrap();
        // Settings that override those of the service; and it waits for none of its locks for long.
        for setting in [
            "default_transaction_read_only = off",
            "default_transaction_isolation = 'read committed'",
            "lock_timeout = '5s'",
            "statement_timeout = 0",
            "idle_session_timeout = 0",
        ] {
            run(&mut admin, &format!("SET {setting}")).await.unwrap();
        }
        admin
    }

    /// Does something with the table, for which no other connection may use it: repeated until it is possible.
    async fn alter(&self, sql: &str) {
        let mut admin = self.admin().await;
        for _ in 0..20 {
            match run(&mut admin, sql).await {
                Ok(()) => return,
                Err(error) => tell!("{sql}: {error}; again"),
            }
        }
        panic!("{sql} was not possible");
    }

    fn reload(&self) {
        signal(self.server.process(), "HUP");
    }

    /// Sends a signal to the server and to its sessions, which are processes of their own.
    fn signal_all(&self, name: &str) {
        let server = self.server.process();
        let children = fs::read_to_string(format!("/proc/{server}/task/{server}/children")).unwrap();
        signal(server, name);
        for child in children.split_whitespace() {
            // It may have ended.
            let _ = std::process::Command::new("kill")
                .args([&format!("-{name}"), child])
                .output();
        }
    }
}

async fn run(connection: &mut PgConnection, sql: &str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(connection)
        .await
        .map(drop)
}

#[async_trait]
impl Place for Postgres {
    fn addresses(&self) -> Vec<SocketAddr> {
        vec![loopback(self.server.port())]
    }

    fn url(&self, over: &[SocketAddr]) -> String {
        format!("postgres://delayline@{}/delayline", over[0])
    }

    fn harms(&self) -> Vec<Harm> {
        let mut harms = vec![
            Harm::Killed,
            Harm::Hung,
            Harm::Revoked,
            Harm::LockedOut,
            Harm::ReadOnly,
            Harm::TableAway,
            Harm::RowsLocked,
        ];
        harms.extend(self.space.as_ref().map(|_| Harm::Full));
        harms
    }

    async fn apply(&mut self, harm: Harm) {
        match harm {
            Harm::Killed => block_in_place(|| self.server.kill()),
            Harm::Hung => self.signal_all("STOP"),
            Harm::Revoked => self.alter("REVOKE ALL ON delayline_tasks FROM delayline").await,
            Harm::LockedOut => {
                let rules = self.server.folder().join("data/pg_hba.conf");
                fs::write(rules, LETS_NO_CLIENT_IN).unwrap();
                let mut admin = self.admin().await;
                self.reload();
                run(&mut admin, THROW_ALL_OUT).await.unwrap();
            }
            Harm::ReadOnly => {
                self.alter("ALTER DATABASE delayline SET default_transaction_read_only = on")
                    .await;
                run(&mut self.admin().await, THROW_ALL_OUT).await.unwrap();
            }
            Harm::TableAway => self.alter("ALTER TABLE delayline_tasks RENAME TO gone").await,
            Harm::Full => block_in_place(|| self.space.as_ref().unwrap().fill()),
            Harm::RowsLocked => {
                let mut admin = self.admin().await;
                let rows = "BEGIN; SELECT id FROM delayline_tasks WHERE state IN (0, 1) \
                            ORDER BY due_at LIMIT 20 FOR UPDATE SKIP LOCKED";
                run(&mut admin, rows).await.unwrap();
                self.held = Some(admin);
            }
            Harm::Emptied => super::unknown(harm),
        }
    }

    async fn undo(&mut self, harm: Harm) {
        match harm {
            Harm::Killed => block_in_place(|| self.server.start_again()),
            Harm::Hung => self.signal_all("CONT"),
            Harm::Revoked => self.alter("GRANT ALL ON delayline_tasks TO delayline").await,
            Harm::LockedOut => {
                let rules = self.server.folder().join("data/pg_hba.conf");
                fs::write(rules, LETS_IN).unwrap();
                self.reload();
            }
            Harm::ReadOnly => {
                // Only new connections see it, as after a failover: the others stay as they are.
                self.alter("ALTER DATABASE delayline RESET default_transaction_read_only")
                    .await;
            }
            Harm::TableAway => self.alter("ALTER TABLE gone RENAME TO delayline_tasks").await,
            Harm::Full => block_in_place(|| {
                self.space.as_ref().unwrap().free();
                // Without space for its log it has ended.
                self.server.start_again();
            }),
            Harm::RowsLocked => drop(self.held.take()),
            Harm::Emptied => super::unknown(harm),
        }
    }
}
