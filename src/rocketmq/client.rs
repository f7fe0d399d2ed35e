//! Runs the client in a runtime of its own.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rocketmq_client_rust::{
    ClientConfig, ClientRuntime, ClientRuntimeConfig, DefaultMQAdminExt, DefaultMQProducer,
};
use rocketmq_observability::TelemetryRuntimeGuard;
use rocketmq_runtime::{BlockingPoolPolicy, RuntimeConfig, RuntimeOwner};
use rocketmq_transport::api::RPCHook;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;

use super::failure::{closed, failure, permanent, transient};
use super::hook::Hook;
use super::options::RocketMqOptions;
use crate::Error;
use crate::clock::unique_name;

/// How many batches the receiver may hold at once; each holds a thread of the client until it is acknowledged.
pub(crate) const LISTENERS: usize = 32;
/// Threads for the client's other blocking work.
const OTHER_BLOCKING: usize = 16;
/// Enough for the network's part; the listeners have threads of their own.
const MOST_WORKERS: usize = 4;
/// Longer than a listener can take, so that the client never treats a slow one as failed: batches of an
/// [`Inbox`](super::Inbox) are held for as long as its receiver has no store.
pub(super) const LISTENER_LIMIT: Duration = Duration::from_secs(365 * 86_400);

/// How long work may take that ends by itself, such as opening.
const WORK_WITHIN: Duration = Duration::from_secs(15);

/// The topic from which a broker that creates topics by itself would derive a new one: none.
const NO_TOPIC: &str = "delayline_none";
/// How many queues of `TBW102`, which such brokers have, the client takes for a topic that the nameservers do not know.
/// By default it takes four, and they know none while a broker starts: then messages of a key would go to another queue
/// than those before.
const NO_QUEUES: u32 = 0;

/// How often routes are read again, and heartbeats are sent: the least that the client allows. Until then a new broker
/// is unknown here, and this process is unknown there.
const REFRESH: Duration = Duration::from_secs(10);

/// The client's runtime.
///
/// The client brings a runtime of its own. All of its futures run there and nowhere else: so its connections do not end
/// with the caller's runtime, a defect in it ends a task of that runtime and not of the caller's, and its future types,
/// too deep for a compiler's default limit, stay inside this crate.
pub(crate) struct Client {
    owner: Mutex<Option<RuntimeOwner>>,
    tasks: Handle,
    factory: ClientFactory,
}

/// Makes producers, consumers and admin clients.
#[derive(Clone)]
pub(crate) struct ClientFactory {
    runtime: Arc<ClientRuntime>,
    config: ClientConfig,
    hook: Arc<Hook>,
    max_message_size: usize,
}

impl ClientFactory {
    pub(crate) fn runtime(&self) -> Arc<ClientRuntime> {
        self.runtime.clone()
    }

    /// Returns the hook for every request and answer.
    pub(crate) fn hook(&self) -> Arc<dyn RPCHook> {
        self.hook.clone()
    }

    /// Returns their addresses.
    pub(crate) fn nameservers(&self) -> &str {
        self.config.namesrv_addr.as_deref().unwrap_or_default()
    }

    pub(super) fn speaks_tls(&self) -> bool {
        self.config.use_tls
    }

    /// Makes an admin client that is not started yet.
    pub(super) fn admin(&self) -> DefaultMQAdminExt {
        let mut admin = DefaultMQAdminExt::with_rpc_hook(self.runtime(), self.hook());
        *admin.client_config_mut() = self.config();
        admin
    }

    /// Starts a producer whose sends take no longer than `send_timeout`.
    pub(crate) async fn producer(
        &self,
        group: &str,
        send_timeout: Duration,
    ) -> Result<DefaultMQProducer, Error> {
        let mut producer = DefaultMQProducer::builder(self.runtime())
            .client_config(self.config())
            .rpc_hook(self.hook())
            .producer_group(group)
            .create_topic_key(NO_TOPIC)
            .default_topic_queue_nums(NO_QUEUES)
            .max_message_size(u32::try_from(self.max_message_size).unwrap_or(u32::MAX))
            .send_msg_timeout(u32::try_from(send_timeout.as_millis()).unwrap_or(u32::MAX))
            .build();
        match producer.start().await {
            Ok(()) => Ok(producer),
            Err(cause) => {
                producer.shutdown().await;
                Err(failure("starting the producer", cause))
            }
        }
    }

    /// Makes settings under a unique name, so that clients made with them share no connection, and no memory of failed
    /// ones, with others. Brokers assign queues by that name.
    pub(crate) fn config(&self) -> ClientConfig {
        let mut config = self.config.clone();
        config.instance_name = format!("delayline-{}", unique_name()).into();
        config
    }
}

