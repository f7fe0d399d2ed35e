//! The figures of a server, as Prometheus has them; the alerts and the dashboard that look at them.

use serde_json::{Value, json};

use crate::access::TOKENS;
use crate::prometheus::{Prometheus, file, promtool};
use crate::server::{ANY_PORT, Answer, Server};

#[track_caller]
fn succeeds(arguments: &[&str], input: &str) {
    let output = promtool(arguments, input);
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "promtool {arguments:?}: {said}\n{input}");
}

async fn figures(server: &Server) -> String {
    let answer = server.get("/metrics").await;
    assert_eq!(
        (answer.status.as_u16(), &*answer.type_of),
        (200, "text/plain; version=0.0.4; charset=utf-8")
    );
    answer.body.as_str().unwrap().to_owned()
}

/// A server that has done as much of each as [`what_a_server_has_done_is_told_to_prometheus`] says.
async fn worked() -> Server {
    let server = Server::start();
    let task = |after: &str| json!({"after": after});
    for key in ["1", "2", "3"] {
        let new = server.put(&format!("/v1/tasks/later/{key}"), task("1h")).await;
        new.is(201, "new");
    }
    server
        .put("/v1/tasks/later/1", task("1h"))
        .await
        .is(200, "existing");
    let verb = async |path: &str| server.post(&format!("/v1/tasks/later/{path}"), json!({})).await;
    verb("1/cancel").await.is(200, "done");
    verb("1/cancel").await.is(409, "finished");
    verb("4/cancel").await.is(404, "not_found");
    let nothing = server.post("/v1/claims", json!({"kinds": ["now"]})).await;
    assert_eq!(nothing.body, json!({"claims": []}));
    for (key, end, body) in [
        ("1", "done", json!({})),
        ("2", "done", json!({})),
        ("3", "retry", json!({"after": "1h"})),
        ("4", "discard", json!({"reason": "no paper"})),
    ] {
        server
            .put(&format!("/v1/tasks/now/{key}"), task("0s"))
            .await
            .is(201, "new");
        let given = server
            .post("/v1/claims", json!({"kinds": ["now"], "wait": "30s"}))
            .await;
        let claim = given.body["claims"][0]["claim"].as_str().unwrap();
        let end = format!("/v1/claims/{claim}/{end}");
        server.post(&end, body).await.is(200, "done");
    }
    server
}

#[tokio::test]
async fn what_a_server_has_done_is_told_to_prometheus() {
    let server = worked().await;
    let prometheus = Prometheus::of(&server.url).await;
    for (query, value) in [
        ("delayline_verbs_total{verb='schedule', answer='new'}", 7.0),
        ("delayline_verbs_total{verb='schedule', answer='existing'}", 1.0),
        ("delayline_verbs_total{verb='cancel', answer='done'}", 1.0),
        ("delayline_verbs_total{verb='cancel', answer='finished'}", 1.0),
        ("delayline_verbs_total{verb='cancel', answer='not_found'}", 1.0),
        ("delayline_verbs_total{verb='claim', answer='given'}", 4.0),
        ("delayline_verbs_total{verb='claim', answer='nothing'}", 1.0),
        ("delayline_verbs_total{verb='done', answer='done'}", 2.0),
        ("delayline_verbs_total{verb='retry', answer='done'}", 1.0),
        ("delayline_verbs_total{verb='discard', answer='done'}", 1.0),
        ("sum(delayline_verbs_total)", 20.0),
        ("delayline_attempts_total{kind='now', outcome='done'}", 2.0),
        ("delayline_attempts_total{kind='now', outcome='retry'}", 1.0),
        ("delayline_attempts_total{kind='now', outcome='dead'}", 1.0),
        ("sum(delayline_attempts_total)", 4.0),
        ("delayline_wakeups_total{route='claim', result='claimed'}", 4.0),
        (
            "delayline_task_lateness_seconds_count{kind='now', woken_by='claim'}",
            4.0,
        ),
        ("sum(delayline_task_lateness_seconds_count)", 4.0),
        (
            "delayline_task_lateness_seconds_bucket{kind='now', le='3600'}",
            4.0,
        ),
        (
            "messaging_process_duration_seconds_count{kind='now', outcome='done', messaging_system='delayline'}",
            2.0,
        ),
        ("delayline_tasks{kind='later', state='scheduled'}", 2.0),
        ("delayline_tasks{kind='later', state='dead'}", 0.0),
        ("delayline_tasks{kind='now', state='scheduled'}", 1.0),
        ("delayline_tasks{kind='now', state='running'}", 0.0),
        ("delayline_tasks{kind='now', state='dead'}", 1.0),
        ("delayline_tasks_due{kind='later', bound_s='3600'}", 2.0),
        ("delayline_tasks_due{kind='later', bound_s='900'}", 0.0),
        ("count(delayline_tasks_due{kind='later'})", 8.0),
        ("delayline_overdue_oldest_seconds{kind='later'}", 0.0),
        ("delayline_failing_oldest_seconds{kind='later'}", 0.0),
        ("delayline_failing_oldest_seconds{kind='now'} > bool 0", 1.0),
    ] {
        assert_eq!(prometheus.number(query).await, value, "{query}");
    }
    let buckets = prometheus.query("delayline_task_lateness_seconds_bucket").await;
    let mut bounds: Vec<f64> = buckets
        .iter()
        .map(|(labels, _)| labels["le"].parse().unwrap())
        .collect();
    bounds.sort_by(f64::total_cmp);
    assert_eq!(
        bounds,
        [
            0.005,
            0.01,
            0.025,
            0.05,
            0.1,
            0.25,
            0.5,
            1.0,
            2.5,
            5.0,
            10.0,
            30.0,
            60.0,
            300.0,
            3_600.0,
            f64::INFINITY
        ]
    );
}

