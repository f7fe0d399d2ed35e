//! Tests what a broker reports about itself, and temporary topics on it.

use delayline::rocketmq::{Scratch, Survey};

use super::*;

/// What a broker says that has answered every question: a busy one may take longer than a survey waits for it.
async fn taken() -> Survey {
    loop {
        let survey = Survey::take(nameserver()).await.unwrap();
        if survey.masters.iter().all(|master| master.unanswered.is_empty()) {
            return survey;
        }
    }
}

#[tokio::test]
async fn a_broker_tells_what_it_is() {
    let survey = timeout(SAFETY, taken()).await.expect("a broker that answers");
    assert_eq!(survey.headless, [""; 0]);
    let [master] = &survey.masters[..] else {
        panic!("{survey:?}")
    };
    assert_eq!(master.name, "broker-a");
    assert!(master.address.contains(':'), "{}", master.address);
    assert_eq!(master.levels.as_ref().unwrap().to_string(), LEVELS);
    let version = master.version.unwrap();
    assert!(version.major >= 4, "{version}");
    assert_eq!(master.timers.is_some(), version.major >= 5);
    let access = master.access.unwrap();
    assert!(!access.authentication && !access.authorization);
    assert_eq!(master.retention, Some(Duration::from_secs(72 * 3_600)));
    assert_eq!(master.makes_groups, Some(true));
    assert!(master.disk_used.is_some());
}

#[tokio::test]
async fn nothing_but_an_error_comes_of_nameservers_that_are_none() {
    let refused = Survey::take("nonsense").await.unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Invalid {
                field: "nameservers",
                ..
            }
        ),
        "{refused}"
    );
    // No process listens on port 1.
    let absent = Survey::take("127.0.0.1:1").await.unwrap_err();
    assert!(absent.is_transient(), "{absent}");
}

#[tokio::test]
async fn a_scratch_place_serves_and_leaves_nothing_behind() {
    let raw = Raw::new(&nameserver());
    let place = RocketMqOptions::new(nameserver())
        .topic("scratch")
        .group("scratch");
    let scratch = Scratch::make(place).await.unwrap();
    assert!(scratch.refusals().is_empty(), "{:?}", scratch.refusals());
    let shown = format!("{scratch:?}");
    let name = |start: &str| {
        let rest = &shown[shown.find(start).unwrap() + start.len()..];
        rest[..rest.find('"').unwrap()].to_owned()
    };
    let (topic, group) = (name("topic: \""), name("group: \""));
    assert!(
        topic.starts_with("scratch_") && group.starts_with("scratch_"),
        "{shown}"
    );
    assert!(raw.has_group(&group).await);

    let backend = RocketMqBackend::connect(scratch.options().clone()).await.unwrap();
    assert!(raw.queues(&topic).await > 0);
    send(&backend, departures(0..20, ONE)).await;
    receive_all(&backend, 20).await;
    backend.close().await.unwrap();
    scratch.delete().await.unwrap();

    assert_eq!(raw.queues(&topic).await, 0);
    assert_eq!(raw.queues(&format!("%RETRY%{group}")).await, 0);
    // For as long as the broker holds the consumer's last poll: 15 s, and up to 5 s until it looks.
    let end = Instant::now() + Duration::from_secs(15 + 5 + 2);
    while Instant::now() < end {
        assert!(!raw.has_group(&group).await, "the group has come back");
        tokio::time::sleep(ONE).await;
    }
    raw.close().await;
}