impl Client {
    /// Starts the runtime and opens a client in it; ends the runtime again if that fails, or takes too long.
    pub(crate) async fn open<T: Send + 'static, F>(
        options: RocketMqOptions,
        opening: impl FnOnce(ClientFactory, RocketMqOptions) -> F,
    ) -> Result<(Self, T), Error>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let client = Self::start(&options).await?;
        match client.run_within(opening(client.factory(), options)).await {
            Ok(opened) => Ok((client, opened)),
            Err(error) => {
                client.close().await;
                Err(error)
            }
        }
    }

    /// Starts the runtime, if the options are valid; connects to nothing yet.
    pub(super) async fn start(options: &RocketMqOptions) -> Result<Self, Error> {
        options.check()?;
        let owner = RuntimeOwner::plan(runtime_config()?)
            .map_err(|cause| permanent(format!("the client's runtime cannot be configured: {cause}")))?
            .build()
            .map_err(|cause| permanent(format!("the client's runtime cannot be started: {cause}")))?;
        let scope = owner.root_context().component("delayline");
        // The runtime's owner does not show its handle; a task inside does.
        let (send, receive) = oneshot::channel();
        scope
            .spawn_service("handle", async {
                let _ = send.send(Handle::current());
            })
            .map_err(|cause| permanent(format!("the client's runtime takes no tasks: {cause}")))?;
        let tasks = receive.await.map_err(|_| closed())?;
        let telemetry = TelemetryRuntimeGuard::noop();
        let runtime = ClientRuntime::try_new(scope, ClientRuntimeConfig::default(), telemetry.handle())
            .map_err(|cause| failure("making a client", cause))?;

        let mut config = ClientConfig::new();
        config.namesrv_addr = Some(options.nameservers.as_str().into());
        config.poll_name_server_interval = REFRESH.as_millis() as u32;
        config.heartbeat_broker_interval = REFRESH.as_millis() as u32;
        // Wake-ups are too short to be compressed. A foreign message that cannot be decompressed would take the ones
        // behind it with it, and one that can be might become very large.
        config.decode_decompress_body = false;
        #[cfg(feature = "rocketmq-tls")]
        if let Some(tls) = &options.tls {
            tls.configure(&mut config)?;
        }
        Ok(Self {
            owner: Mutex::new(Some(owner)),
            tasks,
            factory: ClientFactory {
                runtime,
                config,
                hook: Arc::new(Hook::new(options.credentials.as_ref())),
                max_message_size: options.max_message_size,
            },
        })
    }

    /// Returns the factory of producers, consumers and admin clients.
    pub(crate) fn factory(&self) -> ClientFactory {
        self.factory.clone()
    }

    /// Runs a future in the client's runtime; it is abandoned when the caller is.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let task = self.spawn(future);
        let _abandon = AbortOnDrop(task.abort_handle());
        joined(task).await
    }

    /// Runs work that ends by itself, and abandons it if that takes too long.
    pub(super) async fn run_within<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        match timeout(WORK_WITHIN, self.run(work)).await {
            Ok(done) => done.flatten(),
            Err(_) => Err(transient(format!("no answer within {WORK_WITHIN:?}"))),
        }
    }

    /// Runs a future in the client's runtime, to its end even if the caller is dropped.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        // Boxed, as the client's futures are large.
        self.tasks.spawn(Box::pin(future))
    }

    /// Ends the runtime with all that is under way in it.
    pub(super) fn abandon(&self) {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(owner) = owner {
            owner.shutdown_background();
        }
    }

    /// Ends the runtime.
    pub(crate) async fn close(&self) {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(owner) = owner else { return };
        let report = self.factory.runtime.shutdown().await;
        if !report.is_healthy() {
            tracing::warn!(
                report = %report.to_json(),
                "the RocketMQ client did not end cleanly, so some of its threads or connections may outlive the close; no \
                 task is affected"
            );
        }
        owner.shutdown_tasks().await;
        owner.shutdown_background();
    }
}

/// Returns the result of a task of the client's runtime.
pub(crate) async fn joined<T>(task: JoinHandle<T>) -> Result<T, Error> {
    task.await.map_err(|ended| {
        if ended.is_panic() {
            permanent("the RocketMQ client panicked")
        } else {
            closed()
        }
    })
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn runtime_config() -> Result<RuntimeConfig, Error> {
    let workers =
        std::thread::available_parallelism().map_or(MOST_WORKERS, |count| count.get().min(MOST_WORKERS));
    let mut config = RuntimeConfig::for_parallelism("delayline-rocketmq", workers)
        .with_max_blocking_threads(LISTENERS + OTHER_BLOCKING)
        .map_err(|cause| permanent(format!("the client's runtime cannot be configured: {cause}")))?;
    // Listeners run in this lane. By default it has two threads per processor, and the client treats a listener as
    // failed that waits 5 s for a thread, or runs for 30 s: its messages would come again with a delay of their own.
    config.blocking_lane_policies.metadata_io = BlockingPoolPolicy {
        name: "delayline-listeners".into(),
        max_concurrency: LISTENERS,
        max_queue_depth: 4_096,
        queue_timeout: LISTENER_LIMIT,
        task_timeout: LISTENER_LIMIT,
        warn_after: LISTENER_LIMIT,
    };
    Ok(config)
}
