//! What a collector is told: by a receiver of a test's own that speaks OTLP.

use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value as AttributeValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Metric};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use prost::Message as _;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::receiver::Receiver;
use crate::server::{ANY_PORT, Answer, Server, check};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Takes spans and figures as a collector does, and ends with the test.
pub(crate) struct Collector {
    pub(crate) port: u16,
    requests: mpsc::UnboundedReceiver<(HeaderMap, ExportTraceServiceRequest)>,
    figures: mpsc::UnboundedReceiver<(HeaderMap, ExportMetricsServiceRequest)>,
    seen: Vec<Span>,
    serving: JoinHandle<()>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let ((send, requests), (send_figures, figures)) =
            (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let take = move |headers: HeaderMap, body: Bytes| {
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            // The test may have ended.
            let _ = send.send((headers, request));
            async { StatusCode::OK }
        };
        let take_figures = move |headers: HeaderMap, body: Bytes| {
            let request = ExportMetricsServiceRequest::decode(body).unwrap();
            let _ = send_figures.send((headers, request));
            async { StatusCode::OK }
        };
        let router = Router::new()
            .route("/v1/traces", post(take))
            .route("/v1/metrics", post(take_figures));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            port,
            requests,
            figures,
            seen: Vec::new(),
            serving,
        }
    }

    /// What a server is told of it.
    pub(crate) fn config(&self) -> String {
        format!("[otlp]\nendpoint = \"http://127.0.0.1:{}\"\n", self.port)
    }

    /// The next request, and its spans.
    async fn next(&mut self) -> (HeaderMap, ExportTraceServiceRequest) {
        self.requests.recv().await.unwrap()
    }

    /// The span of this name, once it is there.
    pub(crate) async fn span(&mut self, name: &str) -> Span {
        loop {
            if let Some(at) = self.seen.iter().position(|span| span.name == name) {
                return self.seen.remove(at);
            }
            let (_, request) = self.next().await;
            let scopes = request.resource_spans.into_iter().flat_map(|of| of.scope_spans);
            self.seen.extend(scopes.flat_map(|scope| scope.spans));
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As W3C Trace Context writes it.
pub(crate) fn traceparent(span: &Span) -> String {
    format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id))
}

/// The spans to which this one is linked.
pub(crate) fn links(span: &Span) -> Vec<String> {
    let links = span.links.iter();
    links
        .map(|link| format!("00-{}-{}-01", hex(&link.trace_id), hex(&link.span_id)))
        .collect()
}

fn text(span: &Span, name: &str) -> Option<String> {
    text_of(&span.attributes, name)
}

fn text_of(attributes: &[KeyValue], name: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.key == name)?;
    match attribute.value.clone()? {
        AnyValue {
            value: Some(AttributeValue::StringValue(text)),
        } => Some(text),
        other => panic!("{name} is {other:?}"),
    }
}

/// A server that posts the tasks of kind `k`, and tells the collector.
fn posting(collector: &Collector, url: &str) -> Server {
    let allow = "[webhooks]\nallow = [\"127.0.0.1\"]\n";
    let kind = format!("[kinds.k]\nattempts = 1\ndeliver = {{ url = \"{url}\", secret = \"{SECRET}\" }}\n");
    Server::configured(&format!("{ANY_PORT}{}{allow}{kind}", collector.config()))
}

async fn put(server: &Server, key: &str, headers: Value, parent: Option<&str>) -> Answer {
    let body = json!({"after": "0s", "payload": 1, "headers": headers});
    let mut request = server.request(Method::PUT, &format!("/v1/tasks/k/{key}"));
    if let Some(parent) = parent {
        request = request.header("traceparent", parent).header("tracestate", "a=1");
    }
    Answer::of(request.json(&body)).await
}

