//! What of the configuration the command line says.

use super::settings::Setting;
use super::sources::Given;
use super::{Config, Mistake};

/// Flags for what is set up most often; each goes before the environment, and that before the file.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Settings, which go before the environment's and the file's")]
pub(crate) struct Flags {
    /// Where to listen; beyond this machine only with a token [default: 127.0.0.1:7700]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where the tasks are: sqlite:FILE, postgres://, mysql://, redis:// [default: sqlite:delayline.db]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Brokers of RocketMQ, which carry wake-ups; without a file the server is a gateway for their messages as well
    #[arg(long, value_name = "HOST:PORT[;HOST:PORT]")]
    nameserver: Option<String>,
    /// A Redis that carries what the brokers do not
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Topics that messages of the gateway may go to, separated by commas, such as 'order_*,coupon'
    #[arg(long, value_name = "TOPICS")]
    targets: Vec<String>,
    /// Topics that its answers may go to
    #[arg(long, value_name = "TOPICS")]
    replies: Vec<String>,
    /// Tokens that may do all, each by its SHA-256 (printf %s "$TOKEN" | sha256sum)
    #[arg(long, value_name = "NAME=SHA256")]
    tokens: Vec<String>,
    /// Any setting of the file, such as http.body_limit=1000000; others see it where they see processes, so no secrets
    #[arg(long, value_name = "SETTING=VALUE")]
    set: Vec<String>,
}

impl Flags {
    pub(super) fn given(self) -> Result<Vec<Given>, Mistake> {
        let lists = |values: Vec<String>| (!values.is_empty()).then(|| values.join(","));
        let flags = [
            ("--listen", "http.listen", self.listen),
            ("--store", "store.url", self.store),
            ("--nameserver", "rocketmq.nameserver", self.nameserver),
            ("--redis", "redis.url", self.redis),
            ("--targets", "gateway.targets", lists(self.targets)),
            ("--replies", "gateway.replies", lists(self.replies)),
            ("--tokens", "http.tokens", lists(self.tokens)),
        ];
        let mut all: Vec<Given> = Vec::new();
        for (flag, name, value) in flags {
            if let (Some(setting), Some(value)) = (Setting::named(name), value) {
                all.push(Given::new(flag, setting, value));
            }
        }
        for set in self.set {
            let refused = |what: String| Mistake::Given {
                by: "--set".to_owned(),
                what,
            };
            let (name, value) = set.split_once('=').ok_or_else(|| {
                refused(
                    "it is not shown: allowed is SETTING=VALUE, such as http.body_limit=1000000".to_owned(),
                )
            })?;
            let setting = Setting::named(name).ok_or_else(|| {
                let meant = Setting::meant(name, "", Setting::name);
                refused(format!("{name:?} is no setting: {meant}"))
            })?;
            if let Some(other) = all.iter().find(|given| std::ptr::eq(given.setting, setting)) {
                return Err(refused(format!(
                    "{name} is given by {} as well: allowed is once",
                    other.by
                )));
            }
            all.push(Given::new(format!("--set {name}"), setting, value));
        }
        Ok(all)
    }
}

impl Config {
    /// What a nameserver without a file brings: a gateway, for messages to any topic, if its brokers have no accounts. For
    /// then each producer can send to those topics itself, and gains nothing by it. With an account the gateway may more than
    /// its senders, so who sets it up says where they may go.
    pub(super) fn usual_gateway(given: &[Given]) -> Result<Vec<Given>, Mistake> {
        const BY: &str = "the gateway of a nameserver without a file";
        let said = |name: &str| given.iter().find(|given| given.setting.name() == name);
        let Some(nameserver) = said("rocketmq.nameserver") else {
            return Ok(Vec::new());
        };
        let has_account = said("rocketmq.access_key").is_some();
        if has_account && said("gateway.targets").is_none() {
            return Err(nameserver.mistake(
                "gateway.targets is missing, and with an account (rocketmq.access_key) the gateway may send where its senders \
                 may not: allowed are names of topics, or * for all, by --targets or the environment"
                    .to_owned(),
            ));
        }
        let usual = ["gateway.targets", "gateway.replies"]
            .into_iter()
            .filter(|_| !has_account);
        let usual = usual.filter_map(|name| Some(Given::new(BY, Setting::named(name)?, "*")));
        Ok(usual.collect())
    }
}
