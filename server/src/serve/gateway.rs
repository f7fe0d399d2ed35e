//! Runs the gateway: ordinary messages of any producer, delayed.

mod answer;
mod asked;
mod batch;
mod changing;
mod delivery;
mod found_task;
mod origin;
mod overtaken;
mod publishing;
mod rejected;
mod request;
mod scheduling;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use delayline::Scheduler;
use delayline::rocketmq::{Inbox, Message, PublishError, Publisher, Received, RocketMqOptions};
use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::asked::Asked;
pub(super) use self::publishing::Publishing;
use super::config;
use super::test_clock::TestClock;
use super::traces::Traces;
use super::unscheduled::{self, Unscheduled};
use crate::Failure;

/// The counter of messages.
const MESSAGES: &str = "delayline.gateway.messages";
/// How many messages are processed at once, at the most.
const BATCH: usize = 500;
/// While bodies of this many bytes wait for the store, no more are taken.
const WAITING_BYTES: usize = 32 << 20;
/// How long messages wait after the store has failed: doubled each time, up to the longest.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_AT_MOST: Duration = Duration::from_secs(5);
/// How many batches of answers may be in flight.
const BATCHES_ANSWERED: usize = 64;
/// How long to wait for them at the end.
const LAST_ANSWERS: Duration = Duration::from_secs(3);
/// How often sending an answer is tried.
const ANSWER_TRIES: u32 = 3;

/// Receives messages, schedules them, and answers senders that want to know.
pub(super) struct Gateway {
    inbox: Inbox,
    publishing: Publishing,
    traces: Traces,
    unscheduled: Unscheduled,
    test_clock: Option<Arc<TestClock>>,
}

impl Gateway {
    /// Starts to receive. A server starts while its brokers are away.
    pub(super) async fn open(
        config: config::Gateway,
        rocketmq: RocketMqOptions,
        traces: Traces,
        unscheduled: Unscheduled,
    ) -> Result<Self, Failure> {
        ::metrics::describe_counter!(MESSAGES, "messages to the gateway, and what was answered");
        let options = rocketmq.group(&config.group).lazy();
        let publisher = Publisher::connect(options.clone()).await?;
        let inbox = Inbox::connect(options, config.topics()).await?;
        Ok(Self {
            inbox,
            publishing: Publishing::new(publisher, config, traces.clone()),
            traces,
            unscheduled,
            test_clock: None,
        })
    }

    /// Counts delays from the time of this clock, if there is one, and not from when a broker has stored a message.
    pub(super) fn by(self, test_clock: Option<Arc<TestClock>>) -> Self {
        Self { test_clock, ..self }
    }

    /// What publishes, for the workers that do.
    pub(super) fn publishing(&self) -> Publishing {
        self.publishing.clone()
    }

    /// Processes messages until it is stopped.
    pub(super) async fn run(self, scheduler: Scheduler, stopped: impl Future<Output = ()>) {
        let mut answering = JoinSet::new();
        // The broker has checked a message's length when it took it; and rejected messages are kept whole.
        let scheduler = scheduler
            .by(&format!("gateway:{}", self.publishing.config().group))
            .payload_limit(usize::MAX);
        tokio::select! {
            () = stopped => {}
            () = self.receive(&scheduler, &mut answering) => {}
        }
        // Unacknowledged messages come again, to another server.
        self.inbox.close().await;
        let answered = async { while answering.join_next().await.is_some() {} };
        // A sender without an answer asks again.
        let _ = tokio::time::timeout(LAST_ANSWERS, answered).await;
        // The publisher ends with the last handler that has it.
    }

    /// Receives until nothing more can come.
    async fn receive(&self, scheduler: &Scheduler, answering: &mut JoinSet<()>) {
        // Those that wait for the store come first, and are tried again at a time of their own: others wait for such a try
        // alone, unless they are about the same tasks.
        let (mut asked, mut again_at, mut pause) = (Vec::new(), Instant::now(), AGAIN);
        loop {
            let (waiting, room) = (asked.len(), room_beside(&asked));
            let first = tokio::select! {
                biased;
                () = sleep_until(again_at), if waiting > 0 => 0,
                received = self.inbox.receive(room), if room > 0 => {
                    let Ok(messages) = received else { return };
                    let config = self.publishing.config();
                    asked.extend(messages.into_iter().map(|message| self.read(message, &config)));
                    waiting
                }
            };
            let begun = Instant::now();
            let tried = batch::deal_with(scheduler, &self.traces, &mut asked, first).await;
            if let Err(error) = tried
                && first == 0
            {
                tracing::warn!(
                    %error,
                    "messages could not be carried out, and wait at the broker until they are; see that the store is up, and that \
                     no other session has their rows locked"
                );
                // A try may wait for a locked row, and all others with it: they have most of the time.
                again_at = Instant::now() + pause.max(3 * begun.elapsed());
                pause = (2 * pause).min(AGAIN_AT_MOST);
            }
            let done;
            (done, asked) = asked.into_iter().partition(|asked| asked.reply.is_some());
            if asked.is_empty() {
                pause = AGAIN;
            }
            self.answer(done, answering).await;
        }
    }

