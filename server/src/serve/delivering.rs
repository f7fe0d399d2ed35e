//! What delivers tasks as a configuration says: a worker, and the claims of those that are fetched.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use delayline::claims::Claims;
use delayline::{Context, Kind, Policy, Scheduler, Worker};

use super::config::{Config, Delivery, KindConfig, Topic};
use super::demo;
#[cfg(feature = "rocketmq")]
use super::gateway::Publishing;
use super::http::Current;
use super::test_clock::{self, TestClock};
use super::topics::Topics;
use super::traces::Traces;
use super::webhook::Webhook;
use crate::Failure;

/// What all workers of a server stand on, whatever is configured.
pub(super) struct Delivering {
    pub(super) scheduler: Scheduler,
    /// The process, as the rows name it.
    pub(super) name: String,
    pub(super) claims: Claims,
    /// What each token claims by, where there are several. It outlives a reload, so that no token has more by one.
    pub(super) shares: BTreeMap<String, Claims>,
    pub(super) traces: Traces,
    pub(super) test_clock: Option<Arc<TestClock>>,
    pub(super) is_demo: bool,
    #[cfg(feature = "rocketmq")]
    pub(super) publishing: Option<Publishing>,
}

impl Delivering {
    /// The worker of the kinds that the server delivers itself, and what requests are answered by beside it.
    pub(super) async fn by(&mut self, config: &Config) -> Result<(Worker, Current), Failure> {
        let (mut pulled, topics) = (Vec::new(), Arc::new(Topics::default()));
        let worker = Worker::new(&self.scheduler).name(&self.name);
        let mut worker = worker.stop_timeout(config.worker.stop_timeout.0);
        if self.test_clock.is_some() {
            worker = worker.sweep_every(test_clock::SWEEP_EVERY);
        }
        let kinds = config.kinds();
        for KindConfig {
            kind,
            deliver,
            policy,
            timeout,
            ..
        } in kinds.iter().cloned()
        {
            match deliver {
                Delivery::Pull => pulled.push((kind, policy)),
                Delivery::Topic(topic) => {
                    worker = forward(worker, config, kind, policy, topic, &self.traces, &topics).await?;
                }
                Delivery::Webhook(endpoint) => {
                    let webhook = Webhook::new(endpoint, config.webhooks.allow.clone(), timeout)?;
                    worker = self.post(worker, kind, policy, webhook);
                }
            }
        }
        #[cfg(feature = "rocketmq")]
        if let (Some(publishing), Some(gateway)) = (&self.publishing, &config.gateway) {
            worker = publishing.handlers(gateway.get_ref(), worker);
        }
        if self.is_demo {
            worker = demo::handlers(worker);
        }
        worker.check()?;
        let delivered = kinds
            .into_iter()
            .map(|kind| (kind.kind, kind.deliver.to_string()));
        let current = Current {
            shares: self.shares(config, &pulled)?,
            claims: with_policies(&self.claims, &pulled)?,
            delivered: delivered.collect(),
            delivered_here: config.delivered_here(),
            of_gateway: config.gateway_kinds(),
            topics,
        };
        Ok((worker, current))
    }

    /// Returns what each token claims by, where there are several.
    fn shares(
        &mut self,
        config: &Config,
        pulled: &[(Kind, Policy)],
    ) -> Result<BTreeMap<String, Claims>, Failure> {
        let (tokens, mut shares) = (&config.http.tokens, BTreeMap::new());
        for token in tokens.iter().filter(|_| tokens.len() > 1) {
            let share = match self.shares.entry(token.get_ref().name.clone()) {
                Entry::Occupied(kept) => kept.into_mut(),
                Entry::Vacant(new) => new.insert(self.claims.share(config.http.memory().div_ceil(2))?),
            };
            shares.insert(token.get_ref().name.clone(), with_policies(share, pulled)?);
        }
        Ok(shares)
    }

