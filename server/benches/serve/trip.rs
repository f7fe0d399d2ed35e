//! One message in and out, due at once.

use std::time::{Duration, Instant};

use rocketmq_model::common::message::MessageTrait as _;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_single::Message;
use tokio::sync::mpsc;

use crate::Error;
use crate::client::Client;
use crate::place::Place;
use crate::post::Post;
use crate::table::{Floor, Line, median};
use crate::wanted::Sizes;

/// Trips that are made before.
const WARM_UP: usize = 20;
/// After how long one counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(60);
/// After the last one, what comes twice has so long.
const TWICE_WITHIN: Duration = Duration::from_secs(1);
/// Between two trips: nothing of one is to be in the other.
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) async fn measure(post: &Post<'_>, place: &Place, sizes: &Sizes) -> Result<Vec<Line>, Error> {
    let name = format!("one message in and out, {} times: median, ms", sizes.trips);
    let mut line = Line::new(name, Floor::AtMostMore(15.0));
    for _ in 0..sizes.rounds {
        line.limit(passed_on(post, sizes.trips).await?);
        line.ours(through_server(post, place, sizes.trips).await?);
    }
    Ok(vec![line])
}

/// By a consumer that sends each to where it goes.
async fn passed_on(post: &Post<'_>, count: usize) -> Result<f64, Error> {
    let (inbox, out) = (post.topic().await?, post.topic().await?);
    let (pass, mut passing) = mpsc::unbounded_channel();
    let mut consumer = post
        .client
        .consume(&inbox, move |messages| {
            for message in messages {
                // A message that comes after the end is not passed on.
                let _ = pass.send(body_of(message));
            }
        })
        .await?;
    let (producer, target) = (post.client.producer.clone(), out.clone());
    let passer = tokio::spawn(Box::pin(async move {
        while let Some(body) = passing.recv().await {
            let message = Message::builder().topic(target.as_str()).body(body).build()?;
            producer.send(message).await?;
        }
        Ok::<_, Error>(())
    }));
    let median = trips(post.client, &inbox, &out, count).await;
    consumer.shutdown().await;
    passer.abort();
    median
}

async fn through_server(post: &Post<'_>, place: &Place, count: usize) -> Result<f64, Error> {
    let (inbox, out, fresh) = (post.topic().await?, post.topic().await?, place.fresh().await?);
    let server = post.gateway(&fresh, &inbox, &out);
    let median = trips(post.client, &inbox, &out, count).await;
    drop(server);
    fresh.remove().await?;
    median
}

/// How long it takes at the median, in ms, from the send to the consumer: one after the other.
async fn trips(client: &Client, inbox: &str, out: &str, count: usize) -> Result<f64, Error> {
    let (come, mut comes) = mpsc::unbounded_channel();
    let mut consumer = client
        .consume(out, move |messages| {
            for message in messages {
                // A message that comes after the end is not waited for.
                let _ = come.send((Instant::now(), body_of(message)));
            }
        })
        .await?;
    let mut took = Vec::with_capacity(count);
    for number in 0..WARM_UP + count {
        let body = format!("{number:<100}");
        let message = Message::builder()
            .topic(inbox)
            .body(body.clone())
            .raw_property("DELAYLINE_TOPIC", out)?
            .raw_property("DELAYLINE_AFTER", "0")?
            .build()?;
        let begun = Instant::now();
        Box::pin(client.producer.send(message)).await?;
        let (at, came) = tokio::time::timeout(LOST_AFTER, comes.recv())
            .await
            .map_err(|_| format!("message {number} got lost"))?
            .ok_or("the consumer has ended")?;
        if came != body.as_bytes() {
            return Err(format!(
                "another one came than message {number}: {}",
                String::from_utf8_lossy(&came)
            )
            .into());
        }
        if number >= WARM_UP {
            took.push(at.duration_since(begun).as_secs_f64() * 1e3);
        }
        tokio::time::sleep(PAUSE).await;
    }
    let again = tokio::time::timeout(TWICE_WITHIN, comes.recv()).await;
    consumer.shutdown().await;
    match again {
        Err(_) => Ok(median(&took)),
        Ok(_) => Err("a message came twice".into()),
    }
}

fn body_of(message: &MessageExt) -> Vec<u8> {
    message.get_body().map(|body| body.to_vec()).unwrap_or_default()
}
