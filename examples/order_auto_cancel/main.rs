//! An unpaid order cancels itself on time, unless it is paid, or given more time.
//!
//! With no server at all, in a few seconds:
//!
//! ```sh
//! cargo run --example order_auto_cancel
//! ```
//!
//! On a RocketMQ that chains the delays through its levels, and a Redis for the last stretch, with the same code:
//!
//! ```sh
//! cargo run --example order_auto_cancel --features rocketmq,redis -- \
//!     --rocketmq localhost:9876 --redis redis://localhost:6379
//! ```
//!
//! Kill it with `--db shop.db` given, start it again with `--db shop.db --orders 0`: no order is lost, none ends twice.

mod options;
mod orders;
mod summary;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use delayline::backend::{Backend, LevelsBackend};
use delayline::delay::{LevelTable, Routing};
use delayline::store::{Page, SqliteStore, Target};
use delayline::{
    Answer, Context, Failure, NewTask, Outcome, Scheduler, SchedulerBuilder, Shift, State, Worker,
};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::info;
use tracing_subscriber::EnvFilter;

use crate::options::Options;
use crate::orders::{Order, Orders, now_ms};
use crate::summary::Summary;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Binds a task to its handler. It is stored with each task, so it must stay the same from release to release.
const CANCEL: &str = "order.cancel";

/// How much longer a customer gets who asks for it.
const MORE_TIME: Duration = Duration::from_secs(3);

/// How long after the last due time the run gives up and counts open orders as lost.
const PATIENCE_MS: i64 = 30_000;

#[tokio::main]
async fn main() -> ExitCode {
    let options = match Options::from_args() {
        Ok(options) => options,
        Err(status) => return status,
    };
    // Hops are events of the library at level debug; RUST_LOG shows more, or less.
    let shown = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("order_auto_cancel=info,delayline=debug"));
    tracing_subscriber::fmt()
        .with_env_filter(shown)
        .with_target(false)
        .with_timer(tracing_subscriber::fmt::time::uptime())
        .with_ansi(std::io::stdout().is_terminal())
        .init();
    match run(&options).await {
        Ok(clean) => ExitCode::from(u8::from(!clean)),
        Err(error) => {
            eprintln!("order_auto_cancel: {error}");
            let invalid = error.downcast_ref().is_some_and(delayline::Error::is_invalid);
            ExitCode::from(if invalid { 2 } else { 1 })
        }
    }
}

/// Says whether no order was lost, ended twice or was cancelled early.
async fn run(options: &Options) -> Result<bool, Error> {
    let folder = tempfile::tempdir()?;
    let file = options
        .db
        .clone()
        .unwrap_or_else(|| folder.path().join("shop.db"));
    // One file holds both: the tasks of Delayline, and the orders of this service.
    let store = SqliteStore::open(&file).await?;
    let orders = Orders::open(&file).await?;

    let builder = Scheduler::builder(Arc::new(store))
        .carrier(levels(options).await?)
        .routing(
            Routing::default()
                .handoff(options.handoff)
                .tolerance(options.tolerance),
        );
    let scheduler = precise(builder, options)?.build()?;

    finish_half_done(&orders, &scheduler).await?;

    let cancelling = orders.clone();
    let worker = Worker::new(&scheduler)
        .handle(CANCEL, move |order, context| {
            cancel_unpaid(cancelling.clone(), order, context)
        })
        // Tasks that a killed worker had claimed are taken over when its lease ends. The default, 30 s, tolerates a
        // long pause of the process; these handlers take milliseconds, and an operator who watches a restart should not
        // have to wait.
        .lease(Duration::from_secs(2));

    // Wake-ups are received, and handlers run, only inside `run_until`; the shop is open beside it.
    let (closing, closed) = oneshot::channel::<()>();
    let working = async {
        let stop = async { drop(closed.await) };
        worker.run_until(stop).await.map_err(Error::from)
    };
    let selling = async {
        open_orders(options, &orders, &scheduler).await?;
        all_ended(&orders, &scheduler).await?;
        drop(closing);
        Ok(())
    };
    tokio::try_join!(working, selling)?;
    scheduler.close().await?;

    let summary = Summary::of(&orders).await?;
    println!("{summary}");
    if options.json {
        println!("{}", serde_json::to_string(&summary)?);
    }
    Ok(summary.is_clean())
}

/// The carrier, which chains delays: RocketMQ, or this process acting as one with its default levels.
async fn levels(options: &Options) -> Result<Arc<dyn Backend>, Error> {
    Ok(match &options.rocketmq {
        #[cfg(feature = "rocketmq")]
        Some(nameserver) => {
            use delayline::backend::RocketMqBackend;
            // It reads its level table from the broker.
            Arc::new(RocketMqBackend::connect(nameserver.as_str()).await?)
        }
        // Without the feature the option was refused.
        _ => Arc::new(LevelsBackend::new(LevelTable::default())),
    })
}

/// The precise backend, for the last stretch: Redis, or by default the store's own table.
fn precise(builder: SchedulerBuilder, options: &Options) -> Result<SchedulerBuilder, Error> {
    Ok(match &options.redis {
        #[cfg(feature = "redis")]
        Some(url) => builder.precise(Arc::new(delayline::backend::RedisBackend::new(url)?)),
        _ => builder,
    })
}

