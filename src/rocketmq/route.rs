//! Repairs and checks the routes that nameservers of any version send.

use std::sync::Once;

use serde_json::{Map, Value};

/// The most queues of a topic on one broker that are accepted: clients allocate for each.
const MOST_QUEUES: u64 = 1_024;
/// The most brokers that are accepted.
const MOST_BROKERS: usize = 256;
/// The longest name or address that is accepted, in bytes.
const LONGEST: usize = 255;

/// Returns an answer about routes or brokers in a form that the client can read and survive; none if it needs no
/// change.
///
/// The client (1.0.0) insists on `enableActingMaster`, which came with 5.0, and on the spelling `topicSysFlag`, which
/// came with 4.9; and it reads no unquoted keys unless nothing else is wrong. Without this it fails at every call to
/// older nameservers. That part can go when the client treats a missing value as false.
///
/// And the client believes everything: it makes 2^31 queues where a nameserver says so, and logs names as they come. So
/// numbers are limited to plausible ones, brokers with implausible names are left out, and what cannot be read here is
/// not passed to the client either.
pub(super) fn sanitized(answer: &[u8]) -> Option<Vec<u8>> {
    let Some(original) = read(answer) else {
        return (!answer.is_empty()).then(Vec::new);
    };
    let mut sanitized = original.clone();
    for list in ["brokerDatas", "brokerAddrTable", "queueDatas"] {
        if let Some(list) = sanitized.get_mut(list) {
            retain_objects(list);
        }
    }
    for rest in sanitized.values_mut() {
        retain_plain(rest);
    }
    sanitized.retain(|_, value| !matches!(value, Value::String(text) if !is_plain(text)));
    for list in ["brokerDatas", "brokerAddrTable"] {
        for broker in entries(&mut sanitized, list) {
            if !broker.contains_key("enableActingMaster") {
                broker.insert("enableActingMaster".into(), false.into());
            }
        }
    }
    for queues in entries(&mut sanitized, "queueDatas") {
        if !queues.contains_key("topicSysFlag")
            && let Some(flag) = queues.remove("topicSynFlag")
        {
            queues.insert("topicSysFlag".into(), flag);
        }
        for count in ["readQueueNums", "writeQueueNums"] {
            if let Some(count) = queues.get_mut(count)
                && count.as_u64().is_some_and(|count| count > MOST_QUEUES)
            {
                *count = MOST_QUEUES.into();
            }
        }
    }
    if !sanitized.get("orderTopicConf").is_none_or(is_order_bearable) {
        sanitized.remove("orderTopicConf");
    }
    let count = |answer: &Map<String, Value>| {
        let lists = ["brokerDatas", "brokerAddrTable", "queueDatas"].map(|list| answer.get(list));
        let lengths = lists.map(|list| match list {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(table)) => table.len(),
            _ => 0,
        });
        lengths.iter().sum::<usize>()
    };
    if count(&sanitized) < count(&original) {
        // Once, as routes are read every few seconds.
        static WARNED: Once = Once::new();
        WARNED.call_once(|| {
            tracing::warn!(
                "a nameserver lists brokers with malformed names or addresses, or too many, which are not sent to: allowed \
                 are {MOST_BROKERS} brokers, and {LONGEST} printable bytes for each name and address; see who registers \
                 brokers there"
            );
        });
    }
    (sanitized != original).then(|| Value::from(sanitized).to_string().into_bytes())
}

/// Parses the answer; none, unless this code and the client would read the same.
fn read(answer: &[u8]) -> Option<Map<String, Value>> {
    let text = std::str::from_utf8(answer).ok()?;
    let answer: Value = serde_json::from_str(text)
        .or_else(|_| serde_json::from_str(&quoted(text)))
        .ok()?;
    match answer {
        Value::Object(answer) => Some(answer),
        _ => None,
    }
}

/// Leaves out of a list or table of brokers whatever is no broker or has implausible words in it, and what exceeds the
/// limit.
fn retain_objects(list: &mut Value) {
    let is_good = |entry: &Value| entry.is_object() && is_all_plain(entry);
    match list {
        Value::Array(list) => {
            list.retain(is_good);
            list.truncate(MOST_BROKERS);
        }
        Value::Object(table) => {
            let mut left = MOST_BROKERS;
            table.retain(|name, entry| {
                let stays = left > 0 && is_plain(name) && is_good(entry);
                left -= usize::from(stays);
                stays
            });
        }
        _ => {}
    }
}

/// Leaves out of lists and tables what has implausible words in it.
fn retain_plain(value: &mut Value) {
    match value {
        Value::Array(list) => list.retain(is_all_plain),
        Value::Object(table) => table.retain(|name, value| {
            retain_plain(value);
            is_plain(name) && is_all_plain(value)
        }),
        _ => {}
    }
}

fn is_all_plain(value: &Value) -> bool {
    match value {
        Value::String(text) => is_plain(text),
        Value::Array(list) => list.iter().all(is_all_plain),
        Value::Object(table) => table
            .iter()
            .all(|(name, value)| is_plain(name) && is_all_plain(value)),
        _ => true,
    }
}

