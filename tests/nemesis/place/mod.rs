//! Where the rows are, and what may happen there.

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

/// Servers to which things happen.
#[async_trait]
pub(crate) trait Place: Send + Sync {
    /// Where its servers listen; none for a file.
    fn addresses(&self) -> Vec<SocketAddr>;

    /// How a service reaches it whose connections lead over these addresses, one for each of its own.
    fn url(&self, over: &[SocketAddr]) -> String;

    /// Tells servers that name each other to clients by which addresses they do so.
    async fn announce(&mut self, _over: &[SocketAddr]) {}

    /// What may happen to it.
    fn harms(&self) -> Vec<Harm>;

    async fn apply(&mut self, harm: Harm);

    /// Makes good what a harm has done. The place works when this returns, however long that takes.
    async fn undo(&mut self, harm: Harm);
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// It is none of those that the place names.
fn unknown(harm: Harm) -> ! {
    unreachable!("{harm:?} does not happen here")
}
