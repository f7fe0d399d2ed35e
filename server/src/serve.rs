//! `delayline serve`: Delayline for services in any language.

#[cfg(feature = "otlp")]
mod collector;
#[cfg_attr(
    not(all(feature = "otlp", feature = "redis", feature = "rocketmq")),
    allow(dead_code, reason = "another build reads it")
)]
mod config;
mod delivering;
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
mod reload;
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
mod workers;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::config::{Config, Flags};
use self::delivering::Delivering;
use self::http::{App, ClaimKinds, Pages, Room};
use self::reload::{Running, Source};
use self::test_clock::TestClock;
use self::traces::Traces;
use self::unscheduled::Unscheduled;
use self::workers::Workers;
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
    /// The configuration that a server runs by: say as well what it would take over from the one that is checked, and for what it
    /// would have to be restarted
    #[arg(long, value_name = "FILE", requires = "check", requires = "config")]
    running: Option<PathBuf>,
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
        let source = Source {
            file: self.config.clone(),
            flags: std::mem::take(&mut self.settings),
            is_test_clock: self.test_clock,
        };
        let config = source.read()?;
        if self.check {
            let compared = self
                .running
                .take()
                .map(|running| compared(&source, &config, running));
            return crate::print(&format!(
                "the configuration can be used\n{}",
                compared.transpose()?.unwrap_or_default()
            ));
        }
        log::start(self.log);
        let runtime = match self.test_clock {
            // As that asks for.
            true => tokio::runtime::Builder::new_current_thread().enable_all().build(),
            false => tokio::runtime::Builder::new_multi_thread().enable_all().build(),
        };
        runtime
            .map_err(Failure::Runtime)?
            .block_on(self.serve(source, config))
    }

    async fn serve(self, source: Source, config: Config) -> Result<(), Failure> {
        // Before whatever opens files.
        let files = descriptors::raise();
        let most_connections = descriptors::connections(config.http.connection_limit.get(), files);
        // Before whatever tells figures.
        let recorded = metrics::start(config.otlp.as_ref())?;
        reload::describe();
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
        let mut asked_to_reload = reload::Asked::listen();
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
        let name = process_name::process_name(address);
        reload::keep(&scheduler, &config);
        let unscheduled = Unscheduled::default();
        #[cfg(feature = "rocketmq")]
        let gateway = match (&config.gateway, &config.rocketmq) {
            (Some(gateway), Some(rocketmq)) => {
                let gateway = gateway.get_ref().clone();
                let (options, traces) = (rocketmq.options(), traces.clone());
                let gateway = gateway::Gateway::open(gateway, options, traces, unscheduled.clone()).await?;
                Some(gateway.by(test_clock.clone()))
            }
            _ => None,
        };
        let mut delivering = Delivering {
            claims: scheduler.claims().payload_bytes_in_all(config.http.memory())?,
            shares: Default::default(),
            scheduler: scheduler.clone(),
            name: name.clone(),
            traces: traces.clone(),
            test_clock: test_clock.clone(),
            is_demo: self.demo,
            #[cfg(feature = "rocketmq")]
            publishing: gateway.as_ref().map(gateway::Gateway::publishing),
        };
        let (worker, current) = delivering.by(&config).await?;
        let (stop, stopping) = watch::channel(false);
        let several = config.http.tokens.len() > 1;
        let room = || Room::new(config.http.memory(), several);
        let access = reload::access(&config);
        let app = Arc::new(App {
            scheduler: scheduler.clone(),
            current: watch::Sender::new(Arc::new(current)),
            traces: traces.clone(),
            stopping: stopping.clone(),
            health: Health::new(Arc::clone(&parts.store), parts.backends()),
            store: parts.store,
            name,
            started_at: crate::time::now(),
            pages: Pages::new(&access).map_err(reload::no_chance)?,
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
            claim_kinds: ClaimKinds::default(),
            test_clock: test_clock.clone(),
            jobs: Jobs::default(),
            base_path: config.http.base_path.as_str().to_owned(),
            trace_url: config.http.trace_url.clone(),
        });
        let workers = Workers::start(worker, test_clock, stopping.clone());
        #[cfg(feature = "rocketmq")]
        let mut receiving =
            gateway.map(|gateway| tokio::spawn(gateway.run(scheduler.clone(), stopped(stopping.clone()))));
        #[cfg(not(feature = "rocketmq"))]
        let mut receiving = None;
        let base_path = config.http.base_path.as_str();
        let router = http::router(Arc::clone(&app));
        let serving = tokio::spawn(http::serve(listener, router, most_connections, stopping.clone()));
        let acting = self
            .demo
            .then(|| tokio::spawn(demo::callers(scheduler.by("demo"), stopped(stopping))));
        tracing::info!(url = %format_args!("http://{address}{base_path}"), "serving");
        // For a program that starts the server and waits until it is ready; its log may be anywhere.
        crate::print(&format!("serving http://{address}{base_path}\n"))?;

        let stop_timeout = config.worker.stop_timeout.0;
        let mut running = Running {
            source,
            config,
            delivering,
            workers,
            app: Arc::clone(&app),
        };
        loop {
            tokio::select! {
                () = &mut asked_to_stop => break,
                ended = running.workers.ended_early() => return ended,
                ended = receiving_ended_early(&mut receiving) => return Err(ended),
                () = asked_to_reload.next() => {}
            }
            tokio::select! {
                () = &mut asked_to_stop => break,
                () = running.reload() => {}
            }
        }
        tracing::info!("stopping: what is under way ends, and what has not begun is given back");
        let _ = stop.send(true);
        drop(acting);
        if let Some(receiving) = receiving {
            // An error is a defect of its own, which the log has.
            let _ended = receiving.await;
        }
        let ended = tokio::time::timeout(stop_timeout, async {
            let _ended = serving.await;
            // Which requests may begin.
            app.jobs.have_ended().await;
        });
        if ended.await.is_err() {
            tracing::warn!(
                "requests or changes in bulk were still under way at the end of the stop timeout, and are cut off"
            );
        }
        running.workers.have_ended().await?;
        scheduler.close().await?;
        traces.end().await;
        if let Some(sent) = recorded.sent {
            sent.end().await;
        }
        Ok(())
    }
}

