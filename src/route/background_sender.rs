//! Sends wake-ups in the background, after their rows are written.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::backend::Wake;
use crate::clock::{Clock, Spawned};
use crate::defaults;
use crate::observe::metrics::wakeups;
use crate::route::router::Router;
use crate::stats::Counters;
use crate::task::due_wake::DueWake;

/// Sends wake-ups in the background, in batches, with a bounded queue.
#[derive(Debug)]
pub(crate) struct BackgroundSender {
    router: Arc<Router>,
    clock: Clock,
    counters: Arc<Counters>,
    line: Mutex<Line>,
}

/// The queue, and what empties it.
#[derive(Debug)]
struct Line {
    queue: mpsc::Sender<Command>,
    /// These end with the line, or with the runtime in which it was begun.
    _sending: Spawned,
    _watching: Spawned,
}

impl Line {
    fn begin(router: &Arc<Router>, clock: &Clock) -> Self {
        let (queue, waiting) = mpsc::channel(defaults::SEND_QUEUE);
        let watched = Arc::clone(router);
        Self {
            queue,
            _sending: clock.spawn(send_all(Arc::clone(router), waiting)),
            _watching: clock.spawn(async move { watched.watch().await }),
        }
    }
}

#[derive(Debug)]
enum Command {
    Send(DueWake),
    Remove(Wake),
    /// Answers when everything before it is sent.
    Flush(oneshot::Sender<()>),
}

impl BackgroundSender {
    pub(crate) fn new(router: Arc<Router>, clock: Clock, counters: Arc<Counters>) -> Self {
        let line = Mutex::new(Line::begin(&router, &clock));
        Self {
            router,
            clock,
            counters,
            line,
        }
    }

    /// The queue. Where the runtime has ended that emptied it, another is begun in this one.
    fn queue(&self) -> mpsc::Sender<Command> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if line.queue.is_closed() && Handle::try_current().is_ok() {
            *line = Line::begin(&self.router, &self.clock);
        }
        line.queue.clone()
    }

    /// Queues wake-ups. Waits a little if the queue is full; those that then find no place are left to the sweep.
    pub(crate) async fn send(&self, due_wakes: Vec<DueWake>) {
        let (queue, count) = (self.queue(), due_wakes.len());
        let mut placed = 0;
        let place = async {
            for due_wake in due_wakes {
                if queue.send(Command::Send(due_wake)).await.is_err() {
                    break;
                }
                placed += 1;
            }
        };
        // Safe to cut off anywhere: each place is taken or not.
        let _ = self.clock.timeout(defaults::SEND_QUEUE_WAIT, place).await;
        self.counters.left_to_sweep.add(count - placed);
        // Without a route: that is only chosen when a wake-up is sent.
        wakeups("none", "left", count - placed);
    }

    /// Queues wake-ups for removal if there is a place: removal is optional.
    pub(crate) fn remove(&self, wakes: impl IntoIterator<Item = Wake>) {
        let queue = self.queue();
        for wake in wakes {
            if queue.try_send(Command::Remove(wake)).is_err() {
                break;
            }
        }
    }

    /// Waits until everything that is queued now has been sent.
    pub(crate) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.queue().send(Command::Flush(done)).await.is_ok() {
            // An error: the sending has ended, and nothing is queued any more.
            let _ = flushed.await;
        }
    }
}

async fn send_all(router: Arc<Router>, mut waiting: mpsc::Receiver<Command>) {
    let mut commands = Vec::with_capacity(defaults::BATCH);
    while waiting.recv_many(&mut commands, defaults::BATCH).await > 0 {
        let mut due_wakes = Vec::with_capacity(commands.len());
        let mut wakes = Vec::new();
        let mut flushes = Vec::new();
        for command in commands.drain(..) {
            match command {
                Command::Send(due_wake) => due_wakes.push(due_wake),
                Command::Remove(wake) => wakes.push(wake),
                Command::Flush(done) => flushes.push(done),
            }
        }
        // In any order: a wake-up that is removed is of an older version than the one sent after it.
        router.send(due_wakes).await;
        if !wakes.is_empty() {
            router.remove(&wakes).await;
        }
        for done in flushes {
            let _ = done.send(());
        }
    }
}
