//! Messages that wait on the broker, until their wake-ups are there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use delayline::clock::Clock;
use rocketmq_model::common::message::MessageTrait as _;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_single::Message;
use tokio::runtime::Handle;

use crate::bare_rows::{Row, TABLE, Writer};
use crate::place::Place;
use crate::post::{Levels, Post, rate};
use crate::table::{Floor, Line};
use crate::wanted::Sizes;
use crate::{Error, KIND};

/// Whatever else happens first, the first hop then is by the level of an hour.
const DUE_AFTER: Duration = Duration::from_secs(5_400);
/// After what has come, what comes twice has so long.
const TWICE_WITHIN: Duration = Duration::from_secs(1);
/// The topic to which all go in the end, which need not be there by then.
const TARGET: &str = "bench_out";

pub(crate) async fn measure(post: &Post<'_>, place: &Place, sizes: &Sizes) -> Result<Vec<Line>, Error> {
    if matches!(place, Place::Redis(_)) {
        return Err("gateway is measured on databases: allowed are sqlite and postgres://…".into());
    }
    // A broker's Java is several times slower until it has been used for a while.
    let ours = through_server(post, place, sizes.warm_up).await?;
    let slower = bare(post, place, sizes.warm_up).await?.min(ours);
    let count = (slower * sizes.sustained.as_secs_f64()) as usize;
    let name = format!("{count} messages in, until their wake-ups are on the broker, 1/s");
    let mut line = Line::new(name, Floor::AtLeast(0.5));
    for _ in 0..sizes.rounds {
        line.limit(bare(post, place, count).await?);
        line.ours(through_server(post, place, count).await?);
    }
    Ok(vec![line])
}

async fn fill(post: &Post<'_>, topic: &str, count: usize) -> Result<(), Error> {
    let due = Clock::system().now().after(DUE_AFTER).to_string();
    let message = |number| {
        Ok(Message::builder()
            .topic(topic)
            .key(format!("order-{number}"))
            .body(vec![b'x'; 100])
            .raw_property("DELAYLINE_TOPIC", TARGET)?
            .raw_property("DELAYLINE_AT", due.as_str())?
            .build()?)
    };
    post.send(count, message).await
}

async fn through_server(post: &Post<'_>, place: &Place, count: usize) -> Result<f64, Error> {
    let (topic, fresh) = (post.topic().await?, place.fresh().await?);
    fill(post, &topic, count).await?;
    let levels = Levels::from_now_on(post.client).await?;
    let server = post.gateway(&fresh, &topic, TARGET);
    let rate = rate(count, async || levels.more().await).await?;
    tokio::time::sleep(TWICE_WITHIN).await;
    let sent = levels.more().await?;
    levels.close().await;
    drop(server);
    fresh.has("delayline_tasks", count).await?;
    fresh.remove().await?;
    match sent == count {
        true => Ok(rate),
        false => Err(format!("{count} messages have had {sent} wake-ups").into()),
    }
}

/// Consumes, and writes with one INSERT what the listeners have been given meanwhile.
async fn bare(post: &Post<'_>, place: &Place, count: usize) -> Result<f64, Error> {
    let (topic, fresh) = (post.topic().await?, place.fresh().await?);
    fill(post, &topic, count).await?;
    let writer = Writer::start(&fresh.url).await?;
    let written = Arc::new(AtomicUsize::new(0));
    let (counter, handle) = (Arc::clone(&written), Handle::current());
    let listen = move |messages: &[&MessageExt]| {
        let row = |message: &&MessageExt| {
            let key = message
                .get_keys()
                .map(|keys| keys.to_string())
                .unwrap_or_default();
            let body = message.get_body().map(|body| body.to_vec()).unwrap_or_default();
            Row::new(key, body)
        };
        let rows = messages.iter().map(row).collect();
        // Until then the broker is not told that they are consumed.
        match handle.block_on(writer.write(rows)) {
            Ok(()) => drop(counter.fetch_add(messages.len(), Ordering::Relaxed)),
            Err(error) => eprintln!("messages of {KIND} could not be written: {error}"),
        }
    };
    let mut consumer = post.client.consume(&topic, listen).await?;
    let rate = rate(count, async || Ok(written.load(Ordering::Relaxed))).await?;
    tokio::time::sleep(TWICE_WITHIN).await;
    consumer.shutdown().await;
    fresh.has(TABLE, count).await?;
    fresh.remove().await?;
    Ok(rate)
}
