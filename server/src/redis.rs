//! `delayline redis`: looks after the Redis with the wake-ups.

mod doctor;
mod findings;
mod rebuild;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod resend;
mod rows;

use delayline::backend::{RedisBackend, RedisBackendBuilder};
use delayline::store::RedisStore;

use crate::Failure;

/// Look after the Redis in which wake-ups are.
#[derive(Debug, clap::Args)]
pub(crate) struct Redis {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Doctor(doctor::Doctor),
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
    fn backend(&self) -> Result<RedisBackendBuilder, Failure> {
        Ok(RedisBackend::builder(&self.url()?).prefix(&self.prefix))
    }

    /// Returns the store that keeps the tasks there.
    fn store(&self) -> Result<RedisStore, Failure> {
        Ok(RedisStore::builder(&self.url()?).prefix(&self.prefix).build()?)
    }

    fn url(&self) -> Result<String, Failure> {
        const VARIABLE: &str = "REDIS_URL";
        let url = self.redis.clone().or_else(|| std::env::var(VARIABLE).ok());
        let missing = || Failure::Argument(format!("--redis is missing, and {VARIABLE} is not set"));
        url.ok_or_else(missing)
    }
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
