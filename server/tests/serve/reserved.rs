//! Kinds and headers of the server's own.

use serde_json::json;

use crate::server::{ANY_PORT, Server, check};

#[tokio::test]
async fn no_caller_makes_changes_or_claims_tasks_of_the_server() {
    let server = Server::start();
    let task = json!({"at": "9999-12-31T23:59:59Z", "payload": {"until": null, "reason": "forged"}});
    for kind in ["delayline.paused", "delayline.rejected", "delayline.x"] {
        let path = format!("/v1/tasks/{kind}/victim");
        server.put(&path, task.clone()).await.refuses(400, "kind is");
        let one = json!({"kind": kind, "key": "victim", "after": "1h"});
        server
            .post("/v1/tasks", one.clone())
            .await
            .refuses(400, "kind is");
        let each = server.post("/v1/tasks", json!([one])).await.body;
        assert_eq!(
            (&each[0]["status"], &each[0]["field"]),
            (&json!(400), &json!("kind"))
        );
        let claims = json!({"kinds": ["k", kind]});
        server.post("/v1/claims", claims).await.refuses(400, "kind is");
        for (verb, body) in [
            ("cancel", json!({})),
            ("run", json!({})),
            ("redrive", json!({})),
            ("reschedule", json!({"after": "0s"})),
            ("shift", json!({"by": "-2h"})),
        ] {
            let one = server.post(&format!("{path}/{verb}"), body.clone()).await;
            one.refuses(400, "kind is");
            let mut bulk = json!({"filter": {"kind": kind}});
            bulk.as_object_mut()
                .unwrap()
                .extend(body.as_object().unwrap().clone());
            let all = server.post(&format!("/v1/tasks:{verb}"), bulk).await;
            all.refuses(400, "kind is");
        }
        for verb in ["pause", "resume"] {
            let path = format!("/v1/kinds/{kind}/{verb}");
            server.post(&path, json!({})).await.refuses(400, "kind is");
        }
    }
    assert_eq!(server.get("/v1/kinds").await.body, json!({"kinds": []}));
    // What was rejected is looked at, and given up.
    assert_eq!(
        server
            .get("/v1/tasks?kind=delayline.rejected&state=dead")
            .await
            .status,
        200
    );
    let dismiss = json!({"filter": {"kind": "delayline.rejected"}});
    assert_eq!(server.post("/v1/tasks:dismiss", dismiss).await.status, 200);
}

#[tokio::test]
async fn headers_of_the_server_come_from_no_caller() {
    let server = Server::start();
    for name in ["DELAYLINE_TOPIC", "delayline_overtaken", "Delayline_Requests"] {
        let body = json!({"after": "1h", "headers": {name: "x"}});
        let put = server.put("/v1/tasks/k/1", body).await;
        put.refuses(400, &format!("headers is \"{name}\""));
        let batch = json!([{"kind": "k", "after": "1h", "headers": {"a": "b", name: "x"}}]);
        let each = server.post("/v1/tasks", batch).await.body;
        assert_eq!(each[0]["field"], "headers");
    }
    assert_eq!(server.get("/v1/kinds").await.body, json!({"kinds": []}));
    let body = json!({"after": "1h", "headers": {"delayline": "x", "DELAY": "y"}});
    server.put("/v1/tasks/k/1", body).await.is(201, "new");
}

#[test]
fn no_configuration_names_a_kind_of_the_server() {
    let kind = format!("{ANY_PORT}[kinds.\"delayline.paused\"]\ndeliver = \"pull\"\n");
    let output = check(&kind);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && said.contains("do not begin with delayline."),
        "{said}"
    );
}

#[cfg(feature = "rocketmq")]
#[tokio::test]
async fn no_caller_schedules_or_claims_what_comes_by_the_gateway() {
    // It starts while its brokers are away.
    let server = Server::configured(&format!(
        "{ANY_PORT}[rocketmq]\nnameserver = \"127.0.0.1:1\"\n[gateway]\ntargets = [\"order_*\"]\n"
    ));
    let body = json!({"after": "1h"});
    let put = server.put("/v1/tasks/message/order-1", body).await;
    put.refuses(400, "kind is \"message\"");
    let claims = server.post("/v1/claims", json!({"kinds": ["message"]})).await;
    claims.refuses(400, "kinds is \"message\"");
}
