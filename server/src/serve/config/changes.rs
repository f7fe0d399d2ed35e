//! What differs between two configurations.

use toml::Spanned;

use super::{Config, Gateway, Otlp, RocketMq};

/// Makes an array of fields of two values: the name of each, and whether the values differ in it.
macro_rules! compared {
    ($old:expr, $new:expr; $($field:ident $(.$inner:ident)*),+ $(,)?) => {
        [$((
            concat!(stringify!($field) $(, ".", stringify!($inner))*),
            $old.$field $(.$inner)* != $new.$field $(.$inner)*,
        )),+]
    };
}
pub(super) use compared;

/// The settings by which a configuration differs from the one that a server runs by.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Those that a server takes over while it runs.
    pub(crate) live: Vec<String>,
    /// Those for which it has to be started anew.
    pub(crate) restart: Vec<String>,
}

impl Changes {
    fn add(&mut self, sort: Sort, setting: impl Into<String>, differs: bool) {
        if differs {
            match sort {
                Sort::Live => self.live.push(setting.into()),
                Sort::Restart => self.restart.push(setting.into()),
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Sort {
    Live,
    Restart,
}

impl Config {
    /// What differs in the next one.
    pub(crate) fn changes(&self, next: &Self) -> Changes {
        let mut changes = Changes::default();
        let url = |redis: &super::Redis| redis.url.clone();
        let urls = [
            ("store.url", self.store_url() != next.store_url()),
            (
                "redis.url",
                self.redis.as_ref().map(url) != next.redis.as_ref().map(url),
            ),
        ];
        let others = compared!(
            self, next;
            http.listen, http.base_path, http.body_limit, http.memory_limit, http.connection_limit,
            http.trace_url, worker.stop_timeout,
        );
        let restart = compared!(self, next; history)
            .into_iter()
            .chain(urls)
            .chain(others);
        for (setting, differs) in restart {
            changes.add(Sort::Restart, setting, differs);
        }
        for (setting, differs) in compared!(self, next; http.tokens, http.trusted_proxies, webhooks.allow) {
            changes.add(Sort::Live, setting, differs);
        }
        changes.of_rocketmq(self.rocketmq.as_ref(), next.rocketmq.as_ref());
        changes.of_otlp(self.otlp.as_ref(), next.otlp.as_ref());
        let gateway = |config: &'_ Self| config.gateway.as_ref().map(Spanned::get_ref).cloned();
        changes.of_gateway(gateway(self).as_ref(), gateway(next).as_ref());
        changes.of_kinds(self, next);
        changes
    }
}

impl Changes {
    fn of_rocketmq(&mut self, old: Option<&RocketMq>, new: Option<&RocketMq>) {
        let (Some(old), Some(new)) = (old, new) else {
            return self.add(Sort::Restart, "rocketmq", old.is_some() != new.is_some());
        };
        let settings =
            compared!(old, new; nameserver, access_key, secret_key, topic, group, max_message_size);
        for (setting, differs) in settings {
            self.add(Sort::Restart, format!("rocketmq.{setting}"), differs);
        }
    }

    fn of_otlp(&mut self, old: Option<&Otlp>, new: Option<&Otlp>) {
        let (Some(old), Some(new)) = (old, new) else {
            return self.add(Sort::Restart, "otlp", old.is_some() != new.is_some());
        };
        for (setting, differs) in compared!(old, new; endpoint, service, traces, metrics, headers) {
            self.add(Sort::Restart, format!("otlp.{setting}"), differs);
        }
    }

    fn of_gateway(&mut self, old: Option<&Gateway>, new: Option<&Gateway>) {
        let (Some(old), Some(new)) = (old, new) else {
            return self.add(Sort::Restart, "gateway", old.is_some() != new.is_some());
        };
        // What is consumed is said to the brokers when it starts.
        let routes = match old.routes.keys().eq(new.routes.keys()) {
            true => Sort::Live,
            false => Sort::Restart,
        };
        let settings = compared!(old, new; inbox, group, routes, targets, replies, kinds, key, attempts);
        for (setting, differs) in settings {
            let sort = match setting {
                "inbox" | "group" => Sort::Restart,
                "routes" => routes,
                _ => Sort::Live,
            };
            self.add(sort, format!("gateway.{setting}"), differs);
        }
    }

    fn of_kinds(&mut self, old: &Config, new: &Config) {
        for (name, table) in &old.kinds {
            let kind = name.get_ref();
            match new.kinds.get(name) {
                None => self.live.push(format!("kinds.{kind:?}")),
                Some(other) => {
                    let keys = table.get_ref().differences(other.get_ref());
                    self.live.extend(keys.map(|key| format!("kinds.{kind:?}.{key}")));
                }
            }
        }
        let added = new.kinds.keys().filter(|name| !old.kinds.contains_key(*name));
        let added = added.map(|name| format!("kinds.{:?}", name.get_ref()));
        self.live.extend(added);
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::{SETTINGS, Setting};
    use super::super::sources::{self, Given};
    use super::*;

    /// Two values of a setting, which differ.
    fn values(setting: &str) -> [&'static str; 2] {
        match setting {
            "history" => ["changes", "all"],
            "kinds" => [
                r#"{ a = { deliver = "pull" } }"#,
                r#"{ a = { deliver = "pull", attempts = 3 } }"#,
            ],
            "store.url" => ["sqlite:a", "sqlite:b"],
            "redis.url" => ["redis://a", "redis://b"],
            "gateway.routes" => [r#"{ a = "b" }"#, r#"{ a = "c" }"#],
            "gateway.key" => ["DELAYLINE_KEY", "KEYS"],
            "http.listen" => ["127.0.0.1:1", "127.0.0.1:2"],
            "http.base_path" => ["/a", "/b"],
            "http.tokens" => [
                "a=3d0941964aa3ebdcb00ccef58b1bb399f9f898465e9886d5aec7f31090a0fb30",
                "b=3d0941964aa3ebdcb00ccef58b1bb399f9f898465e9886d5aec7f31090a0fb30",
            ],
            "http.trusted_proxies" => ["10.0.0.0/8", "10.0.0.0/9"],
            "http.trace_url" => ["http://a/{trace_id}", "http://b/{trace_id}"],
            "worker.stop_timeout" => ["1s", "2s"],
            "otlp.endpoint" => ["http://a:1", "http://a:2"],
            "otlp.traces" | "otlp.metrics" => ["true", "false"],
            "otlp.headers" => [r#"{ a = "b" }"#, r#"{ a = "c" }"#],
            "rocketmq.max_message_size" | "gateway.attempts" => ["1000", "2000"],
            limit if limit.ends_with("_limit") => ["1000", "2000"],
            _ => ["a", "b"],
        }
    }

    /// A configuration in which any setting may stand, and this one does.
    fn with(setting: &'static Setting, value: &str) -> Config {
        let beside = [
            ("rocketmq.nameserver", "h:1"),
            ("rocketmq.access_key", "a"),
            ("rocketmq.secret_key", "a"),
            ("gateway.inbox", "in"),
            ("otlp.endpoint", "http://h:1"),
        ];
        let beside = beside.into_iter().filter(|(name, _)| *name != setting.name());
        let beside = beside.map(|(name, value)| Given::new("f", Setting::named(name).unwrap(), value));
        let given: Vec<_> = beside.chain([Given::new("f", setting, value)]).collect();
        sources::config(None, &given).unwrap()
    }

    #[test]
    fn each_setting_that_differs_is_named_and_no_other() {
        let mut live = Vec::new();
        for setting in SETTINGS {
            let [old, new] = values(&setting.name()).map(|value| with(setting, value));
            assert_eq!(old.changes(&old), Changes::default(), "{setting:?}");
            let Changes { live: taken, restart } = old.changes(&new);
            let name = match setting.name().as_str() {
                "kinds" => "kinds.\"a\".attempts".to_owned(),
                name => name.to_owned(),
            };
            assert_eq!([&*taken, &*restart].concat(), [name], "{setting:?}");
            live.extend(taken);
        }
        assert_eq!(
            live,
            [
                "kinds.\"a\".attempts",
                "gateway.targets",
                "gateway.replies",
                "gateway.routes",
                "gateway.kinds",
                "gateway.key",
                "gateway.attempts",
                "http.tokens",
                "http.trusted_proxies",
                "webhooks.allow"
            ]
        );
    }

    #[test]
    fn what_comes_or_goes_is_named_by_its_table() {
        let parse = |text: &str| Config::parse("f", text).unwrap();
        let plain = parse("[kinds.a]\ndeliver = \"pull\"");
        let gateway = "[rocketmq]\nnameserver = \"h:1\"\n[gateway]\nroutes = { a = \"b\" }";
        let changes = plain.changes(&parse(&format!("{gateway}\n[kinds.b]\ndeliver = \"pull\"")));
        assert_eq!(changes.restart, ["rocketmq", "gateway"]);
        assert_eq!(changes.live, ["kinds.\"a\"", "kinds.\"b\""]);
        let another = gateway.replace("{ a =", "{ c =");
        assert_eq!(
            parse(gateway).changes(&parse(&another)).restart,
            ["gateway.routes"]
        );
    }

    #[test]
    fn every_key_of_a_kind_is_compared() {
        let kind = |with: &str| {
            let text = format!(
                "[kinds.a]\ndeliver = {{ url = \"http://192.0.43.8/\", secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\" }}\n{with}"
            );
            Config::parse("f", &text).unwrap()
        };
        let none = kind("");
        for (key, value) in [
            ("attempts", "3"),
            ("concurrency", "3"),
            ("backoff_first", "\"3s\""),
            ("backoff_max", "\"3s\""),
            ("execution_timeout", "\"3s\""),
            ("deadline", "\"3s\""),
            ("history", "\"all\""),
            ("keep_ended", "\"3s\""),
            ("keep_dead", "\"3s\""),
        ] {
            let changes = none.changes(&kind(&format!("{key} = {value}")));
            assert_eq!(changes.live, [format!("kinds.\"a\".{key}")]);
        }
    }
}
