//! The interface, as it is described for machines.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::server::{ANY_PORT, Server};

#[tokio::test]
async fn each_request_is_described_with_what_it_may_be_answered() {
    let server = Server::configured(&format!("{ANY_PORT}base_path = \"/later\""));
    let described = server.get("/openapi.json").await.body;
    assert_eq!(described["openapi"], "3.1.0");
    assert_eq!(described["servers"][0]["url"], "/later");
    let paths = described["paths"].as_object().unwrap();
    let mut requests: Vec<_> = paths
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().iter();
            methods.map(move |(method, request)| {
                for status in ["400", "401", "403", "503"] {
                    let problem = &request["responses"][status]["content"]["application/problem+json"];
                    assert!(problem.is_object(), "{method} {path} does not say {status}");
                }
                format!("{method} {path}")
            })
        })
        .collect();
    // Programs that are made from the description have a function of each name.
    let requests_of = |methods: &Value| methods.as_object().unwrap().values().cloned().collect::<Vec<_>>();
    let names: Vec<_> = paths.values().flat_map(requests_of).collect();
    let distinct: BTreeSet<_> = names
        .iter()
        .map(|request| request["operationId"].as_str().unwrap())
        .collect();
    assert_eq!(distinct.len(), names.len(), "{distinct:?}");
    requests.sort();
    assert_eq!(
        requests,
        [
            "delete /v1/bulk/{id}",
            "get /v1/bulk",
            "get /v1/bulk/{id}",
            "get /v1/events",
            "get /v1/forecast",
            "get /v1/kinds",
            "get /v1/stats",
            "get /v1/tasks",
            "get /v1/tasks/id/{id}",
            "get /v1/tasks/{kind}/{key}",
            "get /v1/time",
            "post /v1/claims",
            "post /v1/claims/{claim}/discard",
            "post /v1/claims/{claim}/done",
            "post /v1/claims/{claim}/extend",
            "post /v1/claims/{claim}/retry",
            "post /v1/claims/{claim}/snooze",
            "post /v1/claims:done",
            "post /v1/kinds/{kind}/pause",
            "post /v1/kinds/{kind}/resume",
            "post /v1/tasks",
            "post /v1/tasks/id/{id}/cancel",
            "post /v1/tasks/id/{id}/dismiss",
            "post /v1/tasks/id/{id}/edit",
            "post /v1/tasks/id/{id}/redrive",
            "post /v1/tasks/id/{id}/rerun",
            "post /v1/tasks/id/{id}/reschedule",
            "post /v1/tasks/id/{id}/run",
            "post /v1/tasks/id/{id}/shift",
            "post /v1/tasks/{kind}/{key}/cancel",
            "post /v1/tasks/{kind}/{key}/dismiss",
            "post /v1/tasks/{kind}/{key}/edit",
            "post /v1/tasks/{kind}/{key}/redrive",
            "post /v1/tasks/{kind}/{key}/rerun",
            "post /v1/tasks/{kind}/{key}/reschedule",
            "post /v1/tasks/{kind}/{key}/run",
            "post /v1/tasks/{kind}/{key}/shift",
            "post /v1/tasks:cancel",
            "post /v1/tasks:dismiss",
            "post /v1/tasks:redrive",
            "post /v1/tasks:reschedule",
            "post /v1/tasks:run",
            "post /v1/tasks:shift",
            "post /v1/time/advance",
            "put /v1/tasks/{kind}/{key}",
        ]
    );
}

#[tokio::test]
async fn every_reference_leads_somewhere() {
    let described = Server::start().get("/openapi.json").await.body;
    let mut places = vec![&described];
    let mut followed = 0;
    while let Some(place) = places.pop() {
        match place {
            Value::Object(object) => {
                if let Some(Value::String(reference)) = object.get("$ref") {
                    let pointer = reference.strip_prefix('#').unwrap();
                    assert!(described.pointer(pointer).is_some(), "{reference} leads nowhere");
                    followed += 1;
                }
                places.extend(object.values());
            }
            Value::Array(array) => places.extend(array),
            _ => {}
        }
    }
    assert!(followed > 10);
}
