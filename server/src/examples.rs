//! What the help of each command shows at its end.

pub(crate) const TOOL: &str = "\
Examples:
  delayline plan 15m
  delayline serve --demo
  delayline tasks show order.cancel 42 --store delayline.db
  delayline help tasks";

pub(crate) const PLAN: &str = "\
Examples:
  delayline plan 15m
  delayline plan '1h 30m' --levels '1s 5s 10s 30s 1m 5m'";

pub(crate) const MIGRATE: &str = "\
Examples:
  delayline migrate postgres --store postgres://shop@db.example/shop
  delayline migrate mysql --check
  delayline migrate postgres --print";

#[cfg(feature = "_store")]
pub(crate) const SERVE: &str = "\
Examples:
  delayline serve
  delayline serve --demo
  delayline serve --nameserver 127.0.0.1:9876 --targets 'order_*,coupon'
  delayline serve --config /etc/delayline/delayline.toml --check

Each setting of the file has a variable as well: the name of its table and its own in capitals, with two underscores \
before each, as DELAYLINE__HTTP__LISTEN; with _FILE at its end the variable names a file with the value. Flags go \
before variables, and these before the file.";

#[cfg(feature = "_store")]
pub(crate) const TASKS: &str = "\
Examples:
  delayline tasks list order.cancel --due-before 2026-12-24T18:00:00Z
  delayline tasks show order.cancel 42 --store postgres://shop@db.example/shop
  delayline tasks cancel order.cancel 42
  delayline tasks redrive invoice.remind --all --error 502 --dry-run";

#[cfg(feature = "_store")]
pub(crate) const KINDS: &str = "\
Examples:
  delayline kinds list
  delayline kinds pause order.cancel --reason 'the shop is moving'
  delayline kinds resume order.cancel";

#[cfg(feature = "_store")]
pub(crate) const TASKS_LIST: &str = "\
Examples:
  delayline tasks list order.cancel --due-before 2026-12-24T18:00:00Z
  delayline tasks list invoice.remind --state dead --error 502 --json";

#[cfg(feature = "_store")]
pub(crate) const TASKS_FIND: &str = "\
Examples:
  delayline tasks find 42
  delayline tasks find --key-prefix order-2026 --limit 1000";

#[cfg(feature = "_store")]
pub(crate) const TASKS_SHOW: &str = "\
Examples:
  delayline tasks show order.cancel 42
  delayline tasks show --id 01a206e5-bc4a-79c8-ab58-4c5bb7cf652e --json";

#[cfg(feature = "_store")]
pub(crate) const TASKS_EXPLAIN: &str = "\
Examples:
  delayline tasks explain order.cancel 42";

#[cfg(feature = "_store")]
pub(crate) const TASKS_CANCEL: &str = "\
Examples:
  delayline tasks cancel order.cancel 42 --reason 'paid by phone'
  delayline tasks cancel order.cancel --all --key-prefix test- --yes";

#[cfg(feature = "_store")]
pub(crate) const TASKS_EDIT: &str = "\
Examples:
  delayline tasks edit order.cancel 42 --payload '{\"order\":42}'
  delayline tasks edit order.cancel 42 --payload-file order.json --after 15m";

#[cfg(feature = "_store")]
pub(crate) const TASKS_RESCHEDULE: &str = "\
Examples:
  delayline tasks reschedule order.cancel 42 --at 2026-12-24T18:00:00Z
  delayline tasks reschedule order.cancel 42 --after 15m";

#[cfg(feature = "_store")]
pub(crate) const TASKS_SHIFT: &str = "\
Examples:
  delayline tasks shift order.cancel 42 --by +10m
  delayline tasks shift order.cancel --all --by -2h --dry-run";

#[cfg(feature = "_store")]
pub(crate) const TASKS_RUN: &str = "\
Examples:
  delayline tasks run order.cancel 42";

#[cfg(feature = "_store")]
pub(crate) const TASKS_REDRIVE: &str = "\
Examples:
  delayline tasks redrive invoice.remind --all --error 502 --dry-run";

#[cfg(feature = "_store")]
pub(crate) const TASKS_DISMISS: &str = "\
Examples:
  delayline tasks dismiss invoice.remind 7 --reason 'the customer is gone'";

#[cfg(feature = "_store")]
pub(crate) const TASKS_RERUN: &str = "\
Examples:
  delayline tasks rerun invoice.remind 7";

#[cfg(feature = "_store")]
pub(crate) const KINDS_LIST: &str = "\
Examples:
  delayline kinds list
  delayline kinds list --server http://127.0.0.1:7700";

#[cfg(feature = "_store")]
pub(crate) const KINDS_PAUSE: &str = "\
Examples:
  delayline kinds pause order.cancel --until 2026-12-24T18:00:00Z";

#[cfg(feature = "_store")]
pub(crate) const KINDS_RESUME: &str = "\
Examples:
  delayline kinds resume order.cancel";

#[cfg(feature = "_store")]
pub(crate) const FORECAST: &str = "\
Examples:
  delayline forecast
  delayline forecast order.cancel --store delayline.db";

#[cfg(feature = "_store")]
pub(crate) const BENCH: &str = "\
Examples:
  delayline bench
  delayline bench W1 W2 --store postgres://bench@127.0.0.1/bench --json";

#[cfg(feature = "rocketmq")]
pub(crate) const PROBE: &str = "\
Examples:
  delayline probe --nameserver 127.0.0.1:9876";

#[cfg(feature = "redis")]
pub(crate) const REDIS: &str = "\
Examples:
  delayline redis doctor --redis redis://127.0.0.1:6379
  delayline redis rebuild --redis redis://127.0.0.1:6379 --store shop.db";

#[cfg(feature = "redis")]
pub(crate) const REDIS_DOCTOR: &str = "\
Examples:
  delayline redis doctor --redis redis://127.0.0.1:6379
  delayline redis doctor --clocks --store postgres://shop@db.example/shop";

#[cfg(feature = "redis")]
pub(crate) const REDIS_REBUILD: &str = "\
Examples:
  delayline redis rebuild --store postgres://shop@db.example/shop
  delayline redis rebuild --prefix next --shards 4 --store shop.db";

pub(crate) const COMPLETIONS: &str = "\
Examples:
  delayline completions bash > /etc/bash_completion.d/delayline
  delayline completions zsh > ~/.zfunc/_delayline";

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use crate::Cli;

    /// The words of a line, as a shell takes it apart.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (at, part) in line.split('\'').enumerate() {
            match at % 2 {
                0 => words.extend(part.split(' ').filter(|word| !word.is_empty()).map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        let redirected = words.iter().position(|word| word == ">");
        words.truncate(redirected.unwrap_or(words.len()));
        words
    }

    #[test]
    fn each_command_shows_examples_that_it_takes() {
        let mut commands = vec![("  delayline".to_owned(), Cli::command())];
        while let Some((name, command)) = commands.pop() {
            let shown = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            let examples: Vec<_> = shown
                .lines()
                .filter(|line| line.starts_with("  delayline "))
                .collect();
            assert!(!examples.is_empty(), "{name} shows none");
            for example in examples {
                assert!(example.starts_with(&name), "{example}");
                assert!(example.len() <= 80, "{example}");
                match Cli::try_parse_from(words(example)) {
                    Ok(_) => {}
                    // Such as `delayline help tasks`.
                    Err(shown) => assert!(!shown.use_stderr(), "{example}: {shown}"),
                }
            }
            let within = command.get_subcommands().filter(|command| !command.is_hide_set());
            commands.extend(within.map(|inner| (format!("{name} {}", inner.get_name()), inner.clone())));
        }
    }
}
