//! Tests servers with other contents, rights, versions and settings than usual.

use super::*;

#[tokio::test]
async fn without_the_right_to_publish_and_listen_it_works_by_looking() {
    let server = RedisServer::start();
    let () = ask(
        &server,
        &[
            "ACL",
            "SETUSER",
            "clerk",
            "on",
            ">s3cret",
            "+@all",
            "~*",
            "resetchannels",
        ],
    );
    let url = server.url().replace("redis://", "redis://clerk:s3cret@");
    let backend = Arc::new(RedisBackend::new(&url).unwrap());
    safely(backend.send(&[departure(0, HOUR)])).await.unwrap();
    let receiving = tokio::spawn({
        let backend = backend.clone();
        async move { backend.receive(10).await.unwrap() }
    });
    until(&server, &["INFO", "commandstats"], |stats: &String| {
        stats.contains("cmdstat_subscribe")
    })
    .await;
    safely(backend.send(&[departure(1, Duration::from_millis(5))]))
        .await
        .unwrap();
    assert_eq!(wakes(&safely(receiving).await.unwrap()), [wake(1)]);
}

#[tokio::test]
async fn a_server_that_does_not_know_resp3_is_served_too() {
    let server = RedisServer::start_with(&["--rename-command", "HELLO", ""]);
    let backend = backend(&server);
    safely(backend.send(&[departure(1, Duration::from_millis(5))]))
        .await
        .unwrap();
    assert_eq!(wakes(&safely(backend.receive(10)).await.unwrap()), [wake(1)]);
}

#[tokio::test]
async fn foreign_members_are_counted_and_set_aside() {
    let server = RedisServer::start();
    let backend = backend(&server);
    let mut half = member(&wake(7));
    half.truncate(20);
    for (key, score, foreign) in [
        (DUE, "0", b"foreign".to_vec()),
        (DUE, "-inf", vec![0xD1]),
        (DUE, "1.5", half),
        (DUE, "2", Vec::new()),
        (LEASED, "3", vec![0xFF; 3_000]),
    ] {
        let () = redis::cmd("ZADD")
            .arg(key)
            .arg(score)
            .arg(foreign)
            .query(&mut server.admin())
            .unwrap();
    }
    // This one is never due, and must not keep receivers from sleeping.
    let () = ask(&server, &["ZADD", DUE, "inf", "never"]);
    safely(backend.send(&[departure(1, Duration::from_millis(50))]))
        .await
        .unwrap();
    let arrivals = safely(backend.receive(10)).await.unwrap();
    assert_eq!(wakes(&arrivals), [wake(1)]);
    safely(backend.acknowledge(arrivals)).await;
    assert_eq!(backend.foreign(), 5);
    assert_eq!(ask::<u64>(&server, &["ZCARD", DUE]), 1);
    assert_eq!(ask::<u64>(&server, &["ZCARD", LEASED]), 0);
    assert_eq!(ask::<u64>(&server, &["ZCARD", FOREIGN]), 5, "they are set aside");
}

#[tokio::test]
async fn foreign_messages_are_ignored() {
    let server = RedisServer::start();
    let backend = Arc::new(backend(&server));
    let receiving = tokio::spawn({
        let backend = backend.clone();
        async move { backend.receive(10).await.unwrap() }
    });
    until_listening(&server, 1).await;
    for message in [
        "",
        "due",
        "due 0 -1",
        "due 0 18446744073709551615",
        "due 9 0",
        "more 99999",
        "members",
        "soon",
        "\u{fffd}",
    ] {
        let () = ask(&server, &["PUBLISH", HINTS, message]);
    }
    safely(backend.send(&[departure(1, Duration::ZERO)]))
        .await
        .unwrap();
    assert_eq!(wakes(&safely(receiving).await.unwrap()), [wake(1)]);
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_at_which_nothing_is_lost() {
    let server = RedisServer::start();
    let backend = backend(&server);
    safely(backend.send(&[departure(1, Duration::ZERO)]))
        .await
        .unwrap();
    let () = ask(&server, &["SET", LEASED, "text"]);
    let error = safely(backend.receive(10)).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    let () = ask(&server, &["DEL", LEASED]);
    let received = safely(async {
        loop {
            // A poll in flight may find it once more.
            if let Ok(received) = backend.receive(10).await {
                return received;
            }
        }
    });
    assert_eq!(wakes(&received.await), [wake(1)]);
}

#[tokio::test]
async fn a_wrong_password_is_an_error_without_the_password() {
    let server = RedisServer::start_with(&["--requirepass", "right"]);
    for userinfo in [":s3cret@", "clerk:s3cret@", ""] {
        let url = server.url().replace("redis://", &format!("redis://{userinfo}"));
        let backend = RedisBackend::new(&url).unwrap();
        let sent = safely(backend.send(&[departure(1, HOUR)])).await.unwrap_err();
        let errors = [
            sent.cause,
            safely(backend.health()).await.unwrap_err(),
            safely(backend.receive(1)).await.unwrap_err(),
        ];
        for error in errors {
            assert!(!error.is_transient(), "{error}");
            assert!(
                !format!("{error} {error:?} {backend:?}").contains("s3cret"),
                "{error:?}"
            );
        }
    }
    let url = server.url().replace("redis://", "redis://:right@");
    until_healthy(&RedisBackend::new(&url).unwrap()).await;
}

#[tokio::test]
async fn prefixes_and_databases_are_apart() {
    let server = RedisServer::start();
    let second = format!("{}/2", server.url());
    let backends = [
        backend(&server),
        builder(&server).prefix("other").build().unwrap(),
        RedisBackend::new(&second).unwrap(),
    ];
    for (number, backend) in (0..).zip(&backends) {
        safely(backend.send(&[departure(number, Duration::ZERO)]))
            .await
            .unwrap();
    }
    for (number, backend) in (0..).zip(&backends) {
        assert_eq!(wakes(&safely(backend.receive(10)).await.unwrap()), [wake(number)]);
    }
}

#[tokio::test]
async fn a_node_of_a_cluster_takes_all_keys() {
    let server = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    let () = ask(&server, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    until(&server, &["CLUSTER", "INFO"], |info: &String| {
        info.contains("cluster_state:ok")
    })
    .await;
    let backend = builder(&server).prefix("orders in Köln").build().unwrap();
    safely(backend.send(&[departure(1, Duration::ZERO)]))
        .await
        .unwrap();
    let arrivals = safely(backend.receive(10)).await.unwrap();
    assert_eq!(wakes(&arrivals), [wake(1)]);
    safely(backend.acknowledge(arrivals)).await;
    let mut keys: Vec<String> = ask(&server, &["KEYS", "*"]);
    keys.sort();
    // Nothing of the wake-up is left.
    assert_eq!(
        keys,
        [
            "{orders in Köln:wakes:0}:kinds",
            "{orders in Köln:wakes}:members",
            "{orders in Köln:wakes}:shards",
        ]
    );
}

#[test]
fn settings_that_cannot_be_used_are_refused() {
    let builder = || RedisBackend::builder("redis://127.0.0.1");
    for prefix in ["", "a{b", "}", "a\nb", &"x".repeat(101)] {
        assert!(
            matches!(builder().prefix(prefix).build(), Err(Error::Invalid { .. })),
            "{prefix:?}"
        );
    }
    for lease in [Duration::ZERO, Duration::from_secs(86_401)] {
        assert!(
            matches!(builder().lease(lease).build(), Err(Error::Invalid { .. })),
            "{lease:?}"
        );
    }
}