#[tokio::test]
async fn every_query_of_the_dashboard_and_of_the_alerts_can_be_asked() {
    let server = worked().await;
    let prometheus = Prometheus::of(&server.url).await;
    let dashboard = std::fs::read_to_string(file("deploy/grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let queries = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries: Vec<_> = queries.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(queries.len() > panels.len(), "{queries:?}");
    for query in queries {
        // As Grafana does.
        let query = query.replace("$__rate_interval", "1m").replace("$kind", ".*");
        assert!(!query.contains('$'), "{query}");
        if ["delayline_level_", "messaging_client_"]
            .iter()
            .any(|of| query.contains(of))
        {
            // Without brokers there is nothing.
            assert_eq!(prometheus.query(&query).await, [], "{query}");
        } else {
            prometheus.found(&query).await;
        }
    }
    let rules = prometheus.ask("rules").await;
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    assert_eq!(rules.len(), 6);
    for rule in rules {
        assert_eq!(
            (&rule["type"], &rule["lastError"]),
            (&json!("alerting"), &Value::Null),
            "{rule}"
        );
    }
}

#[tokio::test]
async fn what_prometheus_reads_is_as_its_own_rules_want_it() {
    succeeds(&["check", "metrics"], &figures(&worked().await).await);
}

#[test]
fn each_alert_fires_when_it_is_to_and_not_before() {
    let alerts = file("deploy/alerts.yml");
    succeeds(&["check", "rules", alerts.to_str().unwrap()], "");
    let cases = file("server/tests/serve/alerts.yml");
    succeeds(&["test", "rules", cases.to_str().unwrap()], "");
}

#[tokio::test]
async fn a_token_that_may_scrape_may_do_nothing_else() {
    let server = Server::configured(&format!("{ANY_PORT}{TOKENS}"));
    let ask = async |path: &str, token: Option<&str>| {
        let request = server.request(reqwest::Method::GET, path);
        let request = match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        Answer::of(request).await
    };
    assert_eq!(ask("/metrics", Some("scraper")).await.status, 200);
    assert_eq!(ask("/metrics", Some("reader")).await.status, 200);
    ask("/metrics", Some("shop"))
        .await
        .refuses(403, "may not scrape nor read");
    ask("/metrics", None).await.refuses(401, "no token that is known");
    ask("/v1/stats", Some("scraper"))
        .await
        .refuses(403, "may not read");
}

#[tokio::test]
async fn it_is_under_the_base_path_and_tells_nothing_of_single_tasks() {
    let server = Server::configured(&format!("{ANY_PORT}base_path = \"/later\""));
    let new = server
        .put("/v1/tasks/k/customer-17", json!({"after": "1h"}))
        .await;
    let id = new.is(201, "new")["id"].as_str().unwrap().to_owned();
    let told = figures(&server).await;
    assert!(
        told.contains("delayline_tasks{kind=\"k\",state=\"scheduled\"} 1\n"),
        "{told}"
    );
    assert!(!told.contains("customer-17") && !told.contains(&id), "{told}");
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn it_answers_while_the_store_does_not() {
    let redis = crate::redis_server::RedisServer::start();
    let server = Server::configured(&format!("[store]\nurl = \"{}\"\n{ANY_PORT}", redis.url()));
    let task = json!({"after": "1h"});
    server.put("/v1/tasks/k/1", task).await.is(201, "new");
    redis.signal("STOP");
    let told = figures(&server).await;
    assert!(
        told.contains("delayline_verbs_total{verb=\"schedule\",answer=\"new\"} 1\n"),
        "{told}"
    );
    assert!(!told.contains("delayline_tasks{"), "{told}");
    let log = server.log();
    assert!(log.contains("how many tasks there are"), "{log}");
    redis.signal("CONT");
    while !figures(&server)
        .await
        .contains("delayline_tasks{kind=\"k\",state=\"scheduled\"} 1\n")
    {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}
