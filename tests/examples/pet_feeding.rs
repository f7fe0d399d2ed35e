//! The example `pet_feeding`, as a user runs it.

use crate::program;

/// Runs the game, which counts by itself: it succeeds only if every pet was hungry once, at its time.
async fn everybody_is_hungry_once(arguments: &[&str]) {
    let said = program::said("pet_feeding", arguments).await;
    let last = said.lines().last().unwrap();
    assert!(last.contains("everybody is hungry feedings=80"), "{last}");
    let number = |name: &str| -> usize {
        let (_, rest) = last.split_once(name).unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    // Three cards count for sure, of each player, and two are thrown at the last moment.
    let (counted, back) = (number("cards_counted="), number("cards_back="));
    assert_eq!(counted + back, 100, "{last}");
    assert!(counted >= 60, "{last}");
}

#[tokio::test]
async fn everybody_is_hungry_once_in_a_file() {
    // Hours of more than a second: it feeds a pet twice within four of them, also on a busy machine.
    everybody_is_hungry_once(&["--hour", "1500"]).await;
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn everybody_is_hungry_once_in_redis() {
    let server = crate::redis_server::RedisServer::start();
    everybody_is_hungry_once(&["--redis", &server.url()]).await;
}
