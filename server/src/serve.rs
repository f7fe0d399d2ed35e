//! `delayline serve`: Delayline for services in any language.

#[cfg(feature = "otlp")]
mod collector;
mod config;
mod demo;
mod derived_id;
mod descriptors;
#[cfg(feature = "rocketmq")]
mod gateway;
mod http;
mod log;
mod metrics;
mod open;
mod process_name;
mod recent;
mod test_clock;
mod text;
mod topics;
mod traces;
#[cfg_attr(
    not(feature = "rocketmq"),
    allow(dead_code, reason = "another build adds to it")
)]
mod unscheduled;
mod webhook;

use std::path::PathBuf;
use std::sync::Arc;

use delayline::claims::Claims;
use delayline::{Context, Kind, Policy, Scheduler, Worker, defaults};
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::config::{Config, Delivery, Flags};
use self::http::{Access, App, ClaimKinds, Pages, Room};
use self::test_clock::TestClock;
use self::topics::Topics;
use self::traces::Traces;
use self::unscheduled::Unscheduled;
use self::webhook::Webhook;
use crate::Failure;
use crate::operations::{Health, Jobs};

/// Serve tasks to services in any language, over HTTP.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// The configuration; without it, flags and the environment say what differs from the defaults: tasks are in
    /// delayline.db in the working directory, and only this machine is served, on port 7700
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only say whether the configuration can be used
    #[arg(long)]
    check: bool,
    /// Add kinds of tasks that act by themselves, to look at; where no store is said, all tasks are in memory
    #[arg(long)]
    demo: bool,
    /// Keep all tasks in memory, on a clock that stands still unless POST /v1/time/advance turns it: for tests of services
    #[arg(long, conflicts_with = "demo")]
    test_clock: bool,
    /// How to write the log
    #[arg(long, value_name = "FORMAT", default_value = "lines")]
    log: log::Format,
    #[command(flatten)]
    settings: Flags,
}

