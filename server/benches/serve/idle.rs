//! What a server costs while nothing is due.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use crate::claims::{POLLERS, wanted};
use crate::connection::{Connection, address_of};
use crate::http::of_this_program;
use crate::place::{Fresh, Place};
use crate::server::{ANY_PORT, Server};
use crate::statements::Statements;
use crate::table::{Floor, Line};
use crate::wanted::Sizes;
use crate::{Error, KIND, worker};

const HOUR: Duration = Duration::from_secs(3_600);
/// For how long a process is left alone before it is watched.
const SETTLES: Duration = Duration::from_secs(3);
/// The kind of tasks that are waited for, and of which there are none.
const OTHER_KIND: &str = "other";

pub(crate) async fn measure(place: &Place, sizes: &Sizes) -> Result<Vec<Line>, Error> {
    // All sides over the same rows.
    let mut fresh = place.fresh().await?;
    fresh.fill(sizes.pending, HOUR).await?;
    let meter = Meter::before(&mut fresh, place).await?;
    let lines = |case: &str, floor: Floor| {
        let line = |what| Line::new(format!("{} pending, {case}: {what}", sizes.pending), floor);
        [line("statements/s"), line("processor, ms/s")]
    };
    let mut server_alone = lines("idle", Floor::AtMost(1.0));
    let mut with_claimants = lines("16 wait for others", Floor::None);
    // It delivers the kind, as the worker does, and to nowhere, as nothing is due.
    let delivers = format!(
        "[kinds.{KIND}]\ndeliver = {{ url = \"http://127.0.0.1:9/\", secret = \"whsec_{}\" }}\n\
         [webhooks]\nallow = [\"127.0.0.1\"]\n",
        "A".repeat(32)
    );
    let config = format!("[store]\nurl = \"{}\"\n{ANY_PORT}{delivers}", fresh.url);
    for _ in 0..sizes.rounds {
        let process = of_this_program(worker::ROLE, &fresh)?;
        let limit = meter.cost(&process, sizes.idle).await?;
        drop(process);
        let server = Server::configured(&config);
        let alone = meter.cost(&server, sizes.idle).await?;
        let claimants = wait_for_claims(&server).await?;
        let waiting = meter.cost(&server, sizes.idle).await?;
        drop(claimants);
        drop(server);
        for (lines, ours) in [(&mut server_alone, alone), (&mut with_claimants, waiting)] {
            for ((line, limit), ours) in lines.iter_mut().zip(limit).zip(ours) {
                line.limit(limit);
                line.ours(ours);
            }
        }
    }
    let counts = usize::from(matches!(meter, Meter::Uncounted));
    let lines = server_alone.into_iter().skip(counts);
    let lines = lines.chain(with_claimants.into_iter().skip(counts)).collect();
    drop(meter);
    fresh.remove().await?;
    Ok(lines)
}

/// Claimants who wait for as long as this is kept.
async fn wait_for_claims(server: &Server) -> Result<JoinSet<Result<(), Error>>, Error> {
    let address = address_of(&server.url)?;
    let mut waiting = JoinSet::new();
    for _ in 0..POLLERS {
        let mut connection = Connection::open(address).await?;
        waiting.spawn(async move {
            loop {
                let wanted = wanted(OTHER_KIND, 1, Duration::from_secs(20));
                connection.ask("POST", "/v1/claims", &wanted, 200).await?;
            }
        });
    }
    Ok(waiting)
}

/// Counts what a store is asked.
enum Meter {
    Uncounted,
    Postgres(Statements),
    Redis(MultiplexedConnection),
}

impl Meter {
    /// What is then asked over the URL of the place is counted.
    async fn before(fresh: &mut Fresh, place: &Place) -> Result<Self, Error> {
        Ok(match place {
            Place::Sqlite => Self::Uncounted,
            Place::Postgres(_) => {
                let statements = Statements::count_to(&fresh.url).await?;
                fresh.url.clone_from(&statements.url);
                Self::Postgres(statements)
            }
            Place::Redis(url) => {
                let client = redis::Client::open(url.as_str())?;
                Self::Redis(client.get_multiplexed_async_connection().await?)
            }
        })
    }

    async fn so_far(&self) -> Result<f64, Error> {
        match self {
            Self::Uncounted => Ok(0.0),
            Self::Postgres(statements) => Ok(statements.so_far() as f64),
            Self::Redis(connection) => {
                let mut connection = connection.clone();
                let text: String = redis::cmd("INFO")
                    .arg("stats")
                    .query_async(&mut connection)
                    .await?;
                let count = text
                    .lines()
                    .find_map(|line| line.strip_prefix("total_commands_processed:"));
                Ok(count.ok_or("INFO does not count commands")?.trim().parse()?)
            }
        }
    }

    /// Statements or commands a second, and what the process took of its processor, in ms a second.
    async fn cost(&self, of: &Server, time: Duration) -> Result<[f64; 2], Error> {
        tokio::time::sleep(SETTLES).await;
        let (begun, asked, worked) = (Instant::now(), self.so_far().await?, processor_ms(of.process())?);
        tokio::time::sleep(time).await;
        let (asked, worked) = (self.so_far().await? - asked, processor_ms(of.process())? - worked);
        // But the one that asks how many there were.
        let own = if matches!(self, Self::Redis(_)) { 1.0 } else { 0.0 };
        let seconds = begun.elapsed().as_secs_f64();
        Ok([(asked - own) / seconds, worked / seconds])
    }
}

/// What all threads of a process have taken of a processor so far, in ms.
fn processor_ms(process: u32) -> Result<f64, Error> {
    let mut nanos = 0_u64;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // One that has just ended is not there any more.
        let Ok(times) = std::fs::read_to_string(thread?.path().join("schedstat")) else {
            continue;
        };
        let on_processor = times.split(' ').next().unwrap_or_default();
        nanos += on_processor.parse::<u64>()?;
    }
    Ok(nanos as f64 / 1e6)
}
