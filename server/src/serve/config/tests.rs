use super::*;

fn refused(text: &str) -> String {
    match Config::parse("delayline.toml", text) {
        Ok(config) => panic!("it was taken: {config:?}"),
        Err(mistake) => mistake.to_string(),
    }
}

#[test]
fn without_a_file_it_is_a_file_beside_it_and_this_machine_only() {
    let config = Config::parse("delayline.toml", "").unwrap();
    assert_eq!(config.store_url(), "sqlite:delayline.db");
    assert_eq!(config.http.listen.get_ref().to_string(), "127.0.0.1:7700");
    assert!(config.kinds().is_empty());
}

#[test]
fn all_that_there_is_can_be_set() {
    let config = Config::parse(
        "delayline.toml",
        r#"
[store]
url = "postgres://shop@db.example/shop"
[rocketmq]
nameserver = "10.0.0.1:9876;10.0.0.2:9876"
access_key = "a"
secret_key = "b"
topic = "t"
group = "g"
[redis]
url = "rediss://cache.example"
[http]
listen = "0.0.0.0:80"
base_path = "/delayline/"
body_limit = 1000
memory_limit = 2000
trace_url = "https://traces.example/explore?id={trace_id}&at={trace_id}#top"
tokens = [{ name = "shop", sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", may = ["read", "work", "scrape"], kinds = ["order.*"] }]
trusted_proxies = ["10.0.0.0/8", "::1"]
[worker]
stop_timeout = "5s"
[webhooks]
allow = ["billing.internal", "127.0.0.1", "::1"]
[kinds."invoice.overdue"]
deliver = { url = "http://127.0.0.1:8000", secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" }
[kinds."invoice.remind"]
deliver = { url = "http://billing.internal/hooks?a=b", secret = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"] }
[kinds."order.cancel"]
deliver = { topic = "order_timeouts", tag = "cancel" }
attempts = 10
concurrency = 4
backoff_first = "2s"
backoff_max = "1h"
execution_timeout = "1m"
deadline = "1d"
history = "all"
keep_ended = "1h"
keep_dead = "2d"
[kinds.report]
deliver = "pull"
backoff_max = "500ms"
"#,
    )
    .unwrap();
    let kinds = config.kinds();
    assert_eq!(kinds.len(), 4);
    let url = |kind: &KindConfig| match &kind.deliver {
        Delivery::Webhook(endpoint) => endpoint.url.url().as_str().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        [url(&kinds[0]), url(&kinds[1])],
        ["http://127.0.0.1:8000/", "http://billing.internal/hooks?a=b"]
    );
    let [second, hour] = [1, 3_600].map(Duration::from_secs);
    let policy = delayline::Policy::new().max_attempts(10).concurrency(4);
    let policy = policy
        .backoff(2 * second, hour)
        .deadline(24 * hour)
        .execution_timeout(60 * second);
    assert_eq!(kinds[2].policy, policy);
    let keep = delayline::store::Keep::new().history(History::All);
    assert_eq!(kinds[2].keep, keep.ended(hour).dead(48 * hour));
    assert_eq!((kinds[0].timeout, kinds[2].timeout), (15 * second, 60 * second));
    // One of both said alone, the other is not on its wrong side.
    assert_eq!(
        kinds[3].policy,
        delayline::Policy::new().backoff(second / 2, second / 2)
    );
    assert!(matches!(&kinds[2].deliver, Delivery::Topic(topic) if topic.tag.as_deref() == Some("cancel")));
    assert!(matches!(&kinds[3].deliver, Delivery::Pull));
    assert_eq!((config.http.body_limit, config.http.memory()), (1_000, 2_000));
    assert_eq!(config.http.base_path.as_str(), "/delayline");
    assert_eq!(
        config.http.trace_url.as_ref().unwrap().of("4bf9"),
        "https://traces.example/explore?id=4bf9&at=4bf9#top"
    );
    assert_eq!(config.worker.stop_timeout.0.as_secs(), 5);
    let kinds = config.http.tokens[0].get_ref().kinds.as_ref().unwrap();
    assert!(kinds.allow("order.cancel") && !kinds.allow("report"));
    let client = config
        .http
        .trusted_proxies
        .client([10, 0, 0, 7].into(), ["192.0.2.1"].into_iter());
    assert_eq!(client.to_string(), "192.0.2.1");
    let delivered_here: Vec<_> = config.delivered_here().into_iter().collect();
    let delivered_here: Vec<_> = delivered_here.iter().map(Kind::as_str).collect();
    assert_eq!(
        delivered_here,
        ["invoice.overdue", "invoice.remind", "order.cancel"]
    );
    let may = &config.http.tokens[0].get_ref().may;
    assert!(may.contains(&Right::Work) && may.contains(&Right::Scrape));
}

#[test]
fn each_mistake_is_told_with_its_line_and_what_is_allowed() {
    for (text, line, said) in [
        ("[store]\nurI = \"x\"", 2, "unknown field `uRI`"),
        ("\n[shop]", 2, "expected one of"),
        ("[http]\nlisten = \"here\"", 2, "such as 127.0.0.1:7700"),
        (
            "[http]\n\nlisten = \"0.0.0.0:7700\"",
            3,
            "allowed without tokens is a loopback address",
        ),
        (
            "[http]\nlisten = \"[::]:7700\"",
            2,
            "allowed without tokens is a loopback address",
        ),
        ("[http]\nbase_path = \"a/../b\"", 2, "such as /delayline"),
        (
            "[http]\ntrace_url = \"https://traces.example/trace/\"",
            2,
            "http.trace_url is \"https://traces.example/trace/\": allowed is a URL of http or https",
        ),
        (
            "[http]\ntrace_url = \"javascript:alert('{trace_id}')\"",
            2,
            "such as https://traces.example/trace/{trace_id}",
        ),
        (
            "[http]\ntrace_url = \"traces.example/{trace_id}\"",
            2,
            "such as https://traces.example/trace/{trace_id}",
        ),
        ("[kinds.a]\nattempts = 3", 1, "missing field `deliver`"),
        ("[kinds.a]\ndeliver = \"push\"", 2, "\"pull\""),
        (
            "[kinds.a]\ndeliver = \"pull\"\nattempts = 0",
            3,
            "expected a whole number from 1",
        ),
        (
            "[kinds.a]\ndeliver = { topic = \"t\", tags = \"x\" }",
            2,
            "unknown field `tags`",
        ),
        (
            "[kinds.a]\ndeliver = { topic = \"t\" }",
            2,
            "there is no [rocketmq]",
        ),
        (
            "[kinds.a]\ndeliver = { url = \"http://h/\" }",
            2,
            "allowed are { topic = \"…\" }, perhaps with a tag, and { url = \"…\", secret = \"…\" }",
        ),
        (
            "[kinds.a]\ndeliver = { url = \"http://h/\", secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\", topic = \"t\" }",
            2,
            "deliver has other keys than go together",
        ),
        (
            "[kinds.a.deliver]\nurl = \"ftp://h/\"\n",
            2,
            "allowed is a URL of http or https",
        ),
        (
            "[kinds.a.deliver]\nurl = \"http://u:p@h/\"\n",
            2,
            "without user and password",
        ),
        (
            "[kinds.a.deliver]\nurl = \"http://h/\"\nsecret = \"whsec_MfKQ\"",
            3,
            "allowed is whsec_ and the Base64 of 24 to 64 bytes",
        ),
        (
            "[kinds.a.deliver]\nurl = \"http://h/\"\nsecret = [\n  \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\",\n  \"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\",\n]",
            3,
            "allowed is whsec_ and the Base64 of 24 to 64 bytes",
        ),
        (
            "[kinds.a.deliver]\nurl = \"http://h/\"\nsecret = []",
            3,
            "allowed is one or more",
        ),
        (
            "[kinds.a.deliver]\nurl = \"http://h/\"\nsecret = 1",
            3,
            "expected a text or a list of texts",
        ),
        (
            "[kinds.a]\n\ndeliver = { url = \"http://[::ffff:a00:7]/\", secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\" }",
            3,
            "10.0.0.7 is a private address: allowed is that if webhooks.allow has \"10.0.0.7\"",
        ),
        (
            "[webhooks]\nallow = [\n  \"billing.internal\",\n  \"10.0.0.0/8\",\n]",
            2,
            "such as billing.internal or 10.0.0.7",
        ),
        (
            "[kinds.\"\"]\ndeliver = \"pull\"",
            1,
            "allowed are 1 to 100 bytes",
        ),
        (
            "[http]\ntokens = [\n  { name = \"a\", sha256 = \"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\", may = [] },\n  { name = \"a\", sha256 = \"8d9001d32c6a703d95921a77115050f33dd823d3f1730bd35215dcbecad6dc20\", may = [] },\n]",
            4,
            "twice",
        ),
        ("[worker]\nstop_timeout = \"soon\"", 2, "such as 250ms"),
        (
            "[http]\ntokens = [{ name = \"a\", sha256 = \"00\", may = [\"read\"] }]",
            2,
            "64 hexadecimal digits",
        ),
        (
            "[http]\ntokens = [{ name = \"a\", sha256 = \"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\", may = [] }]",
            2,
            "that of an empty token",
        ),
        (
            "[http]\ntokens = [{ name = \"a\", sha256 = \"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\", may = [], kinds = [] }]",
            2,
            "kinds is empty",
        ),
        (
            "[http]\ntrusted_proxies = [\"proxy.example\"]",
            2,
            "such as 10.0.0.7, 10.0.0.0/8 or fd00::/8",
        ),
        (
            "[kinds.\"delayline.paused\"]\ndeliver = \"pull\"",
            1,
            "do not begin with delayline.",
        ),
        (
            "[rocketmq]\nnameserver = \"n:1\"\naccess_key = \"a\"",
            3,
            "allowed are both, or none",
        ),
        (
            "[rocketmq]\nnameserver = \"n\"\n[gateway]\nkinds = [\"delayline.x\"]",
            3,
            "gateway.kinds: kind is \"delayline.x\"",
        ),
    ] {
        let text = text.replace("urI", "uRI");
        let error = refused(&text);
        let expected = format!("delayline.toml line {line}: ");
        assert!(
            error.starts_with(&expected) && error.contains(said),
            "{text:?} gives {error:?}"
        );
    }
}

#[cfg(not(feature = "webhook-tls"))]
#[test]
fn https_is_refused_by_a_build_that_cannot_speak_it() {
    let error = refused("[kinds.a.deliver]\nurl = \"https://h/hunter2\"");
    assert!(
        error.contains("line 2: url is of https, which needs the feature webhook-tls"),
        "{error}"
    );
}

#[cfg(feature = "webhook-tls")]
#[test]
fn https_is_taken_by_a_build_that_can_speak_it() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let text = format!("[kinds.a.deliver]\nurl = \"https://h/\"\nsecret = \"{secret}\"");
    assert_eq!(Config::parse("delayline.toml", &text).unwrap().kinds().len(), 1);
}

#[test]
fn no_mistake_tells_a_secret() {
    for text in [
        "[redis]\nurl = \"rediss://u:hunter2@h\"\nextra = 1",
        "[redis]\nurl = [\"hunter2\"]",
        "[http]\nbody_limit = \"hunter2\"",
        "[rocketmq]\nnameserver = \"n\"\nsecret_key = hunter2",
        "[http]\ntokens = [{ name = \"a\", sha256 = \"hunter2\", may = [] }]",
        "[kinds.a.deliver]\nurl = \"http://h/\"\nsecret = \"hunter2\"",
        "[kinds.a.deliver]\nurl = \"http://h/\"\nsecret = [\"whsec_hunter2\"]",
        "[kinds.a.deliver]\nurl = \"http://h/\"\nsecret = { whsec = \"hunter2\" }",
        "[kinds.a.deliver]\nurl = \"http://u:hunter2@h/\"",
        "[kinds.a.deliver]\nurl = \"gopher://h/?token=hunter2\"",
        "[kinds.a.deliver]\nurl = \"http://10.0.0.7/?token=hunter2\"\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"",
        "[webhooks]\nallow = [\"http://hunter2/\"]",
        "[http]\ntrace_url = \"https://u:hunter2@traces.example/{trace_id}\"",
        "[http]\ntrace_url = \"https://u:hunter2@traces.example:99999/{trace_id}\"",
    ] {
        let error = refused(text);
        assert!(!error.contains("hunter2"), "{error}");
    }
    // Without quotation marks.
    for text in [
        "[rocketmq]\nnameserver = \"n\"\naccess_key = \"a\"\nsecret_key = 20481024",
        "[rocketmq]\nnameserver = \"n\"\naccess_key = \"a\"\nsecret_key = 2048.1024",
        "[redis]\nurl = -2048",
        "[http]\ntokens = [{ name = \"a\", sha256 = 2048, may = [] }]",
        "[kinds.a.deliver]\nurl = \"http://h/\"\nsecret = 20481024",
        "[kinds.a.deliver]\nurl = \"http://h/\"\nsecret = [20481024]",
        "[kinds.a.deliver]\nurl = 20481024",
    ] {
        let error = refused(text);
        assert!(error.contains("expected ") && !error.contains("2048"), "{error}");
    }
    let error = refused("[rocketmq]\nnameserver = \"n\"\naccess_key = \"a\"\nsecret_key = true");
    assert!(
        error.ends_with("invalid type: boolean, expected a text"),
        "{error}"
    );
    let error = refused("[http]\nbody_limit = -2048");
    assert!(error.contains("integer `-2048`"), "no secret: {error}");
    for text in [
        "[redis]\nurl = \"rediss://u:hunter2@h\"",
        "[kinds.a.deliver]\nurl = \"http://h/hunter2\"\nsecret = \"whsec_hunter2hunter2hunter2hunter2hunt\"",
    ] {
        let config = Config::parse("f", text).unwrap();
        assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
    }
}