/// Says whether it may be a name or an address: short enough, and without control characters.
fn is_plain(text: &str) -> bool {
    let is_printed = |c: char| matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1;
    text.len() <= LONGEST && text.chars().all(is_printed)
}

/// Says whether the text of an ordered topic, `BROKER:QUEUES;...`, makes no more queues than are accepted.
fn is_order_bearable(order: &Value) -> bool {
    let Value::String(order) = order else {
        return order.is_null();
    };
    let brokers = order.split(';').filter(|part| !part.is_empty());
    let queues = |part: &str| part.rsplit_once(':')?.1.parse::<u64>().ok();
    order.split(';').count() <= MOST_BROKERS
        && brokers
            .map(queues)
            .all(|count| count.is_some_and(|count| count <= MOST_QUEUES))
}

/// Returns the objects in a list, or in a table, of an answer.
fn entries<'a>(answer: &'a mut Map<String, Value>, name: &str) -> Vec<&'a mut Map<String, Value>> {
    let entries: Vec<_> = match answer.get_mut(name) {
        Some(Value::Array(list)) => list.iter_mut().collect(),
        Some(Value::Object(table)) => table.values_mut().collect(),
        _ => Vec::new(),
    };
    entries.into_iter().filter_map(Value::as_object_mut).collect()
}

/// Puts quotes around keys that are numbers, as in `{0:"10.0.0.1:10911"}`.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 64);
    let mut rest = text;
    while let Some(at) = rest.find(['"', '{', ',']) {
        let (before, tail) = rest.split_at(at + 1);
        quoted.push_str(before);
        rest = tail;
        if before.ends_with('"') {
            let string = &rest[..string_end(rest)];
            quoted.push_str(string);
            rest = &rest[string.len()..];
        } else if let Some(key) = number_key(rest) {
            quoted.push('"');
            quoted.push_str(key);
            quoted.push('"');
            rest = &rest[key.len()..];
        }
    }
    quoted + rest
}

