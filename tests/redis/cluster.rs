//! A Cluster whose masters die, hang and are replaced, and whose slots move.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::task::JoinHandle;

use super::support::RedisCluster;
use super::*;

/// Long enough that nothing comes twice because of slowness.
const LEASE: Duration = Duration::from_secs(20);
const SLOTS: u16 = 16;
/// How often something is sent. The client makes others wait whenever it notices that a master is gone, so not as often
/// as it could.
const PACE: Duration = Duration::from_millis(10);

fn backend(cluster: &RedisCluster) -> Arc<RedisBackend> {
    let builder = RedisBackend::builder(&cluster.url());
    Arc::new(builder.lease(LEASE).build().unwrap())
}

async fn start() -> RedisCluster {
    tokio::task::spawn_blocking(RedisCluster::start).await.unwrap()
}

/// The slot of this test that holds a wake-up.
fn slot_of(wake: &Wake) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    wake.id.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step) % u64::from(SLOTS)
}

/// The Cluster's slot of each slot of this test.
fn cluster_slots(cluster: &RedisCluster) -> BTreeMap<u64, u16> {
    let slot_of = |slot| (slot, cluster.slot_of(&format!("{{delayline:wakes:{slot}}}")));
    (0..u64::from(SLOTS)).map(slot_of).collect()
}

/// Sends one wake-up after the other, and records which were taken.
struct Sending {
    taken: Arc<Mutex<BTreeSet<u64>>>,
    failed: Arc<Mutex<Vec<(u64, Instant)>>>,
    sending: JoinHandle<()>,
}

impl Sending {
    /// Sends what `chosen` chooses, of each only one at a time, so that those that fail late hold up no others.
    fn start(backend: &Arc<RedisBackend>, chosen: impl Fn(u64) -> bool + Send + Sync + 'static) -> Self {
        let (taken, failed) = (
            Arc::<Mutex<BTreeSet<_>>>::default(),
            Arc::<Mutex<Vec<_>>>::default(),
        );
        let sending = tokio::spawn({
            let (backend, taken, failed) = (backend.clone(), taken.clone(), failed.clone());
            async move {
                let mut sends = tokio::task::JoinSet::new();
                let mut numbers = (0..).filter(|&number| chosen(number));
                loop {
                    let number = numbers.next().unwrap();
                    let (backend, taken, failed) = (backend.clone(), taken.clone(), failed.clone());
                    sends.spawn(async move {
                        let delay = Duration::from_millis(number % 1_000);
                        match backend.send(&[departure(number, delay)]).await {
                            Ok(()) => drop(taken.lock().unwrap().insert(number)),
                            Err(error) => {
                                assert!(error.cause.is_transient(), "{error}");
                                failed.lock().unwrap().push((number, Instant::now()));
                            }
                        }
                    });
                    while sends.try_join_next().is_some() {}
                    tokio::time::sleep(PACE).await;
                }
            }
        });
        Self {
            taken,
            failed,
            sending,
        }
    }

    fn taken(&self) -> BTreeSet<u64> {
        self.taken.lock().unwrap().clone()
    }

    fn failed(&self) -> Vec<(u64, Instant)> {
        self.failed.lock().unwrap().clone()
    }

    /// Fails if sends of chosen ones were held up: a send waits for 1 s, and a machine that stands still for so long may cost a
    /// few, but not one in fifty.
    fn went_on(&self, chosen: impl Fn(u64) -> bool) {
        let failed: Vec<_> = self
            .failed()
            .into_iter()
            .filter(|&(number, _)| chosen(number))
            .collect();
        let taken = self.taken().into_iter().filter(|&number| chosen(number)).count();
        println!("{} sends failed beside {taken} that were taken", failed.len());
        assert!(
            failed.len() * 50 < taken,
            "{failed:?} beside {taken} that were taken"
        );
    }

