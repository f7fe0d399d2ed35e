//! A MariaDB server.

use std::net::SocketAddr;
use std::process::Command;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use tempfile::TempDir;
use tokio::task::block_in_place;

use super::space::Space;
use super::{Place, hostile, loopback};
use crate::database::{Database, Server};
use crate::fault::Harm;
use crate::hostile_settings;
use crate::suspend::signal;

const SERVICE: &str = "delayline@'127.0.0.1'";

pub(crate) struct MariaDb {
    server: Server,
    /// Another program's transaction.
    held: Option<MySqlConnection>,
    space: Option<Space>,
}

impl MariaDb {
    /// Starts one, perhaps with hostile settings.
    pub(crate) fn start(is_hostile: bool) -> Self {
        let folder = TempDir::new().unwrap();
        let space = Space::mount(&folder, "600m");
        // A transaction of the service whose connection hangs does not keep its locks for ever.
        let mut settings = vec!["--idle-transaction-timeout=20"];
        if is_hostile {
            settings.extend(hostile_settings::MARIADB);
            settings.push(hostile::MARIADB);
        }
        let settings = settings.into_iter().map(str::to_owned).collect();
        Self {
            server: Server::start_in_with(folder, Database::MariaDb, settings),
            held: None,
            space,
        }
    }

    /// Runs SQL as the server's owner, who connects by its socket.
    fn administer(&self, sql: &str) {
        let output = block_in_place(|| {
            Command::new("mariadb")
                .args([
                    "--no-defaults",
                    "--user=root",
                    "--socket=mariadb.sock",
                    "delayline",
                ])
                // Its path may be too long for a socket.
                .current_dir(self.server.folder().join("data"))
                .arg(format!("--execute=SET lock_wait_timeout = 60; {sql}"))
                .output()
                .expect("the client `mariadb`, which comes with the server")
        });
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {why}");
    }

    fn throw_all_out(&self) {
        self.administer(&format!("KILL USER {SERVICE}"));
    }
}

#[async_trait]
impl Place for MariaDb {
    fn addresses(&self) -> Vec<SocketAddr> {
        vec![loopback(self.server.port())]
    }

    fn url(&self, over: &[SocketAddr]) -> String {
        format!("mysql://delayline@{}/delayline", over[0])
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
            Harm::Hung => signal(self.server.process(), "STOP"),
            Harm::Revoked => {
                self.administer(&format!("REVOKE ALL ON `delayline%`.* FROM {SERVICE}"));
                // Open connections keep the rights that they began with.
                self.throw_all_out();
            }
            Harm::LockedOut => {
                self.administer(&format!("ALTER USER {SERVICE} ACCOUNT LOCK"));
                self.throw_all_out();
            }
            Harm::ReadOnly => {
                self.administer("SET GLOBAL read_only = ON");
                self.throw_all_out();
            }
            Harm::TableAway => self.administer("RENAME TABLE delayline_tasks TO gone"),
            Harm::Full => block_in_place(|| self.space.as_ref().unwrap().fill()),
            Harm::RowsLocked => {
                let url = self.url(&self.addresses());
                let mut other = MySqlConnection::connect(&url).await.unwrap();
                let rows = "BEGIN; SELECT id FROM delayline_tasks WHERE state IN (0, 1) \
                            LIMIT 20 FOR UPDATE SKIP LOCKED";
                sqlx::raw_sql(AssertSqlSafe(rows))
                    .execute(&mut other)
                    .await
                    .unwrap();
                self.held = Some(other);
            }
            Harm::Emptied => super::unknown(harm),
        }
    }

    async fn undo(&mut self, harm: Harm) {
        match harm {
            Harm::Killed => block_in_place(|| self.server.start_again()),
            Harm::Hung => signal(self.server.process(), "CONT"),
            Harm::Revoked => self.administer(&format!("GRANT ALL ON `delayline%`.* TO {SERVICE}")),
            Harm::LockedOut => self.administer(&format!("ALTER USER {SERVICE} ACCOUNT UNLOCK")),
            Harm::ReadOnly => self.administer("SET GLOBAL read_only = OFF"),
            Harm::TableAway => self.administer("RENAME TABLE gone TO delayline_tasks"),
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
