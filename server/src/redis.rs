//! `delayline redis`: looks after the Redis with the wake-ups.

mod doctor;
mod findings;
mod rebuild;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod resend;
mod rows;

use delayline::backend::{RedisBackend, RedisBackendBuilder};
use delayline::store::RedisStore;

use crate::database::Address;
use crate::field::by_flag;
use crate::{Failure, examples};

/// Look after the Redis in which wake-ups are.
#[derive(Debug, clap::Args)]
pub(crate) struct Redis {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    #[command(after_help = examples::REDIS_DOCTOR)]
    Doctor(doctor::Doctor),
    #[command(after_help = examples::REDIS_REBUILD)]
    Rebuild(rebuild::Rebuild),
}

impl Redis {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Doctor(doctor) => doctor.run(),
            Command::Rebuild(rebuild) => rebuild.run(),
        }
    }
}

/// Which Redis, and whose keys in it.
#[derive(Debug, clap::Args)]
struct Place {
    /// The server or servers: redis://, redis+sentinel:// or redis+cluster://, with rediss for TLS; otherwise what the
    /// environment variable REDIS_URL says, which keeps the password out of the list of processes
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Whose keys: what the application sets as its prefix
    #[arg(long, value_name = "PREFIX", default_value = "delayline")]
    prefix: String,
}

impl Place {
    fn address(&self) -> Result<Address, Failure> {
        Address::given_or_in("--redis", "REDIS_URL", self.redis.as_ref())
    }

    fn backend(&self, address: &Address) -> RedisBackendBuilder {
        RedisBackend::builder(address.text()).prefix(&self.prefix)
    }

    /// Returns the store that keeps the tasks there.
    fn store(&self, address: &Address) -> Result<RedisStore, Failure> {
        let store = RedisStore::builder(address.text()).prefix(&self.prefix).build();
        store.map_err(|error| refused(address, error))
    }
}

/// Names the flag that an error is about, else the server.
fn refused(address: &Address, error: delayline::Error) -> Failure {
    let flags = [
        ("redis url", address.given_by()),
        ("redis key prefix", "--prefix"),
        ("redis shards", "--shards"),
    ];
    address.located(by_flag(error, &flags))
}

/// The database with the rows.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
#[derive(Debug, clap::Args)]
struct Rows {
    /// The database with the tasks, such as postgres://user:password@host/database, or the file for sqlite; otherwise
    /// what the environment variable DATABASE_URL says
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The schema of the table (postgres only); otherwise the first of the connection's search_path
    #[arg(long, value_name = "NAME")]
    schema: Option<String>,
    /// The table of the tasks (not for sqlite); otherwise delayline_tasks
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
}

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
impl Rows {
    async fn open(&self) -> Result<std::sync::Arc<dyn delayline::store::Store>, Failure> {
        let address = crate::database::Address::given("--store", self.store.as_ref())?;
        address.open(self.schema.as_deref(), self.table.as_deref()).await
    }
}