#[tokio::test]
async fn a_task_is_made_in_its_callers_trace_and_attempted_in_one_that_is_linked() {
    let mut collector = Collector::start().await;
    let mut receiver = Receiver::start(async |_| StatusCode::NO_CONTENT.into_response()).await;
    let server = posting(&collector, &receiver.url());
    let task = put(&server, "1", json!({}), Some(PARENT)).await;
    let task = task.is(201, "new");
    let id = task["id"].as_str().unwrap();

    let create = collector.span("create k").await;
    assert_eq!(
        (hex(&create.trace_id), hex(&create.parent_span_id)),
        (TRACE.into(), CALLER.into())
    );
    assert_eq!((create.kind(), &*create.trace_state), (SpanKind::Producer, "a=1"));
    let made = traceparent(&create);
    let kept = &server.get("/v1/tasks/k/1").await.body["headers"];
    assert_eq!(
        (&kept["traceparent"], &kept["tracestate"]),
        (&json!(made), &json!("a=1"))
    );

    let process = collector.span("process k").await;
    assert_eq!(
        (process.kind(), &*process.parent_span_id),
        (SpanKind::Consumer, &[][..])
    );
    assert_ne!(hex(&process.trace_id), TRACE);
    assert_eq!(links(&process), std::slice::from_ref(&made));
    for span in [&create, &process] {
        assert_eq!(text(span, "messaging.system").unwrap(), "delayline");
        assert_eq!(text(span, "messaging.destination.name").unwrap(), "k");
        assert_eq!(text(span, "messaging.message.id").unwrap(), id);
        assert_eq!(span.status.clone().unwrap_or_default().code(), SpanStatus::Unset);
    }

    // The receiver takes part in the attempt, and is told of the other as well.
    let received = receiver.next().await;
    assert_eq!(received.header("traceparent").unwrap(), traceparent(&process));
    assert_eq!(received.header("delayline-header-traceparent").unwrap(), made);
}

#[tokio::test]
async fn a_trace_that_the_task_names_itself_comes_first_and_nonsense_begins_a_new_one() {
    let mut collector = Collector::start().await;
    let server = Server::configured(&format!("{ANY_PORT}{}", collector.config()));
    let own = "00-11111111111111111111111111111111-2222222222222222-01";
    put(&server, "1", json!({"traceparent": own}), Some(PARENT)).await;
    let create = collector.span("create k").await;
    assert_eq!(hex(&create.trace_id), "1".repeat(32));
    put(&server, "2", json!({"traceparent": "no"}), Some("00-nonsense")).await;
    let create = collector.span("create k").await;
    assert!(create.parent_span_id.is_empty());

    // Of a batch each has its own, and what cannot be scheduled has none.
    let batch = json!([{"kind": "k", "after": "1h"}, {"kind": "k"}, {"kind": "k", "after": "1h"}]);
    server.post("/v1/tasks", batch).await;
    let (one, other) = (collector.span("create k").await, collector.span("create k").await);
    assert_ne!(one.trace_id, other.trace_id);
    put(&server, "3", json!({}), None).await;
    let last = collector.span("create k").await;
    let id = server.get("/v1/tasks/k/3").await.body["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(text(&last, "messaging.message.id").unwrap(), id);
}

#[tokio::test]
async fn an_attempt_that_fails_says_why() {
    let mut collector = Collector::start().await;
    let receiver = Receiver::start(async |_| StatusCode::IM_A_TEAPOT.into_response()).await;
    let server = posting(&collector, &receiver.url());
    put(&server, "1", json!({}), None).await;
    let status = collector.span("process k").await.status.unwrap();
    assert_eq!(status.code(), SpanStatus::Error);
    assert!(status.message.contains("418"), "{status:?}");
}

/// The figure of this name, as it is at the end of the server.
fn figure(request: &ExportMetricsServiceRequest, name: &str) -> (Metric, Data) {
    let scopes = request.resource_metrics.iter().flat_map(|of| &of.scope_metrics);
    let mut metrics = scopes.flat_map(|scope| &scope.metrics);
    let metric = metrics.find(|metric| metric.name == name);
    let metric = metric.unwrap_or_else(|| panic!("no {name} in {request:?}"));
    (metric.clone(), metric.data.clone().unwrap())
}

// The collector answers while the server ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_are_sent_as_prometheus_is_told_them() {
    let mut collector = Collector::start().await;
    let receiver = Receiver::start(async |_| StatusCode::NO_CONTENT.into_response()).await;
    let mut server = posting(&collector, &receiver.url());
    for key in ["1", "2", "3"] {
        put(&server, key, json!({}), None).await.is(201, "new");
        server
            .until(&format!("/v1/tasks/k/{key}"), |task| task["state"] == "done")
            .await;
    }
    let is_sampled = |figures: &Answer| figures.body.to_string().contains("delayline_overdue_oldest");
    while !is_sampled(&server.get("/metrics").await) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    server.terminate();
    assert!(server.ended().success());
    let mut last = None;
    while let Ok((_, request)) = collector.figures.try_recv() {
        last = Some(request);
    }
    let last = last.expect("they are sent at the end");

    let (metric, data) = figure(&last, "delayline.task.lateness");
    assert_eq!(
        (&*metric.unit, &*metric.description),
        ("s", "How long after its due time a task was started")
    );
    let Data::Histogram(late) = data else {
        panic!("{data:?}")
    };
    assert_eq!(late.aggregation_temporality(), AggregationTemporality::Cumulative);
    let mut count = 0;
    for point in &late.data_points {
        assert_eq!(text_of(&point.attributes, "kind").unwrap(), "k");
        assert!(text_of(&point.attributes, "woken_by").is_some());
        assert_eq!(
            (point.explicit_bounds[0], point.explicit_bounds[14]),
            (0.005, 3_600.0)
        );
        count += point.count;
    }
    assert_eq!(count, 3);

    let (_, data) = figure(&last, "delayline.attempts");
    let Data::Sum(attempts) = data else {
        panic!("{data:?}")
    };
    let mut done = attempts.data_points.iter();
    let done = done
        .find(|point| text_of(&point.attributes, "outcome").as_deref() == Some("done"))
        .unwrap();
    assert_eq!(format!("{:?}", done.value.unwrap()), "AsInt(3)");
    assert!(attempts.is_monotonic);

    let (_, data) = figure(&last, "delayline.overdue.oldest");
    assert!(matches!(data, Data::Gauge(_)), "{data:?}");
}

