//! How long the pages take over very many tasks.

use std::time::{Duration, Instant};

use delayline::clock::Clock;
use delayline::store::Page;
use delayline::{Kind, NewTask, Scheduler, State};

use crate::connection::{Connection, address_of};
use crate::place::{Place, scheduler};
use crate::server::{ANY_PORT, Server};
use crate::table::{Floor, Line};
use crate::wanted::Sizes;
use crate::{Error, KIND};

const BATCH: usize = 500;
const HOUR: Duration = Duration::from_secs(3_600);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);
/// How many kinds the scheduled tasks are of.
const KINDS: usize = 10;
/// How many tasks are dead, of a kind of their own.
const DEAD: usize = 500;
/// How often each page is asked for.
const TIMES: usize = 20;
/// Within how many ms it is to be there.
const WITHIN_MS: f64 = 200.0;

pub(crate) async fn measure(place: &Place, sizes: &Sizes) -> Result<Vec<Line>, Error> {
    let fresh = place.fresh().await?;
    let scheduler = scheduler(&fresh.url).await?;
    fill(&scheduler, sizes.seen).await?;
    let first = scheduler
        .list(&Page::new(of(0), State::Scheduled).limit(1))
        .await?;
    let first = first.first().ok_or("no task is scheduled")?.id;
    scheduler.close().await?;
    let server = Server::configured(&format!("[store]\nurl = \"{}\"\n{ANY_PORT}", fresh.url));
    let mut connection = Connection::open(address_of(&server.url)?).await?;
    let kind = of(0);
    let mut lines = Vec::new();
    for (page, path) in [
        ("overview", "/".to_owned()),
        ("tasks of all kinds", "/tasks".to_owned()),
        ("tasks of a kind", format!("/tasks?kind={kind}")),
        (
            "tasks of a kind, by their keys",
            format!("/tasks?kind={kind}&q=order-77"),
        ),
        ("a key", "/tasks?q=order-7777".to_owned()),
        ("a task", format!("/tasks/{first}")),
        ("kinds", "/kinds".to_owned()),
        ("dead tasks", "/dead".to_owned()),
    ] {
        let name = format!("{} tasks: {page}, the slowest of {TIMES}, ms", sizes.seen);
        let mut line = Line::new(name, Floor::AtMost(1.0));
        let mut slowest = Duration::ZERO;
        for _ in 0..TIMES {
            let asked = Instant::now();
            connection.ask("GET", &path, "", 200).await?;
            slowest = slowest.max(asked.elapsed());
        }
        line.limit(WITHIN_MS);
        line.ours(slowest.as_secs_f64() * 1e3);
        lines.push(line);
    }
    drop(server);
    fresh.remove().await?;
    Ok(lines)
}

/// The kinds of what is scheduled.
fn of(number: usize) -> String {
    format!("{KIND}-{}", number % KINDS)
}

/// Schedules so many tasks over a week, and has some more die.
async fn fill(scheduler: &Scheduler, count: usize) -> Result<(), Error> {
    let now = Clock::system().now();
    let task = |number: usize| {
        let after = HOUR + WEEK.mul_f64(number as f64 / count as f64);
        let task = NewTask::from_bytes(of(number), [b'x'; 100]);
        task.key(format!("order-{number}")).at(now.after(after))
    };
    for first in (0..count).step_by(BATCH) {
        let tasks: Vec<_> = (first..count.min(first + BATCH)).map(task).collect();
        scheduler.schedule_all(tasks).await?;
    }
    let dying = (0..DEAD).map(|number| {
        NewTask::from_bytes(KIND, [b'x'; 100])
            .key(format!("order-{number}"))
            .at(now)
    });
    scheduler.schedule_all(dying.collect::<Vec<_>>()).await?;
    let (claims, kinds) = (scheduler.claims(), [Kind::from(KIND)]);
    let mut dead = 0;
    while dead < DEAD {
        for claimed in claims.take(&kinds, BATCH, HOUR, "bench").await? {
            claims
                .discard(claimed.claim, format!("error {}", dead % 7))
                .await?;
            dead += 1;
        }
    }
    Ok(())
}