/// Returns the length of the rest of a string, its closing quote included.
fn string_end(rest: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Returns the digits with which the text begins, if a colon follows them. Java's writer puts no spaces there.
fn number_key(text: &str) -> Option<&str> {
    let end = text.find(|other: char| !other.is_ascii_digit())?;
    (end > 0 && text[end..].starts_with(':')).then(|| &text[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rocketmq_protocol::protocol::body::broker_body::cluster_info::ClusterInfo;
    use rocketmq_protocol::protocol::route::topic_route_data::TopicRouteData;

    use super::*;

    const CLUSTER_4_9_7: &str = r#"{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:11911"},"brokerName":"broker-a","cluster":"DefaultCluster"}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}"#;
    const ROUTE_4_9_7: &str = r#"{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-a","cluster":"DefaultCluster"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":7,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}"#;
    const ROUTE_4_8_0: &str = r#"{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"broker-a","cluster":"DefaultCluster"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":7,"readQueueNums":8,"topicSynFlag":3,"writeQueueNums":8}]}"#;

    #[test]
    fn the_client_reads_a_sanitized_cluster() {
        let sanitized = sanitized(CLUSTER_4_9_7.as_bytes()).unwrap();
        let cluster = ClusterInfo::decode(&sanitized).unwrap();
        let brokers = cluster.broker_addr_table.unwrap();
        assert_eq!(brokers["broker-a"].broker_addrs()[&0], "127.0.0.1:10911");
        assert_eq!(brokers["broker-a"].broker_addrs()[&1], "127.0.0.1:11911");
    }

    #[test]
    fn the_client_reads_sanitized_routes_and_would_not_read_them_otherwise() {
        for (route, flag) in [(ROUTE_4_9_7, 0), (ROUTE_4_8_0, 3)] {
            assert!(TopicRouteData::decode(route.as_bytes()).is_err());
            let route = TopicRouteData::decode(&sanitized(route.as_bytes()).unwrap()).unwrap();
            assert_eq!(route.broker_datas[0].broker_addrs()[&0], "127.0.0.1:10911");
            assert_eq!(route.queue_datas[0].topic_sys_flag, flag);
        }
    }

    #[test]
    fn what_needs_no_sanitizing_is_left_as_it_is() {
        let once = sanitized(ROUTE_4_8_0.as_bytes()).unwrap();
        assert_eq!(sanitized(&once), None);
        let later = r#"{"brokerDatas":[{"brokerAddrs":{0:"a:1"},"enableActingMaster":true}]}"#;
        assert_eq!(sanitized(later.as_bytes()), None);
    }

    #[test]
    fn names_that_look_like_json_stay_what_they_are() {
        let answer =
            r#"{"brokerAddrTable":{"{1:\\\",2:":{"brokerAddrs":{0:",3:"},"more":[4,{5:{6:[7,8]}}]}}}"#;
        let sanitized: Value = serde_json::from_slice(&sanitized(answer.as_bytes()).unwrap()).unwrap();
        let broker = &sanitized["brokerAddrTable"]["{1:\\\",2:"];
        assert_eq!(broker["brokerAddrs"]["0"], ",3:");
        assert_eq!(broker["more"], serde_json::json!([4, {"5": {"6": [7, 8]}}]));
    }

    #[test]
    fn what_cannot_be_read_here_the_client_does_not_get() {
        let deep = "[".repeat(100_000);
        // The client would read a list as an object, member by member; and keys below zero.
        let list = r#"[null,[["broker-a",2147483647,2147483647,6,0]],[],{},null]"#;
        let below = r#"{"brokerDatas":[],"queueDatas":[],"filterServerTable":{-1:[]}}"#;
        for garbage in [
            "{", "\"", "{0:", "{\"a\\", "null", "7", "[]", "\u{0}", &deep, list, below,
        ] {
            assert_eq!(sanitized(garbage.as_bytes()), Some(Vec::new()), "{garbage}");
        }
        assert_eq!(sanitized(&[0xff, 0xfe]), Some(Vec::new()));
        assert_eq!(sanitized(b""), None);
        assert!(TopicRouteData::decode(b"").is_err() && ClusterInfo::decode(b"").is_err());
        assert_eq!(sanitized(br#"{"brokerDatas":7}"#), None);
    }

    fn route(queues: &str) -> TopicRouteData {
        let broker =
            r#"{"brokerAddrs":{"0":"a:1"},"brokerName":"a","cluster":"c","enableActingMaster":false}"#;
        let answer =
            format!(r#"{{"brokerDatas":[{broker}],"filterServerTable":{{}},"queueDatas":{queues}}}"#);
        let sanitized = sanitized(answer.as_bytes()).unwrap_or(answer.into_bytes());
        TopicRouteData::decode(&sanitized).unwrap()
    }

    #[test]
    fn no_number_of_queues_is_believed_that_cannot_be_meant() {
        let queues = |read: u64, write: u64| {
            let route = route(&format!(
                r#"[{{"brokerName":"a","perm":6,"readQueueNums":{read},"topicSysFlag":0,"writeQueueNums":{write}}}]"#
            ));
            let queues = &route.queue_datas[0];
            (queues.read_queue_nums(), queues.write_queue_nums())
        };
        assert_eq!(queues(8, 1_024), (8, 1_024));
        assert_eq!(queues(2_147_483_647, 2_147_483_647), (1_024, 1_024));
        assert_eq!(queues(1_025, u64::MAX), (1_024, 1_024));
        // As the client would also read it.
        assert!(
            route(r#"[["a",2147483647,2147483647,6,0]]"#)
                .queue_datas
                .is_empty()
        );
        for (order, stays) in [
            (r#""a:8;b:1024""#, true),
            (r#""a:8;""#, true),
            ("null", true),
            (r#""a:2147483647""#, false),
            (r#""a:8;b:-1""#, false),
            (r#""a""#, false),
        ] {
            let answer = format!(r#"{{"orderTopicConf":{order}}}"#);
            let expected = (!stays).then(|| b"{}".to_vec());
            assert_eq!(sanitized(answer.as_bytes()), expected, "{order}");
        }
    }

    #[test]
    fn brokers_with_unlikely_names_or_addresses_are_left_out() {
        let long = "x".repeat(256);
        let broker = |name: &str, address: &str| {
            serde_json::json!({
                "brokerAddrs": {"0": address}, "brokerName": name, "cluster": "c", "enableActingMaster": false,
            })
        };
        let unlikely = ["\u{1b}[31m", "a\nb", "\u{202e}a", long.as_str()];
        let mut table = serde_json::json!({ "good \"ü\"": broker("good \"ü\"", "[::1]:10911") });
        for (number, unlikely) in unlikely.into_iter().enumerate() {
            table[unlikely] = broker("a", "a:1");
            table[format!("name-{number}")] = broker(unlikely, "a:1");
            table[format!("address-{number}")] = broker("a", unlikely);
        }
        let names: Vec<_> = ["good \"ü\""].into_iter().chain(unlikely).collect();
        let answer = serde_json::json!({ "brokerAddrTable": table, "clusterAddrTable": {"c": names} });
        let cluster = ClusterInfo::decode(&sanitized(answer.to_string().as_bytes()).unwrap()).unwrap();
        let brokers = cluster.broker_addr_table.unwrap();
        assert_eq!(
            brokers.keys().map(|name| name.as_str()).collect::<Vec<_>>(),
            ["good \"ü\""]
        );
        assert_eq!(cluster.cluster_addr_table.unwrap()["c"].len(), 1);

        let many: Map<_, _> = (0..10_000)
            .map(|number| (format!("b{number}"), broker("b", "b:1")))
            .collect();
        let answer = serde_json::json!({ "brokerAddrTable": many });
        let cluster = ClusterInfo::decode(&sanitized(answer.to_string().as_bytes()).unwrap()).unwrap();
        assert_eq!(cluster.broker_addr_table.unwrap().len(), MOST_BROKERS);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in r#"([{}\[\],:"\\0-9a-zü]|"[a-z]*":){0,60}"#) {
            let _ = sanitized(text.as_bytes());
            prop_assert_eq!(quoted(&text).replace('"', ""), text.replace('"', ""));
        }
    }
}