impl Serve {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        let flags = std::mem::take(&mut self.settings);
        let config = Config::read(self.config.as_deref(), flags);
        let config = config.map_err(|mistake| Failure::Argument(mistake.to_string()))?;
        if self.test_clock {
            TestClock::check(&config)?;
        }
        if self.check {
            open::Parts::check(&config)?;
            return crate::print("the configuration can be used\n");
        }
        log::start(self.log);
        let runtime = match self.test_clock {
            // As that asks for.
            true => tokio::runtime::Builder::new_current_thread().enable_all().build(),
            false => tokio::runtime::Builder::new_multi_thread().enable_all().build(),
        };
        runtime.map_err(Failure::Runtime)?.block_on(self.serve(config))
    }

    async fn serve(self, config: Config) -> Result<(), Failure> {
        // Before whatever opens files.
        let files = descriptors::raise();
        let most_connections = descriptors::connections(config.http.connection_limit.get(), files);
        // Before whatever tells figures.
        let recorded = metrics::start(config.otlp.as_ref())?;
        let traces = Traces::start(config.otlp.as_ref())?;
        let in_memory = self.demo && self.config.is_none() && !config.is_given("store.url");
        let listen = *config.http.listen.get_ref();
        let listener = TcpListener::bind(listen.0).await.map_err(|cause| {
            Failure::Argument(format!(
                "{} is \"{listen}\", where nothing can listen: {cause}",
                config.name_of("http.listen")
            ))
        })?;
        let address = listener.local_addr().map_err(Failure::Runtime)?;
        let listener = listener.into_std().map_err(Failure::Runtime)?;
        // Before there is anything to wait for.
        let mut asked_to_stop = std::pin::pin!(asked_to_stop());
        let test_clock = self.test_clock.then(|| Arc::new(TestClock::start(&config)));
        let opening = open::Parts::open(&config, in_memory, test_clock.as_deref());
        let opening = http::answer_while(
            &listener,
            config.http.base_path.as_str(),
            open::store_name(&config),
            opening,
        );
        let parts = tokio::select! {
            () = &mut asked_to_stop => {
                tracing::info!("stopping, before the store has answered");
                return Ok(());
            }
            parts = opening => parts.map_err(Failure::Runtime)??,
        };
        let listener = TcpListener::from_std(listener).map_err(Failure::Runtime)?;
        let scheduler = parts.scheduler()?;
        let topics = Arc::new(Topics::default());
        let (mut worker, claims) =
            delivering(&config, &scheduler, &traces, &topics, test_clock.as_ref()).await?;
        let name = process_name::process_name(address);
        worker = worker.name(&name);
        let unscheduled = Unscheduled::default();
        #[cfg(feature = "rocketmq")]
        let gateway = match (&config.gateway, &config.rocketmq) {
            (Some(gateway), Some(rocketmq)) => {
                let gateway = gateway.get_ref().clone();
                let (options, traces) = (rocketmq.options(), traces.clone());
                let gateway = gateway::Gateway::open(gateway, options, traces, unscheduled.clone()).await?;
                let gateway = gateway.by(test_clock.clone());
                worker = gateway.handlers(worker);
                Some(gateway)
            }
            _ => None,
        };
        if self.demo {
            worker = demo::handlers(worker);
        }
        let (stop, stopping) = watch::channel(false);
        let several = config.http.tokens.len() > 1;
        let room = || Room::new(config.http.memory(), several);
        let tokens = config.http.tokens.iter();
        let access = Access::new(
            tokens.map(|token| token.get_ref().clone()),
            config.http.trusted_proxies.clone(),
        );
        let app = Arc::new(App {
            scheduler: scheduler.clone(),
            claims,
            traces: traces.clone(),
            stopping: stopping.clone(),
            health: Health::new(Arc::clone(&parts.store), parts.backends()),
            store: parts.store,
            name,
            started_at: crate::time::now(),
            pages: Pages::new(&access)
                .map_err(|error| Failure::Found(format!("the system has no random numbers: {error}")))?,
            access,
            body_limit: config.http.body_limit,
            room: room(),
            room_for_uploads: room(),
            room_for_many: room(),
            room_for_scrapes: Room::for_scrapes(),
            // The other connections are for those that are answered at once.
            room_for_waiting: Room::new(most_connections - most_connections / 4, several),
            figures: recorded.for_prometheus,
            recent: recorded.recent,
            unscheduled,
            delivered: config
                .kinds()
                .into_iter()
                .map(|kind| (kind.kind, kind.deliver.to_string()))
                .collect(),
            delivered_here: config.delivered_here(),
            claim_kinds: ClaimKinds::default(),
            of_gateway: config.gateway_kinds(),
            topics,
            test_clock: test_clock.clone(),
            jobs: Jobs::default(),
            base_path: config.http.base_path.as_str().to_owned(),
            trace_url: config.http.trace_url.clone(),
        });
        let stopped = move |mut stopping: watch::Receiver<bool>| async move {
            // Also when the sender of the stop is gone.
            let _ = stopping.wait_for(|stop| *stop).await;
        };
        let working = worker.run_until(stopped(stopping.clone()));
        let mut working = match &test_clock {
            Some(test_clock) => tokio::spawn(test_clock.watch(working)),
            None => tokio::spawn(working),
        };
        #[cfg(feature = "rocketmq")]
        let receiving =
            gateway.map(|gateway| tokio::spawn(gateway.run(scheduler.clone(), stopped(stopping.clone()))));
        let base_path = config.http.base_path.as_str();
        let router = http::router(Arc::clone(&app));
        let serving = tokio::spawn(http::serve(listener, router, most_connections, stopping.clone()));
        let acting = self
            .demo
            .then(|| tokio::spawn(demo::callers(scheduler.by("demo"), stopped(stopping))));
        tracing::info!(url = %format_args!("http://{address}{base_path}"), "serving");
        // For a program that starts the server and waits until it is ready; its log may be anywhere.
        crate::print(&format!("serving http://{address}{base_path}\n"))?;

        tokio::select! {
            () = &mut asked_to_stop => {}
            ended = &mut working => return ended_early(ended),
        }
        tracing::info!("stopping: what is under way ends, and what has not begun is given back");
        let _ = stop.send(true);
        drop(acting);
        #[cfg(feature = "rocketmq")]
        if let Some(receiving) = receiving {
            // An error is a defect of its own, which the log has.
            let _ended = receiving.await;
        }
        let limit = config.worker.stop_timeout.0;
        let served = tokio::time::timeout(limit, serving).await;
        if served.is_err() {
            tracing::warn!("requests were still under way at the end of the stop timeout, and are cut off");
        }
        if tokio::time::timeout(limit, app.jobs.have_ended()).await.is_err() {
            tracing::warn!(
                "changes in bulk were still under way at the end of the stop timeout, and are cut off"
            );
        }
        match working.await {
            Ok(worked) => worked?,
            defect => return ended_early(defect),
        }
        scheduler.close().await?;
        traces.end().await;
        if let Some(sent) = recorded.sent {
            sent.end().await;
        }
        Ok(())
    }
}

