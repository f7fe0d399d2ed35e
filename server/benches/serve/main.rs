//! What tasks cost over HTTP and through the gateway, beside the least that a server could do for the same, measured in
//! turns.
//!
//! ```sh
//! cargo bench -p delayline-server --bench serve -- http claims idle pages sqlite postgres://…
//! cargo bench -p delayline-server --features rocketmq --bench serve -- gateway trip sqlite 127.0.0.1:9876
//! ```
//!
//! - `http`: `PUT` by 64 callers on connections of their own. The limit is an HTTP server that writes what waits, up to 500
//!   rows, with one INSERT.
//! - `claims`: 20,000 tasks that are due, claimed and ended by 16 claimants. The limit is a `Worker` in this process.
//! - `idle`: a server over 100,000 tasks of which none is due, in statements and in its processor's time. The limit is a
//!   process with a `Worker` over the same rows. Statements of SQLite cannot be counted.
//! - `pages`: each of the operators' pages over a million tasks of ten kinds. The limit is 200 ms.
//! - `gateway`: messages that wait on the broker, until their wake-ups are there. The limit consumes the same messages and
//!   writes them, some hundred with one INSERT. `trip`: one message in and out, due at once. The limit is a consumer that
//!   passes it on to another topic: the two trips to the broker that are needed. Both need brokers with the usual levels.
//!
//! Without names all are measured, on SQLite, and what needs brokers if their nameserver is given. `--quick` does a little
//! of each, once, to see that it works. The server is the real one, in a process of its own, and has its default settings;
//! all callers share one thread of this process. A Redis is emptied again and again, and each run on PostgreSQL has a
//! database of its own.
//!
//! Each figure is the median of three runs; only figures of one run of this program can be compared. That nothing is lost
//! and nothing is done twice is checked, and how long anything takes is not.

// For the types of RocketMQ's client.
#![recursion_limit = "512"]

mod bare_http;
mod bare_rows;
mod claims;
#[cfg(feature = "rocketmq")]
mod client;
mod connection;
#[cfg(feature = "rocketmq")]
mod gateway;
mod http;
mod idle;
mod pages;
mod place;
#[cfg(feature = "rocketmq")]
mod post;
#[path = "../../tests/serve/server.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "the tests ask more of it, and a program that measures may panic"
)]
mod server;
mod statements;
mod table;
#[cfg(feature = "rocketmq")]
mod trip;
mod wanted;
mod worker;

use crate::wanted::{Wanted, Workload};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The kind of all tasks here.
const KIND: &str = "bench";

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    // In a process of its own, what is measured beside the server.
    if let [role, url] = arguments.as_slice() {
        match role.as_str() {
            bare_http::ROLE => return bare_http::serve(url).await,
            worker::ROLE => return worker::work(url).await,
            _ => {}
        }
    }
    measure(Wanted::read(&arguments)?).await
}

async fn measure(wanted: Wanted) -> Result<(), Error> {
    #[cfg(feature = "rocketmq")]
    let client = match &wanted.nameserver {
        Some(nameserver) => Some(client::Client::start(nameserver).await?),
        None => None,
    };
    for place in &wanted.places {
        table::heading(place.name());
        for workload in &wanted.workloads {
            let lines = match workload {
                Workload::Http => http::measure(place, &wanted.sizes).await?,
                Workload::Claims => claims::measure(place, &wanted.sizes).await?,
                Workload::Idle => idle::measure(place, &wanted.sizes).await?,
                Workload::Pages => pages::measure(place, &wanted.sizes).await?,
                #[cfg(feature = "rocketmq")]
                Workload::Gateway => {
                    gateway::measure(&on_broker(&client, &wanted)?, place, &wanted.sizes).await?
                }
                #[cfg(feature = "rocketmq")]
                Workload::Trip => trip::measure(&on_broker(&client, &wanted)?, place, &wanted.sizes).await?,
            };
            lines.iter().for_each(table::Line::print);
        }
    }
    #[cfg(feature = "rocketmq")]
    if let Some(client) = client {
        client.close().await;
    }
    Ok(())
}

#[cfg(feature = "rocketmq")]
fn on_broker<'a>(client: &'a Option<client::Client>, wanted: &'a Wanted) -> Result<post::Post<'a>, Error> {
    match (client, &wanted.nameserver) {
        (Some(client), Some(nameserver)) => Ok(post::Post { client, nameserver }),
        _ => Err("needed is the HOST:PORT of a RocketMQ nameserver".into()),
    }
}
