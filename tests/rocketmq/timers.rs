//! Tests what is special to timer messages.

use delayline::backend::WokenBy;
use delayline::delay::Routing;
use delayline::store::MemoryStore;
use delayline::{Context, NewTask, Outcome, Scheduler, Worker};
use tokio::sync::mpsc;

use super::servers::RocketMqServers;
use super::*;

#[tokio::test]
async fn a_delay_up_to_the_brokers_longest_is_taken_and_a_longer_one_fails_alone() {
    let backend = Place::new().connect_timers().await;
    let max = Duration::from_secs(3 * 86_400);
    assert_eq!(backend.delays().reach, Reach::Any { max });
    let mut batch = departures(0..3, TWO);
    batch[0].delay = max;
    batch[1].delay = max + Duration::from_millis(1);
    let error = backend.send(&batch).await.unwrap_err();
    assert_eq!(error.failed, [1]);
    assert!(
        matches!(error.cause, Error::Invalid { field: "delay", .. }),
        "{error}"
    );
    assert_eq!(receive_all_by(&*backend, 1).await, [wake(2)].into());
    backend.close().await.unwrap();
}

#[tokio::test]
async fn any_delay_is_held_to_within_the_second_and_none_comes_early() {
    let backend = Place::new().connect_timers().await;
    let mut batch = Vec::new();
    for number in 0..100 {
        batch.extend(departures(
            number..number + 1,
            Duration::from_millis(1_500 + number * 37),
        ));
    }
    let sent = Instant::now();
    send_by(&*backend, batch.clone()).await;
    let mut seen = 0;
    let mut lateness = Vec::new();
    while seen < batch.len() {
        let arrivals = timeout(SAFETY, backend.receive(100))
            .await
            .expect("all arrive")
            .unwrap();
        let after = sent.elapsed();
        for arrival in &arrivals {
            let departure = batch.iter().find(|sent| sent.wake == arrival.wake).unwrap();
            let late = after.checked_sub(departure.delay);
            lateness.push(late.unwrap_or_else(|| panic!("{departure:?} arrived after {after:?}")));
        }
        seen += arrivals.len();
        backend.acknowledge(arrivals).await;
    }
    lateness.sort();
    println!("late by {:?} to {:?}", lateness[0], lateness[lateness.len() - 1]);
    backend.close().await.unwrap();
}

#[tokio::test]
async fn what_is_on_its_way_through_levels_arrives_where_timers_are_received_and_the_other_way_round() {
    let place = Place::new();
    let (levels, timers) = (place.connect().await, place.connect_timers().await);
    send(&levels, departures(0..5, TWO)).await;
    send_by(&*timers, departures(5..10, TWO)).await;
    levels.close().await.unwrap();
    assert_eq!(receive_all_by(&*timers, 10).await, (0..10).map(wake).collect());
    send_by(&*timers, departures(10..15, TWO)).await;
    timers.close().await.unwrap();
    let levels = place.connect().await;
    receive_each(&*levels, 10..15).await;
    levels.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_takes_one_timer_and_is_brought_to_its_time_by_the_precise_backend() {
    let timers = Place::new().connect_timers().await;
    // More than the timer may be late by on a busy machine.
    let routing = Routing::default().handoff(Duration::from_secs(3));
    let scheduler = Scheduler::builder(Arc::new(MemoryStore::new()))
        .carrier(timers)
        .routing(routing)
        .build()
        .unwrap();
    let (tell, mut told) = mpsc::unbounded_channel();
    let worker = Worker::new(&scheduler).handle("order.cancel", move |_: u64, context: Context| {
        let _ = tell.send(context);
        async { Ok(Outcome::Done) }
    });
    let worker = tokio::spawn(worker.run());
    // On a busy machine a wake-up may come too late for this test; but not every time.
    let tried = async {
        loop {
            let sent = scheduler.stats().sent_by_carrier;
            let task = NewTask::new("order.cancel", &42).after(Duration::from_secs(6));
            scheduler.schedule(task).await.unwrap();
            let context = told.recv().await.unwrap();
            let timers = scheduler.stats().sent_by_carrier - sent;
            println!(
                "{timers} timers, {:?} late, by {}",
                context.lateness(),
                context.woken_by()
            );
            if (timers, context.task().hop, context.woken_by()) == (1, 1, WokenBy::Precise) {
                return;
            }
        }
    };
    timeout(SAFETY, tried).await.expect("one timer, and precise");
    worker.abort();
    scheduler.close().await.unwrap();
}

#[tokio::test]
async fn a_broker_whose_timers_are_switched_off_is_refused_by_name_and_for_good() {
    let servers = RocketMqServers::start(&[]);
    let error = RocketMqTimers::connect(servers.nameserver.as_str())
        .await
        .unwrap_err();
    assert!(!error.is_transient(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("broker-a") && text.contains("timerWheelEnable"),
        "{text}"
    );
    // Levels still exist.
    let levels = RocketMqBackend::connect(servers.nameserver.as_str())
        .await
        .unwrap();
    levels.close().await.unwrap();
}

#[tokio::test]
async fn the_longest_delay_is_the_least_of_the_masters_and_one_of_them_may_die() {
    let timers = ["--set", "timerWheelEnable=true", "--set", "timerMaxDelaySec=600"];
    let servers = RocketMqServers::start(&[&["--masters", "2"], &timers[..]].concat());
    let backend = RocketMqTimers::connect(servers.nameserver.as_str());
    let backend = Arc::new(backend.await.unwrap());
    let max = Duration::from_secs(600);
    assert_eq!(backend.delays().reach, Reach::Any { max });
    send_by(&*backend, departures(0..40, TWO)).await;
    assert_eq!(receive_all_by(&*backend, 40).await.len(), 40);
    servers.kill("broker-b");
    send_by(&*backend, departures(100..140, TWO)).await;
    receive_each(&*backend, 100..140).await;
    backend.close().await.unwrap();
}
