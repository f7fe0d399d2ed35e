//! Where the brokers are, in the words of a nameserver before 5.0.

use serde_json::{Map, Value};

/// An answer about routes or brokers as the client reads it; none if it is so already, or cannot be made so.
///
/// For the client (1.0.0) insists on `enableActingMaster`, which came with 5.0, and on the spelling `topicSysFlag`,
/// which came with 4.9; and it reads no unquoted keys unless nothing else is wrong. Without this it fails at every call
/// to older nameservers. It can go when the client takes what is missing for false.
pub(super) fn mended(answer: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(answer).ok()?;
    let mut answer: Value = serde_json::from_str(text)
        .or_else(|_| serde_json::from_str(&quoted(text)))
        .ok()?;
    let mut mended = false;
    for list in ["brokerDatas", "brokerAddrTable"] {
        for broker in entries(&mut answer, list) {
            if !broker.contains_key("enableActingMaster") {
                broker.insert("enableActingMaster".into(), false.into());
                mended = true;
            }
        }
    }
    for queues in entries(&mut answer, "queueDatas") {
        if !queues.contains_key("topicSysFlag")
            && let Some(flag) = queues.remove("topicSynFlag")
        {
            queues.insert("topicSysFlag".into(), flag);
            mended = true;
        }
    }
    mended.then(|| answer.to_string().into_bytes())
}

/// The objects in a list, or in a table, of an answer.
fn entries<'a>(answer: &'a mut Value, name: &str) -> Vec<&'a mut Map<String, Value>> {
    let entries: Vec<_> = match answer.get_mut(name) {
        Some(Value::Array(list)) => list.iter_mut().collect(),
        Some(Value::Object(table)) => table.values_mut().collect(),
        _ => Vec::new(),
    };
    entries.into_iter().filter_map(Value::as_object_mut).collect()
}

/// The text with quotes around keys that are numbers, as in `{0:"10.0.0.1:10911"}`.
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

/// How long the rest of a string is, its closing quote included.
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

/// The digits with which the text begins, if a colon follows them. Java's writer puts no spaces there.
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
    fn the_client_reads_a_mended_cluster() {
        let mended = mended(CLUSTER_4_9_7.as_bytes()).unwrap();
        let cluster = ClusterInfo::decode(&mended).unwrap();
        let brokers = cluster.broker_addr_table.unwrap();
        assert_eq!(brokers["broker-a"].broker_addrs()[&0], "127.0.0.1:10911");
        assert_eq!(brokers["broker-a"].broker_addrs()[&1], "127.0.0.1:11911");
    }

    #[test]
    fn the_client_reads_mended_routes_and_would_not_read_them_otherwise() {
        for (route, flag) in [(ROUTE_4_9_7, 0), (ROUTE_4_8_0, 3)] {
            assert!(TopicRouteData::decode(route.as_bytes()).is_err());
            let route = TopicRouteData::decode(&mended(route.as_bytes()).unwrap()).unwrap();
            assert_eq!(route.broker_datas[0].broker_addrs()[&0], "127.0.0.1:10911");
            assert_eq!(route.queue_datas[0].topic_sys_flag, flag);
        }
    }

    #[test]
    fn what_needs_no_mending_is_left_as_it_is() {
        let once = mended(ROUTE_4_8_0.as_bytes()).unwrap();
        assert_eq!(mended(&once), None);
        let later = r#"{"brokerDatas":[{"brokerAddrs":{0:"a:1"},"enableActingMaster":true}]}"#;
        assert_eq!(mended(later.as_bytes()), None);
    }

    #[test]
    fn names_that_look_like_json_stay_what_they_are() {
        let answer =
            r#"{"brokerAddrTable":{"{1:\\\",2:":{"brokerAddrs":{0:",3:"},"more":[4,{5:{6:[7,8]}}]}}}"#;
        let mended: Value = serde_json::from_slice(&mended(answer.as_bytes()).unwrap()).unwrap();
        let broker = &mended["brokerAddrTable"]["{1:\\\",2:"];
        assert_eq!(broker["brokerAddrs"]["0"], ",3:");
        assert_eq!(broker["more"], serde_json::json!([4, {"5": {"6": [7, 8]}}]));
    }

    #[test]
    fn garbage_is_left_to_the_client() {
        let deep = "[".repeat(100_000);
        for garbage in ["", "{", "\"", "{0:", "{\"a\\", "null", "7", "[]", "\u{0}", &deep] {
            assert_eq!(mended(garbage.as_bytes()), None, "{garbage}");
        }
        assert_eq!(mended(&[0xff, 0xfe]), None);
        for odd in [
            r#"{"brokerDatas":7,"queueDatas":{"a":[]}}"#,
            r#"{"brokerDatas":[1]}"#,
        ] {
            assert_eq!(mended(odd.as_bytes()), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in r#"([{}\[\],:"\\0-9a-zü]|"[a-z]*":){0,60}"#) {
            let _ = mended(text.as_bytes());
            prop_assert_eq!(quoted(&text).replace('"', ""), text.replace('"', ""));
        }
    }
}