    /// Has the tasks of a kind posted.
    fn post(&self, worker: Worker, kind: Kind, policy: Policy, webhook: Webhook) -> Worker {
        let webhook = Arc::new(webhook);
        let (traces, test_clock) = (self.traces.clone(), self.test_clock.clone());
        worker.handle_bytes(kind, policy, move |context: Context| {
            let (webhook, traces) = (Arc::clone(&webhook), traces.clone());
            let test_clock = test_clock.clone();
            async move {
                let span = traces.process(context.task());
                let (outcome, status) = webhook.deliver(context.task(), span.place()).await;
                if let (Some(test_clock), Some(status)) = (test_clock, status) {
                    test_clock.answered(context.task(), status);
                }
                let outcome = Ok(outcome);
                span.ended(&outcome);
                outcome
            }
        })
    }
}

/// Claims with the policies of these kinds.
fn with_policies(claims: &Claims, pulled: &[(Kind, Policy)]) -> Result<Claims, delayline::Error> {
    let mut policies = pulled.iter().cloned();
    policies.try_fold(claims.clone(), |claims, (kind, policy)| {
        claims.policy(kind, policy)
    })
}

/// Has the tasks of a kind published.
#[cfg(feature = "rocketmq")]
async fn forward(
    worker: Worker,
    config: &Config,
    kind: Kind,
    policy: Policy,
    Topic { topic, tag }: Topic,
    traces: &Traces,
    topics: &Arc<Topics>,
) -> Result<Worker, Failure> {
    let Some(rocketmq) = &config.rocketmq else {
        return Err(Failure::Argument(format!(
            "{kind} is delivered to a topic, and there is no [rocketmq]"
        )));
    };
    // A server starts while its brokers are away.
    let options = rocketmq.options().lazy();
    let mut forward = delayline::Forward::connect(options, topic.as_str()).await?;
    topics.watch(&topic, &forward);
    if let Some(tag) = tag {
        forward = forward.tag(tag);
    }
    forward.check()?;
    let traces = traces.clone();
    Ok(worker.handle_bytes(kind, policy, move |context: Context| {
        let (forward, span) = (forward.clone(), traces.process(context.task()));
        async move {
            let outcome = match span.place() {
                Some(place) => {
                    forward
                        .publish_in_trace(&context, &place.traceparent, place.tracestate.as_deref())
                        .await
                }
                None => forward.publish(&context).await,
            };
            span.ended(&outcome);
            outcome
        }
    }))
}

#[cfg(not(feature = "rocketmq"))]
async fn forward(
    _: Worker,
    _: &Config,
    _: Kind,
    _: Policy,
    Topic { .. }: Topic,
    _: &Traces,
    _: &Arc<Topics>,
) -> Result<Worker, Failure> {
    Err(super::open::not_built("rocketmq"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use delayline::NewTask;
    use delayline::store::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn a_reload_gives_no_token_more() {
        let scheduler = Scheduler::new(MemoryStore::new());
        let mut delivering = Delivering {
            claims: scheduler.claims(),
            shares: BTreeMap::new(),
            scheduler: scheduler.clone(),
            name: "test".to_owned(),
            traces: Traces::start(None).unwrap(),
            test_clock: None,
            is_demo: false,
            #[cfg(feature = "rocketmq")]
            publishing: None,
        };
        let token = |name: &str, digit: &str| {
            let sha256 = digit.repeat(64);
            format!("{{name = \"{name}\", sha256 = \"{sha256}\", may = [\"work\"]}}")
        };
        let file = format!(
            "[http]\nbody_limit = 1\nmemory_limit = 2\ntokens = [{}, {}]\n[kinds.k]\ndeliver = \"pull\"",
            token("a", "a"),
            token("b", "b")
        );
        let config = Config::parse("test", &file).unwrap();
        scheduler
            .schedule(NewTask::new("k", &"12").after(Duration::ZERO))
            .await
            .unwrap();

        let (_, before) = delivering.by(&config).await.unwrap();
        let claimed = before.shares["a"]
            .take(&["k".into()], 1, Duration::from_secs(1), "a")
            .await
            .unwrap();
        assert_eq!(claimed.len(), 1);
        let (_, after) = delivering.by(&config).await.unwrap();
        let full = |current: &Current, name: &str| current.shares[name].is_full();
        assert!(full(&before, "a") && full(&after, "a") && !full(&after, "b"));
    }
}