/// The handler. It may run twice for one order (its process can die between the effect and settling the task), and it
/// may run for an order that was paid a moment ago. Both end at the order's state, which only one can change.
async fn cancel_unpaid(orders: Orders, order: i64, context: Context) -> Result<Outcome, Failure> {
    let late = context.lateness();
    let hops = context.task().hop;
    let woken_by = context.woken_by();
    // `?` means: try again after a pause.
    if orders.cancel(order, hops, woken_by).await? {
        info!(order, ?late, hops, %woken_by, "unpaid: cancelled");
    } else {
        info!(order, "has ended already; nothing to do");
    }
    Ok(Outcome::Done)
}

/// Opens the orders; some customers pay, and one asks for more time. Ends when the last customer has.
async fn open_orders(options: &Options, orders: &Orders, scheduler: &Scheduler) -> Result<(), Error> {
    let mut customers = JoinSet::new();
    for number in 1..=options.orders {
        let time_to_pay = options.delay.of(number, options.orders);
        // First the order, then its task. A crash between the two is repaired at the next start.
        let order = orders.create(time_to_pay).await?;
        let scheduled = scheduler.schedule(task_of(&order)).await?;
        info!(order = order.id, ?time_to_pay, task = %scheduled.task().id, "opened");

        let asks = number == 1;
        let pays = options.pay_every > 0 && number % options.pay_every == 0;
        if asks || pays {
            let (orders, scheduler) = (orders.clone(), scheduler.clone());
            customers.spawn(async move {
                tokio::time::sleep(time_to_pay / 3).await;
                if asks {
                    extend(&orders, &scheduler, order.id).await?;
                }
                if pays {
                    pay(&orders, &scheduler, order.id).await?;
                }
                Ok::<_, Error>(())
            });
        }
    }
    while let Some(customer) = customers.join_next().await {
        customer??;
    }
    Ok(())
}

/// The task that cancels an order. Its key is the order's id: the order can be found, moved and cancelled by it, and
/// scheduling it again finds the task that is there.
fn task_of(order: &Order) -> NewTask {
    NewTask::new(CANCEL, &order.id)
        .key(order.id.to_string())
        .at(order.due)
}

fn target(order: i64) -> Target {
    (CANCEL, order.to_string()).into()
}

/// The order's own row decides between the payment and the handler. So the payment comes first, and the task second:
/// whatever the answer is then, a handler that still runs finds the order paid.
async fn pay(orders: &Orders, scheduler: &Scheduler, order: i64) -> Result<(), Error> {
    if !orders.pay(order).await? {
        info!(order, "payment refused: it was cancelled first");
        return Ok(());
    }
    match scheduler.cancel(target(order)).await? {
        Answer::Done(_) => info!(order, "paid; its task is cancelled"),
        _ => info!(order, "paid; its task runs already, and will do nothing"),
    }
    Ok(())
}

/// Here the task comes first: once its move is answered with `Done` its handler cannot run at the old time, and only
/// then is the new time promised to the customer.
async fn extend(orders: &Orders, scheduler: &Scheduler, order: i64) -> Result<(), Error> {
    match scheduler.shift(target(order), Shift::Later(MORE_TIME)).await? {
        Answer::Done(task) => {
            orders.extend(order, task.due_at).await?;
            info!(order, by = ?MORE_TIME, "extended");
        }
        _ => info!(order, "too late for more time"),
    }
    Ok(())
}

/// Takes the second step where a killed run took only the first. Every step may be repeated, so there is no need to
/// remember which were taken.
async fn finish_half_done(orders: &Orders, scheduler: &Scheduler) -> Result<(), Error> {
    let paid = orders.paid().await?;
    // Tasks that are cancelled, or were never there, answer so.
    let _ = scheduler.cancel_all(paid.into_iter().map(target)).await?;

    let open = orders.open_ones().await?;
    let tasks = scheduler.schedule_all(open.iter().map(task_of)).await?;
    for (order, scheduled) in open.iter().zip(tasks) {
        let planned = scheduled.task().planned_at;
        if planned > order.due {
            orders.extend(order.id, planned).await?;
        }
    }
    if !open.is_empty() {
        info!(orders = open.len(), "still open from an earlier run");
    }
    Ok(())
}

/// Waits until every order has ended and no task is left, or until it takes too long.
async fn all_ended(orders: &Orders, scheduler: &Scheduler) -> Result<(), Error> {
    let mut latest = now_ms();
    loop {
        match orders.latest_due().await? {
            Some(due) => latest = latest.max(due),
            None if !any_task_left(scheduler).await? => return Ok(()),
            None => {}
        }
        if now_ms() > latest + PATIENCE_MS {
            return Ok(());
        }
        // Woken when an order ends in this process; the pause is for orders that end without it, such as one that had
        // ended before its worker was killed.
        let _ = tokio::time::timeout(Duration::from_millis(500), orders.ended()).await;
    }
}

async fn any_task_left(scheduler: &Scheduler) -> Result<bool, Error> {
    for state in [State::Scheduled, State::Running] {
        let page = Page::new(CANCEL, state).limit(1);
        if !scheduler.list(&page).await?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