    /// Reads a message, and rejects one that no broker would take when it is due.
    fn read(&self, message: Received, config: &config::Gateway) -> Asked {
        let test_clock = self.test_clock.as_ref();
        let from = test_clock.map_or(message.stored_at, |test_clock| test_clock.now());
        let mut asked = Asked::read(message, from, config);
        let publisher = &self.publishing.publisher;
        asked.longest = publisher.longest_body();
        let checked = match &asked.request {
            Ok(request) => delivery::check(publisher, &asked.message, request),
            Err(_) => Ok(()),
        };
        if let Err(reason) = checked {
            asked.request = Err(reason);
        }
        asked
    }

    /// Answers messages that are done, and acknowledges them.
    async fn answer(&self, done: Vec<Asked>, answering: &mut JoinSet<()>) {
        let config = self.publishing.config();
        done.iter().for_each(|asked| self.record(asked));
        let answers = done.iter().filter_map(|asked| answer(asked, &config));
        let answers: Vec<_> = answers
            .map(|(to, answer)| send(self.publishing.publisher.clone(), to, answer))
            .collect();
        let messages: Vec<_> = done.into_iter().map(|asked| asked.message).collect();
        self.inbox.acknowledge(&messages);
        if !answers.is_empty() {
            // In a task of its own, as an answer takes time if its sender has gone away.
            answering.spawn(async {
                join_all(answers).await;
            });
        }
        while answering.try_join_next().is_some() {}
        while answering.len() > BATCHES_ANSWERED {
            answering.join_next().await;
        }
    }

    /// Counts a message, and logs if it will not come out, though it was to be scheduled.
    fn record(&self, asked: &Asked) {
        let (Some(reply), message) = (&asked.reply, &asked.message) else {
            return;
        };
        ::metrics::counter!(MESSAGES, "answer" => reply.answer).increment(1);
        if let Some(reason) = &reply.unscheduled {
            tracing::warn!(
                topic = message.topic,
                message = message.id,
                answer = reply.answer,
                reason,
                "a message was not scheduled, and will not come out"
            );
            self.unscheduled.add(unscheduled::Message {
                topic: message.topic.clone(),
                id: message.id.clone(),
                stored_at: message.stored_at,
                answer: reply.answer,
                reason: reason.clone(),
            });
        }
    }
}

/// Says how many more messages are taken while these wait for the store.
fn room_beside(waiting: &[Asked]) -> usize {
    let bytes = |asked: &Asked| match (&asked.message.body, asked.message.raw_body()) {
        (Ok(body), _) => body.len(),
        (Err(_), raw) => raw.map_or(0, |(raw, _)| raw.len()),
    };
    match waiting.iter().map(bytes).sum::<usize>() < WAITING_BYTES {
        true => BATCH.saturating_sub(waiting.len()),
        false => 0,
    }
}

/// Makes the answer for the sender of a message, if it wants one, with the id of the message.
fn answer(asked: &Asked, config: &config::Gateway) -> Option<(String, Message)> {
    let reply = asked.reply.as_ref()?;
    let answer = addressed(asked, reply, config)?;
    Some((asked.message.id.clone(), answer))
}

/// Addresses the answer to the sender if that waits, or to the topic that it named.
fn addressed(asked: &Asked, reply: &answer::Reply, config: &config::Gateway) -> Option<Message> {
    let message = &asked.message;
    let body = serde_json::to_vec(reply).ok()?;
    if let Some(reply) = message.reply(body.clone()) {
        return Some(reply);
    }
    let topic = request::reply_topic(message, config).ok()??;
    let answer = Message::new(topic, body).property("DELAYLINE_MESSAGE_ID", &message.id);
    Some(message.keys().fold(answer, Message::key))
}

/// Sends the answer to the message of this id, and tries again.
async fn send(publisher: Publisher, message: String, answer: Message) {
    let mut pause = AGAIN;
    for _ in 0..ANSWER_TRIES {
        match publisher.publish(answer.clone()).await {
            Ok(()) => return,
            Err(PublishError::Rejected(error)) => {
                tracing::warn!(error, message, "an answer cannot be sent");
                return;
            }
            Err(error) => tracing::debug!(%error, message, "an answer could not be sent yet"),
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    tracing::warn!(
        message,
        "an answer could not be sent: its sender has gone away, or the broker has; who asked may ask again"
    );
}
