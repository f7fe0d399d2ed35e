//! What is coming is counted by the store's clock.

use std::time::Duration;

use delayline::{NewTask, defaults};

use crate::support::{KIND, Setup, World, secs};

#[tokio::test(start_paused = true)]
async fn tasks_are_counted_within_each_span() {
    let setup = Setup {
        store_ahead: 600_000,
        ..Setup::default()
    };
    let world = setup.build();
    for (kind, delay) in [(KIND, 0), (KIND, 60), (KIND, 3_600), ("other", 60)] {
        let task = NewTask::new(kind, &1).after(secs(delay));
        world.scheduler.schedule(task).await.unwrap();
    }
    let forecast = async |within: &[Duration]| world.scheduler.forecast(KIND, within).await.unwrap();
    let within = [secs(59), secs(60), secs(7_200), Duration::ZERO];
    assert_eq!(forecast(&within).await, [1, 2, 3, 1]);
    world.pass(secs(30)).await;
    assert_eq!(forecast(&within).await, [2, 2, 3, 1]);
    assert_eq!(forecast(&[]).await, [0; 0]);
    assert_eq!(world.scheduler.forecast("none", &within).await.unwrap(), [0; 4]);
}

#[tokio::test(start_paused = true)]
async fn no_more_is_counted_than_the_limit() {
    let world = World::new();
    let tasks = (0..=defaults::FORECAST_LIMIT).map(|n| NewTask::new(KIND, &n).after(secs(60)));
    let soon = NewTask::new(KIND, &0);
    world.scheduler.schedule_all(tasks.chain([soon])).await.unwrap();
    let counts = world.scheduler.forecast(KIND, &[secs(1), secs(60)]).await;
    assert_eq!(counts.unwrap(), [1, defaults::FORECAST_LIMIT]);
}