/// The worker of the kinds that the server delivers itself, and the claims of those that are fetched.
async fn delivering(
    config: &Config,
    scheduler: &Scheduler,
    traces: &Traces,
    topics: &Arc<Topics>,
    test_clock: Option<&Arc<TestClock>>,
) -> Result<(Worker, Claims), Failure> {
    let mut claims = scheduler.claims().payload_bytes_in_all(config.http.memory())?;
    let mut worker = Worker::new(scheduler).stop_timeout(config.worker.stop_timeout.0);
    if test_clock.is_some() {
        worker = worker.sweep_every(test_clock::SWEEP_EVERY);
    }
    for config::KindConfig {
        kind,
        deliver,
        attempts,
        concurrency,
    } in config.kinds()
    {
        let mut policy = Policy::new();
        if let Some(attempts) = attempts {
            policy = policy.max_attempts(attempts);
        }
        if let Some(concurrency) = concurrency {
            policy = policy.concurrency(concurrency);
        }
        match deliver {
            Delivery::Pull => claims = claims.policy(kind, policy)?,
            Delivery::Topic(topic) => {
                worker = forward(worker, config, kind, policy, topic, traces, topics).await?;
            }
            Delivery::Webhook(endpoint) => {
                // What is claimed in advance waits for a receiver that may be slow, and meanwhile can be neither cancelled
                // nor posted by another server.
                let policy = policy.prefetch(concurrency.unwrap_or(defaults::CONCURRENCY));
                let webhook = Arc::new(Webhook::new(endpoint, config.webhooks.allow.clone())?);
                let (traces, test_clock) = (traces.clone(), test_clock.cloned());
                worker = worker.handle_bytes(kind, policy, move |context: Context| {
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
                });
            }
        }
    }
    Ok((worker, claims))
}

/// Has the tasks of a kind published.
#[cfg(feature = "rocketmq")]
async fn forward(
    worker: Worker,
    config: &Config,
    kind: Kind,
    policy: Policy,
    config::Topic { topic, tag }: config::Topic,
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
    let mut forward = delayline::rocketmq::Forward::connect(options, topic.as_str()).await?;
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
    config::Topic { .. }: config::Topic,
    _: &Traces,
    _: &Arc<Topics>,
) -> Result<Worker, Failure> {
    Err(open::not_built("rocketmq"))
}

/// Listens for SIGTERM and SIGINT from now on, and waits for one of them.
fn asked_to_stop() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let signals = {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::terminate())
            .and_then(|terminate| Ok((terminate, signal(SignalKind::interrupt())?)))
    };
    async {
        #[cfg(unix)]
        if let Ok((mut terminate, mut interrupt)) = signals {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            return;
        }
        if tokio::signal::ctrl_c().await.is_err() {
            // Without signals nothing can ask it to stop.
            std::future::pending().await
        }
    }
}

fn ended_early(ended: Result<Result<(), delayline::Error>, tokio::task::JoinError>) -> Result<(), Failure> {
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.into()),
        Err(defect) => Err(Failure::Found(format!("the worker ended by a defect: {defect}"))),
    }
}