    /// Waits until so many more chosen ones were taken.
    async fn until_more(&self, count: usize, chosen: impl Fn(u64) -> bool) {
        let counted = || {
            self.taken
                .lock()
                .unwrap()
                .iter()
                .filter(|&&number| chosen(number))
                .count()
        };
        let before = counted();
        safely(async {
            while counted() < before + count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Waits until a chosen one has failed.
    async fn until_failed(&self, chosen: impl Fn(u64) -> bool) {
        safely(async {
            while !self.failed().iter().any(|(number, _)| chosen(*number)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    async fn stop(self) -> BTreeSet<u64> {
        self.sending.abort();
        drop(self.sending.await);
        let taken = self.taken.lock().unwrap();
        taken.clone()
    }
}

/// Receives, acknowledges, and counts how often each came.
struct Receiving {
    came: Arc<Mutex<BTreeMap<u64, u32>>>,
    _receiving: tokio::task::JoinSet<()>,
}

impl Receiving {
    fn start(backends: &[Arc<RedisBackend>]) -> Self {
        let came = Arc::<Mutex<BTreeMap<_, _>>>::default();
        let mut receiving = tokio::task::JoinSet::new();
        for backend in backends {
            let (backend, came) = (backend.clone(), came.clone());
            receiving.spawn(async move {
                loop {
                    let arrivals = backend.receive(100).await.unwrap();
                    for arrival in &arrivals {
                        let number = u128::from_be_bytes(*arrival.wake.id.as_bytes());
                        *came
                            .lock()
                            .unwrap()
                            .entry(u64::try_from(number).unwrap())
                            .or_default() += 1;
                    }
                    backend.acknowledge(arrivals).await;
                }
            });
        }
        Self {
            came,
            _receiving: receiving,
        }
    }

    fn missing(&self, sent: &BTreeSet<u64>) -> Vec<u64> {
        let came = self.came.lock().unwrap();
        sent.iter()
            .copied()
            .filter(|number| !came.contains_key(number))
            .collect()
    }

    async fn until_came(&self, sent: &BTreeSet<u64>) {
        let coming = async {
            while !self.missing(sent).is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if timeout(SAFETY, coming).await.is_err() {
            let missing = self.missing(sent);
            panic!("of {} have not come: {missing:?}", sent.len());
        }
    }

    fn twice(&self) -> usize {
        self.came
            .lock()
            .unwrap()
            .values()
            .filter(|&&times| times > 1)
            .count()
    }
}

/// The wake-ups that are held at a master, and the rest.
fn at(cluster: &RedisCluster, master: usize) -> impl Fn(u64) -> bool + Clone + Send + Sync + 'static {
    let slots = cluster_slots(cluster);
    let there = slots
        .into_iter()
        .filter(|(_, slot)| cluster.master_of(*slot) == master);
    let there: BTreeSet<u64> = there.map(|(slot, _)| slot).collect();
    assert!(!there.is_empty() && there.len() < usize::from(SLOTS), "{there:?}");
    move |number| there.contains(&slot_of(&wake(number)))
}

fn a_slot_at(cluster: &RedisCluster, master: usize) -> u16 {
    let slots = cluster_slots(cluster);
    *slots
        .values()
        .find(|slot| cluster.master_of(**slot) == master)
        .unwrap()
}

/// Loses a master by `lose`.
async fn loses_a_master(lose: impl FnOnce(&mut RedisCluster, usize) + Send + 'static) -> RedisCluster {
    let mut cluster = start().await;
    let handles = [(); 3].map(|()| backend(&cluster));
    let receiving = Receiving::start(&handles[1..]);
    let master = 1;
    let lost = at(&cluster, master);
    let sending = Sending::start(&handles[0], |_| true);
    sending.until_more(500, |_| true).await;
    sending.went_on(|_| true);

    let slot = a_slot_at(&cluster, master);
    let when = Instant::now();
    let (cluster, next) = tokio::task::spawn_blocking(move || {
        lose(&mut cluster, master);
        let next = cluster.wait_for_failover(slot, master);
        (cluster, next)
    })
    .await
    .unwrap();
    println!("node {next} took over after {:.1?}", when.elapsed());
    let others: Vec<_> = sending
        .failed()
        .into_iter()
        .filter(|(number, _)| !lost(*number))
        .collect();
    println!(
        "failed until then: {} of the lost master, {} of others",
        sending.failed().len() - others.len(),
        others.len()
    );
    sending.until_more(100, lost.clone()).await;
    let last = sending
        .failed()
        .into_iter()
        .filter(|(number, _)| lost(*number))
        .map(|(_, at)| at - when)
        .max();
    println!(
        "in use again after {:.1?}; the last failure after {last:.1?}",
        when.elapsed()
    );
    // A new process finds its way too.
    let new = backend(&cluster);
    let batch: Vec<_> = (1 << 40..(1 << 40) + 100)
        .map(|number| departure(number, Duration::ZERO))
        .collect();
    send_until_taken(&new, &batch).await;
    sending.went_on(|number| !lost(number));
    // Wake-ups that were sent before and not replicated are lost with the server; of those sent since, none is.
    let before = sending.taken();
    sending.until_more(300, |_| true).await;
    let sent = sending.stop().await;
    let since: BTreeSet<_> = sent.difference(&before).copied().collect();
    receiving.until_came(&since).await;
    let missing = receiving.missing(&sent);
    println!(
        "of {} sent, {} were lost with the master",
        sent.len(),
        missing.len()
    );
    assert!(missing.iter().all(|number| lost(*number)), "{missing:?}");
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_master_dies_its_replica_is_used_and_other_slots_are_not_held_up() {
    loses_a_master(RedisCluster::kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_master_hangs_its_replica_is_used_and_other_slots_are_not_held_up() {
    let cluster = loses_a_master(|cluster, master| cluster.signal(master, "STOP")).await;
    cluster.signal(1, "CONT");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_slot_moves_nothing_is_lost_and_nothing_comes_twice() {
    let cluster = start().await;
    let handles = [(); 3].map(|()| backend(&cluster));
    let receiving = Receiving::start(&handles[1..]);
    let sending = Sending::start(&handles[0], |_| true);
    sending.until_more(500, |_| true).await;

    let slots = cluster_slots(&cluster);
    let (&ours, &slot) = slots
        .iter()
        .find(|(_, slot)| cluster.master_of(**slot) == 0)
        .unwrap();
    let moves = move |number: u64| slot_of(&wake(number)) == ours;
    let begun = Instant::now();
    let cluster = Arc::new(cluster);
    let to = 2;
    {
        let migration = cluster.begin_migration(slot, to);
        // Some of its keys are at either master, for longer than the client retries.
        assert_eq!(migration.move_some(1), 1);
        sending.until_more(1_000, move |number| !moves(number)).await;
        migration.move_keys();
        sending.until_more(1_000, move |number| !moves(number)).await;
        tokio::task::block_in_place(|| {
            migration.move_keys();
            migration.finish();
        });
    }
    println!("moved within {:.1?}", begun.elapsed());
    sending.until_more(50, moves).await;
    sending.went_on(|number| !moves(number));
    let sent = sending.stop().await;
    receiving.until_came(&sent).await;
    assert_eq!(receiving.twice(), 0);
    assert_eq!(cluster.master_of(slot), to);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_masters_forget_all_what_is_sent_then_arrives() {
    let cluster = start().await;
    let handles = [(); 3].map(|()| backend(&cluster));
    let receiving = Receiving::start(&handles[1..]);
    let sending = Sending::start(&handles[0], |_| true);
    let ask_masters = |command: &[&str]| tokio::task::block_in_place(|| cluster.ask_masters(command));
    for command in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"]] {
        sending.until_more(500, |_| true).await;
        ask_masters(command);
    }
    sending.until_more(500, |_| true).await;
    sending.went_on(|_| true);
    // One master after the other ends its connections, so the second try of a send may fail, too.
    ask_masters(&["CLIENT", "KILL", "TYPE", "normal"]);
    let before = sending.taken();
    sending.until_more(500, |_| true).await;
    let sent = sending.stop().await;
    let since: BTreeSet<_> = sent.difference(&before).copied().collect();
    receiving.until_came(&since).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_hangs_for_a_moment_loses_nothing() {
    let cluster = start().await;
    let handles = [(); 3].map(|()| backend(&cluster));
    let receiving = Receiving::start(&handles[1..]);
    let sending = Sending::start(&handles[0], |_| true);
    sending.until_more(500, |_| true).await;
    let lost = at(&cluster, 0);
    cluster.signal(0, "STOP");
    // For as long as a send waits; it would be replaced after twice that.
    sending.until_failed(&lost).await;
    cluster.signal(0, "CONT");
    sending.until_more(300, lost.clone()).await;
    sending.went_on(|number| !lost(number));
    let sent = sending.stop().await;
    receiving.until_came(&sent).await;
}

#[tokio::test]
async fn sends_go_on_while_the_master_is_away_that_keeps_the_number_of_shards() {
    let start = || RedisCluster::start_with(&["--cluster-node-timeout", "60000"]);
    let cluster = tokio::task::spawn_blocking(start).await.unwrap();
    // One that only sends asks for the number by itself.
    let backend = backend(&cluster);
    let master = cluster.master_of(cluster.slot_of("{delayline:wakes}:shards"));
    let lost = at(&cluster, master);
    let others = (0..100).filter(|&number| !lost(number));
    let batch: Vec<_> = others.map(|number| departure(number, HOUR)).collect();
    send_until_taken(&backend, &batch).await;
    cluster.signal(master, "STOP");
    for _ in 0..2 {
        // What is known of it is old by then.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(11)).await;
        tokio::time::resume();
        send_until_taken(&backend, &batch).await;
        let wakes: Vec<_> = batch.iter().map(|departure| departure.wake.clone()).collect();
        backend.remove(&wakes).await.unwrap();
    }
}

#[tokio::test]
async fn a_receiver_of_one_gets_what_is_due_at_others_while_a_master_hangs() {
    let start = || RedisCluster::start_with(&["--cluster-node-timeout", "60000"]);
    let cluster = tokio::task::spawn_blocking(start).await.unwrap();
    let backend = backend(&cluster);
    let keeper = cluster.master_of(cluster.slot_of("{delayline:wakes}:shards"));
    let master = cluster.masters().into_iter().find(|&master| master != keeper);
    let master = master.unwrap();
    let lost = at(&cluster, master);
    let batch: Vec<_> = (0..200).map(|number| departure(number, Duration::ZERO)).collect();
    send_until_taken(&backend, &batch).await;
    cluster.signal(master, "STOP");
    let mut missing: BTreeSet<_> = (0..200).filter(|&number| !lost(number)).map(wake).collect();
    safely(async {
        while !missing.is_empty() {
            let arrivals = backend.receive(1).await;
            // One for each poll of the master that hangs.
            let Ok(arrivals) = arrivals else { continue };
            for arrival in &arrivals {
                missing.remove(&arrival.wake);
            }
            backend.acknowledge(arrivals).await;
        }
    })
    .await;
}
