//! All settings by their names, for those that say them outside of a file.

use crate::near::nearest;

/// A setting, and how its value is written where there is no TOML around it.
#[derive(Debug)]
pub(super) struct Setting {
    /// The table of the file; none for what stands before the first.
    pub(super) table: Option<&'static str>,
    pub(super) key: &'static str,
    pub(super) shape: Shape,
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// As it is; of a file's text, in which `${NAME}` stands for a variable.
    Text,
    /// As it is.
    Name,
    /// A number, `true` or `false`.
    Plain,
    /// Separated by commas, or a list of TOML.
    List,
    /// `NAME=SHA256`, separated by commas, or a list of TOML.
    Tokens,
    /// A table of TOML, as `{ … }`.
    Table,
}

const fn setting(table: &'static str, key: &'static str, shape: Shape) -> Setting {
    Setting {
        table: Some(table),
        key,
        shape,
    }
}

/// Each that there is.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        table: None,
        key: "history",
        shape: Shape::Name,
    },
    Setting {
        table: None,
        key: "kinds",
        shape: Shape::Table,
    },
    setting("store", "url", Shape::Text),
    setting("rocketmq", "nameserver", Shape::Text),
    setting("rocketmq", "access_key", Shape::Text),
    setting("rocketmq", "secret_key", Shape::Text),
    setting("rocketmq", "topic", Shape::Text),
    setting("rocketmq", "group", Shape::Text),
    setting("rocketmq", "max_message_size", Shape::Plain),
    setting("redis", "url", Shape::Text),
    setting("gateway", "inbox", Shape::Name),
    setting("gateway", "group", Shape::Name),
    setting("gateway", "targets", Shape::List),
    setting("gateway", "replies", Shape::List),
    setting("gateway", "routes", Shape::Table),
    setting("gateway", "kinds", Shape::List),
    setting("gateway", "key", Shape::Name),
    setting("gateway", "attempts", Shape::Plain),
    setting("http", "listen", Shape::Text),
    setting("http", "base_path", Shape::Text),
    setting("http", "tokens", Shape::Tokens),
    setting("http", "trusted_proxies", Shape::List),
    setting("http", "body_limit", Shape::Plain),
    setting("http", "memory_limit", Shape::Plain),
    setting("http", "connection_limit", Shape::Plain),
    setting("http", "trace_url", Shape::Text),
    setting("worker", "stop_timeout", Shape::Name),
    setting("webhooks", "allow", Shape::List),
    setting("otlp", "endpoint", Shape::Text),
    setting("otlp", "service", Shape::Name),
    setting("otlp", "traces", Shape::Plain),
    setting("otlp", "metrics", Shape::Plain),
    setting("otlp", "headers", Shape::Table),
];

impl Setting {
    /// The setting of a name such as `http.listen`.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.name() == name)
    }

    /// What is meant by a name that no setting has: the one that is nearly the same, else any. Their names are those that
    /// `as_named` says, behind a prefix.
    pub(super) fn meant(name: &str, prefix: &str, as_named: fn(&Self) -> String) -> String {
        let names: Vec<_> = SETTINGS.iter().map(as_named).collect();
        match nearest(name, names.iter().map(String::as_str)) {
            Some(nearest) => format!("perhaps {prefix}{nearest} is meant"),
            None => format!("allowed are {prefix}{}", names.join(&format!(", {prefix}"))),
        }
    }

    /// As documents and errors name it.
    pub(super) fn name(&self) -> String {
        match self.table {
            Some(table) => format!("{table}.{}", self.key),
            None => self.key.to_owned(),
        }
    }

    /// As the environment names it, after the prefix: `HTTP__LISTEN`.
    pub(super) fn in_environment(&self) -> String {
        self.name().replace('.', "__").to_ascii_uppercase()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::Config;
    use super::*;

    /// The keys that the configuration knows in a table, as it says them where one is unknown.
    fn known(file: &str) -> BTreeSet<String> {
        let said = Config::parse("f", file).unwrap_err().to_string();
        let (_, keys) = said.split_once("expected ").unwrap();
        keys.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn each_field_of_the_configuration_is_a_setting() {
        let tables = known("no_such_key = 1");
        for table in &tables {
            let keys = match table.as_str() {
                "history" | "kinds" => {
                    assert!(Setting::named(table).is_some(), "{table}");
                    continue;
                }
                table => known(&format!("[{table}]\nno_such_key = 1")),
            };
            let settings = SETTINGS.iter().filter(|setting| setting.table == Some(table));
            let settings: BTreeSet<_> = settings.map(|setting| setting.key.to_owned()).collect();
            assert_eq!(settings, keys, "{table}");
        }
        assert!(
            SETTINGS
                .iter()
                .all(|setting| tables.contains(setting.table.unwrap_or(setting.key)))
        );
    }
}