// The collector answers while the server ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_wanted_is_not_sent() {
    for (wanted, spans, figures) in [("metrics = false", true, false), ("traces = false", false, true)] {
        let mut collector = Collector::start().await;
        let mut server = Server::configured(&format!("{ANY_PORT}{}{wanted}\n", collector.config()));
        put(&server, "1", json!({}), None).await;
        server.terminate();
        assert!(server.ended().success());
        let sent = (
            collector.requests.try_recv().is_ok(),
            collector.figures.try_recv().is_ok(),
        );
        assert_eq!(sent, (spans, figures), "{wanted}");
    }
}

fn is_shop_delays(resource: Option<&Resource>) {
    let name = text_of(&resource.unwrap().attributes, "service.name");
    assert_eq!(name.as_deref(), Some("shop-delays"));
}

// The collector answers while the server ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_collector_asks_for_is_sent_and_in_no_log() {
    let mut collector = Collector::start().await;
    let more = "service = \"shop-delays\"\nheaders = { authorization = \"Bearer hunter2\" }\n";
    let mut server = Server::configured(&format!("{ANY_PORT}{}{more}", collector.config()));
    put(&server, "1", json!({}), None).await;
    // What has not been sent yet is sent at the end.
    server.terminate();
    assert!(server.ended().success());
    let (headers, request) = collector.next().await;
    assert_eq!(headers["authorization"], "Bearer hunter2");
    is_shop_delays(request.resource_spans[0].resource.as_ref());
    let (headers, request) = collector.figures.recv().await.unwrap();
    assert_eq!(headers["authorization"], "Bearer hunter2");
    is_shop_delays(request.resource_metrics[0].resource.as_ref());
    assert!(!server.log().contains("hunter2"));
}

#[tokio::test]
async fn a_collector_that_is_away_holds_up_neither_calls_nor_the_end_of_the_server() {
    // Nothing listens there.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let mut server = Server::configured(&format!(
        "{ANY_PORT}[otlp]\nendpoint = \"http://127.0.0.1:{port}\"\n"
    ));
    put(&server, "1", json!({}), Some(PARENT)).await.is(201, "new");
    server.terminate();
    let ended = tokio::task::spawn_blocking(move || (server.ended().success(), server.log()));
    let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
    let (ended, log) = ended.unwrap().unwrap();
    assert!(ended && log.contains("opentelemetry"), "{log}");
}

#[tokio::test]
async fn without_a_collector_the_callers_trace_is_kept() {
    let server = Server::start();
    put(&server, "1", json!({}), Some(PARENT)).await;
    let kept = &server.get("/v1/tasks/k/1").await.body["headers"];
    assert_eq!(
        (&kept["traceparent"], &kept["tracestate"]),
        (&json!(PARENT), &json!("a=1"))
    );
    put(&server, "2", json!({}), Some("00-nonsense")).await;
    assert_eq!(server.get("/v1/tasks/k/2").await.body["headers"], json!({}));
}

#[test]
fn what_is_no_collector_is_refused() {
    for endpoint in [
        "",
        "collector:4318",
        "ftp://hunter2@x",
        "http://hunter2@x",
        "http://x/v1/traces",
        "http://x/v1/metrics",
        "http://x?hunter2",
    ] {
        let output = check(&format!("[otlp]\nendpoint = \"{endpoint}\"\n"));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("line 2") && said.contains("http://127.0.0.1:4318"),
            "{said}"
        );
        assert!(!said.contains("hunter2"), "{said}");
    }
}
