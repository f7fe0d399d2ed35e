//! Runs the servers of the rows, and their faults.

mod cluster;
mod hostile;
mod mariadb;
mod postgres;
mod redis;
mod space;
mod sqlite;

use std::net::{Ipv4Addr, SocketAddr};

use async_trait::async_trait;

pub(crate) use self::cluster::Cluster;
pub(crate) use self::mariadb::MariaDb;
pub(crate) use self::postgres::Postgres;
pub(crate) use self::redis::{OneRedis, WakesInRedis};
pub(crate) use self::sqlite::Sqlite;
use crate::fault::Harm;

/// Servers with faults.
#[async_trait]
pub(crate) trait Place: Send + Sync {
    /// Where its servers listen; none for a file.
    fn addresses(&self) -> Vec<SocketAddr>;

    /// Returns the URL for a service whose connections go over these addresses, one for each of its own.
    fn url(&self, over: &[SocketAddr]) -> String;

    /// Tells servers that name each other to clients which addresses to use.
    async fn announce(&mut self, _over: &[SocketAddr]) {}

    /// Lists its faults.
    fn harms(&self) -> Vec<Harm>;

    async fn apply(&mut self, harm: Harm);

    /// Undoes a harm. The place works when this returns, however long that takes.
    async fn undo(&mut self, harm: Harm);
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Fails for a harm that the place does not list.
fn unknown(harm: Harm) -> ! {
    unreachable!("{harm:?} does not happen here")
}
