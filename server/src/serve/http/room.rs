//! How many bytes of requests and answers the server holds at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// For how long a request waits for room.
const WAIT_LIMIT: Duration = Duration::from_secs(5);
/// For how long what waits longer does so before others have their turn, at first and at the most: less than they wait.
const TURN: Duration = Duration::from_secs(1);
const LONGEST_TURN: Duration = Duration::from_secs(4);
/// What a scrape of metrics holds: more than all series of as many kinds as are told apart.
pub(super) const A_SCRAPE: usize = 4 << 20;
/// How many scrapes are answered at once.
const SCRAPES: usize = 4;

/// Why a request finds no room.
pub(super) const FULL: &str =
    "as many requests are under way as http.memory_limit allows; nothing was done: ask again";

/// The bytes that are free for requests, in the order in which they come.
#[derive(Debug)]
pub(crate) struct Room {
    all: Pool,
    /// Of each caller, while there are several; none has more than half.
    shares: Mutex<BTreeMap<String, Pool>>,
    are_several: AtomicBool,
}

impl Room {
    /// Of `all` bytes, for several callers or for one.
    pub(crate) fn new(all: usize, several: bool) -> Self {
        Self {
            all: Pool::new(all),
            shares: Mutex::default(),
            are_several: AtomicBool::new(several),
        }
    }

    /// For several callers from now on, or for one.
    pub(crate) fn set_several(&self, several: bool) {
        self.are_several.store(several, Ordering::Relaxed);
    }

    /// Of those who look after the server: however many others ask, they are answered.
    pub(crate) fn for_scrapes() -> Self {
        Self::new(SCRAPES * A_SCRAPE, false)
    }

    /// What a caller may use of it.
    pub(super) fn of(&self, caller: &str) -> Share {
        let are_several = self.are_several.load(Ordering::Relaxed);
        let of_caller = are_several.then(|| {
            let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
            match shares.get(caller) {
                Some(share) => share.clone(),
                None => {
                    let share = Pool::new(self.all.size / 2);
                    shares.insert(caller.to_owned(), share.clone());
                    share
                }
            }
        });
        Share {
            of_caller,
            of_all: self.all.clone(),
        }
    }

    /// Waits until there is room for so many bytes, for however long: in turns, as what waits keeps what is free from all
    /// others. Turns get longer, so that it comes although others overlap.
    pub(super) async fn wait(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let mut turn = TURN;
        loop {
            if let Ok(held) = timeout(turn, self.all.wait(bytes)).await {
                return held;
            }
            sleep(TURN).await;
            turn = (2 * turn).min(LONGEST_TURN);
        }
    }
}

/// Bytes that are held by one at a time.
#[derive(Clone, Debug)]
struct Pool {
    free: Arc<Semaphore>,
    size: usize,
    /// For the one that waits for more than it has.
    growing: Arc<Semaphore>,
}

impl Pool {
    fn new(size: usize) -> Self {
        let size = size.min(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(size)),
            size,
            growing: Arc::new(Semaphore::new(1)),
        }
    }

    async fn wait(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let held = Arc::clone(&self.free).acquire_many_owned(self.number(bytes));
        // It is never closed.
        held.await.ok()
    }

    /// So many bytes more than are held.
    ///
    /// Of those that hold some, one waits; others are refused at once. For if all waited, each for what the others hold,
    /// none would come to its end; so what the others had is free for the one.
    async fn more(&self, held: usize, to: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = to.min(self.size).saturating_sub(held);
        if let Ok(more) = Arc::clone(&self.free).try_acquire_many_owned(self.number(bytes)) {
            return Some(more);
        }
        let _growing = match held {
            0 => None,
            _ => Some(self.growing.try_acquire().ok()?),
        };
        timeout(WAIT_LIMIT, self.wait(bytes)).await.ok()?
    }

    /// What is more than all takes all.
    fn number(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.size)).unwrap_or(u32::MAX)
    }
}

/// What a caller may use.
#[derive(Debug)]
pub(super) struct Share {
    of_caller: Option<Pool>,
    of_all: Pool,
}

impl Share {
    /// Waits until there is room for so many bytes; none if there is none for too long.
    pub(super) async fn hold(&self, bytes: usize) -> Option<Kept> {
        let mut kept = Kept {
            of_caller: None,
            of_all: None,
        };
        self.grow(&mut kept, bytes).await.then_some(kept)
    }

