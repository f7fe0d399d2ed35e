//! Tasks that are put by many callers at once.

use std::process::Command;
use std::time::Instant;

use tokio::task::JoinSet;

use crate::connection::{Connection, address_of, apart};
use crate::place::{Fresh, Place};
use crate::server::{ANY_PORT, Server};
use crate::table::{Floor, Line};
use crate::wanted::Sizes;
use crate::{Error, KIND, bare_http, bare_rows};

const CALLERS: usize = 64;

pub(crate) async fn measure(place: &Place, sizes: &Sizes) -> Result<Vec<Line>, Error> {
    if matches!(place, Place::Redis(_)) {
        return Err("http is measured on databases: allowed are sqlite and postgres://…".into());
    }
    let name = format!("PUT by {CALLERS} callers, {} tasks, 1/s", sizes.put);
    let mut line = Line::new(name, Floor::AtLeast(0.6));
    for _ in 0..sizes.rounds {
        let fresh = place.fresh().await?;
        let bare = of_this_program(bare_http::ROLE, &fresh)?;
        line.limit(rate(&bare, sizes.put).await?);
        drop(bare);
        fresh.has(bare_rows::TABLE, sizes.put).await?;
        fresh.remove().await?;

        let fresh = place.fresh().await?;
        let server = Server::configured(&format!("[store]\nurl = \"{}\"\n{ANY_PORT}", fresh.url));
        line.ours(rate(&server, sizes.put).await?);
        drop(server);
        fresh.has("delayline_tasks", sizes.put).await?;
        fresh.remove().await?;
    }
    Ok(vec![line])
}

/// This program in a role that has a process of its own.
pub(crate) fn of_this_program(role: &str, on: &Fresh) -> Result<Server, Error> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([role, on.url.as_str()]);
    Ok(Server::run(tempfile::tempdir()?, command))
}

/// How many tasks a second are answered as new.
async fn rate(server: &Server, count: usize) -> Result<f64, Error> {
    let address = address_of(&server.url)?;
    let put = move || async move {
        let mut connections = Vec::new();
        for _ in 0..CALLERS {
            connections.push(Connection::open(address).await?);
        }
        let body = format!(r#"{{"after":"1h","payload":"{}"}}"#, "x".repeat(98));
        let mut calling = JoinSet::new();
        let begun = Instant::now();
        for (caller, mut connection) in connections.into_iter().enumerate() {
            let body = body.clone();
            calling.spawn(async move {
                for number in (caller..count).step_by(CALLERS) {
                    let path = format!("/v1/tasks/{KIND}/{number}");
                    connection.ask("PUT", &path, &body, 201).await?;
                }
                Ok::<_, Error>(())
            });
        }
        while let Some(called) = calling.join_next().await {
            called??;
        }
        Ok(count as f64 / begun.elapsed().as_secs_f64())
    };
    apart(put).await
}
