//! Tests servers with accounts, and servers that speak TLS only.

#[cfg(feature = "rocketmq-tls")]
use std::path::{Path, PathBuf};

use super::servers::RocketMqServers;
use super::*;

fn options(servers: &RocketMqServers, topic: &str) -> RocketMqOptions {
    RocketMqOptions::new(&servers.nameserver).topic(topic)
}

fn as_account(servers: &RocketMqServers, name: &str, topic: &str) -> RocketMqOptions {
    let (access_key, secret_key) = servers.account(name);
    options(servers, topic).credentials(access_key, secret_key)
}

async fn refusal(options: RocketMqOptions) -> String {
    connect(options).await.unwrap_err().to_string()
}

async fn assert_carries(options: RocketMqOptions) {
    let backend = connect(options).await.unwrap();
    let mut asked = 0;
    while let Err(error) = backend.health().await {
        asked += 1;
        assert!(error.is_transient() && asked < 20, "{error}");
    }
    send(&backend, departures(0..50, ONE)).await;
    assert_eq!(receive_all(&backend, 50).await.len(), 50);
    backend.close().await.unwrap();
}

/// Asserts everything about accounts, on brokers with some.
async fn assert_accounts_count(version: &[&str]) {
    let args = [version, &["--acl", "--levels", LEVELS]].concat();
    let servers = RocketMqServers::start(&args);
    let worker = |topic| as_account(&servers, "worker", topic).levels(LEVELS.parse().unwrap());

    let missing = refusal(worker("wakes")).await;
    assert!(
        missing.contains("no master has the topic wakes") && missing.contains("access is denied"),
        "{missing}"
    );
    assert_carries(as_account(&servers, "admin", "wakes")).await;
    // The topic exists now, and more is not needed.
    assert_carries(worker("wakes")).await;

    let (access_key, secret_key) = servers.account("worker");
    for topic in ["wakes", "other"] {
        let plain = options(&servers, topic);
        for wrong in [
            plain.clone(),
            plain.clone().credentials(&access_key, "not the secret"),
            plain.clone().credentials("unknown-account", &secret_key),
        ] {
            // It does not go away by itself, so there is no use in waiting either.
            let denied = refusal(wrong.lazy()).await;
            assert!(denied.contains("access is denied: the credentials"), "{denied}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_count_on_4_9() {
    assert_accounts_count(&["--version", "4.9.7", "--nameserver", "4.9.7"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_count_on_5_3() {
    assert_accounts_count(&["--version", "5.3.3"]).await;
}

/// Asserts everything about TLS, on servers that speak nothing else.
#[cfg(feature = "rocketmq-tls")]
async fn assert_tls_is_spoken(version: &[&str]) {
    let args = [version, &["--tls", "--levels", LEVELS]].concat();
    let servers = RocketMqServers::start(&args);
    assert_carries(options(&servers, "wakes").tls(servers.authority())).await;

    let folder = tempfile::tempdir().unwrap();
    let untrusted = make_untrusted(folder.path());
    let distrust = refusal(options(&servers, "wakes").tls(untrusted)).await;
    assert!(
        distrust.contains("UnknownIssuer") && distrust.contains("RocketMqOptions::tls"),
        "{distrust}"
    );
    let garbled = folder.path().join("garbled.pem");
    std::fs::write(
        &garbled,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    let unusable = refusal(options(&servers, "wakes").tls(garbled)).await;
    assert!(unusable.contains("BadEncoding"), "{unusable}");
    // The servers may also be away, so this may be tried again.
    let plain = timeout(SAFETY, RocketMqBackend::connect(options(&servers, "wakes")))
        .await
        .expect("in bounded time")
        .unwrap_err()
        .to_string();
    assert!(plain.contains("may want TLS"), "{plain}");
}

#[cfg(feature = "rocketmq-tls")]
#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_with_4_9() {
    assert_tls_is_spoken(&["--version", "4.9.7", "--nameserver", "4.9.7"]).await;
}

#[cfg(feature = "rocketmq-tls")]
#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_with_5_3() {
    assert_tls_is_spoken(&["--version", "5.3.3"]).await;
}

/// The certificate of an authority that has signed no other.
#[cfg(feature = "rocketmq-tls")]
fn make_untrusted(folder: &Path) -> PathBuf {
    let file = folder.join("ca.pem");
    let made = std::process::Command::new("openssl")
        .current_dir(folder)
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=untrusted",
        ])
        .args(["-keyout", "ca.key", "-out", "ca.pem"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    file
}