    /// Holds so many bytes in all; says whether there was room for what is missing.
    pub(super) async fn grow(&self, kept: &mut Kept, to: usize) -> bool {
        let to = self.of_caller.as_ref().map_or(to, |share| to.min(share.size));
        let pools = [
            (self.of_caller.as_ref(), &mut kept.of_caller),
            (Some(&self.of_all), &mut kept.of_all),
        ];
        for (pool, held) in pools {
            let Some(pool) = pool else { continue };
            let Some(more) = pool.more(held.as_ref().map_or(0, permits), to).await else {
                return false;
            };
            match held {
                Some(held) => held.merge(more),
                None => *held = Some(more),
            }
        }
        true
    }

    /// How many bytes are free.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.of_all.free.available_permits()
    }

    /// Holds so many, if they are free.
    pub(super) fn hold_at_once(&self, bytes: usize) -> Option<Kept> {
        let hold = |pool: &Pool| {
            let free = Arc::clone(&pool.free);
            free.try_acquire_many_owned(pool.number(bytes)).ok()
        };
        let of_caller = match &self.of_caller {
            Some(pool) => Some(hold(pool)?),
            None => None,
        };
        let of_all = Some(hold(&self.of_all)?);
        Some(Kept { of_caller, of_all })
    }
}

fn permits(permit: &OwnedSemaphorePermit) -> usize {
    permit.num_permits()
}

/// Bytes that are held, until it is dropped.
#[derive(Debug)]
pub(super) struct Kept {
    of_caller: Option<OwnedSemaphorePermit>,
    of_all: Option<OwnedSemaphorePermit>,
}

impl Kept {
    /// Holds no more than so many from now on.
    pub(super) fn shrink(&mut self, to: usize) {
        for held in [&mut self.of_caller, &mut self.of_all].into_iter().flatten() {
            drop(held.split(held.num_permits().saturating_sub(to)));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_without_room_waits_and_is_refused_in_the_end() {
        let room = Room::new(3 << 20, false).of("");
        let first = room.hold(2 << 20).await.unwrap();
        let begin = Instant::now();
        assert!(room.hold(2 << 20).await.is_none());
        assert_eq!(begin.elapsed(), WAIT_LIMIT);
        let (second, ()) = tokio::join!(room.hold(2 << 20), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(first);
        });
        assert!(second.is_some());
        assert_eq!(begin.elapsed(), WAIT_LIMIT + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_more_than_all_takes_all() {
        let room = Room::new(1 << 20, false).of("");
        let _all = room.hold(usize::MAX).await.unwrap();
        assert_eq!(room.of_all.free.available_permits(), 0);
        assert!(room.hold(1).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn of_those_that_want_more_one_waits_and_the_others_make_room_for_it() {
        let room = Room::new(4, false).of("");
        let mut first = room.hold(2).await.unwrap();
        let mut second = room.hold(2).await.unwrap();
        let begin = Instant::now();
        let (grown, ()) = tokio::join!(room.grow(&mut first, 4), async {
            assert!(!room.grow(&mut second, 3).await);
            drop(second);
        });
        assert!(grown && begin.elapsed().is_zero());
        let waits = room.hold(1);
        assert!(waits.await.is_none());
        assert_eq!(begin.elapsed(), WAIT_LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_long_leaves_others_what_is_free() {
        let room = Room::new(4, false);
        let share = room.of("");
        let slow = share.hold(1).await.unwrap();
        let waits = (0..3).map(async |_| room.wait(4).await.is_some());
        let (came, ()) = tokio::join!(join_all(waits), async {
            for _ in 0..9 {
                let begin = Instant::now();
                drop(share.hold(3).await.unwrap());
                assert!(begin.elapsed() <= LONGEST_TURN);
                sleep(Duration::from_millis(700)).await;
            }
            drop(slow);
        });
        assert_eq!(came, [true; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_all_comes_though_others_overlap() {
        let room = Room::new(4, false);
        let holding = |after| {
            let share = room.of("");
            tokio::spawn(async move {
                sleep(after).await;
                loop {
                    let held = share.hold(2).await.unwrap();
                    sleep(3 * TURN).await;
                    drop(held);
                }
            })
        };
        let others = [Duration::ZERO, 3 * TURN / 2].map(holding);
        sleep(2 * TURN).await;
        let came = timeout(Duration::from_secs(60), room.wait(4)).await;
        assert!(came.unwrap().is_some());
        others.iter().for_each(|other| other.abort());
    }

    #[tokio::test(start_paused = true)]
    async fn no_caller_has_more_than_half_where_there_are_several() {
        let room = Room::new(1 << 20, true);
        let greedy = room.of("greedy");
        let _half = greedy.hold(usize::MAX).await.unwrap();
        assert!(greedy.hold(1).await.is_none() && greedy.hold_at_once(1).is_none());
        let _half = room.of("other").hold(1 << 19).await.unwrap();
        assert!(room.of("third").hold(1).await.is_none());
    }
}