/// What a server that runs by another file would do with a configuration.
fn compared(source: &Source, config: &Config, running: PathBuf) -> Result<String, Failure> {
    let running = Source {
        file: Some(running),
        ..source.clone()
    };
    let changes = running.read()?.changes(config);
    let said = |settings: &[String], what: &str| match settings {
        [] => String::new(),
        settings => format!("{what}: {}\n", settings.join(", ")),
    };
    Ok(match (changes.live.is_empty(), changes.restart.is_empty()) {
        (true, true) => "nothing differs from what is running\n".to_owned(),
        (_, true) => said(&changes.live, "taken over by a reload"),
        (_, false) => {
            said(
                &changes.restart,
                "a restart is needed, and a reload is refused, for",
            ) + &said(&changes.live, "taken over by that restart")
        }
    })
}

/// Waits until the gateway, if there is one, has ended, which it should not before the server stops.
async fn receiving_ended_early(receiving: &mut Option<JoinHandle<()>>) -> Failure {
    let Some(receiving) = receiving else {
        return std::future::pending().await;
    };
    Failure::Found(match receiving.await {
        Ok(()) => "the gateway ended before the server was stopped".to_owned(),
        Err(defect) => format!("the gateway ended by a defect: {defect}"),
    })
}

/// Waits until the server stops.
async fn stopped(mut stopping: watch::Receiver<bool>) {
    // Also when nothing can say so any more.
    let _ = stopping.wait_for(|stop| *stop).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_gateway_that_ends_by_a_defect_ends_the_server_by_a_failure_that_says_so() {
        let mut receiving = Some(tokio::spawn(async { panic!("no such queue") }));
        let said = receiving_ended_early(&mut receiving).await.to_string();
        assert!(
            said.contains("the gateway ended by a defect") && said.contains("no such queue"),
            "{said}"
        );
        let mut receiving = Some(tokio::spawn(async {}));
        let said = receiving_ended_early(&mut receiving).await.to_string();
        assert!(said.contains("the gateway ended before"), "{said}");
    }
}
