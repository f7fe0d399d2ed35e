//! Which database a command is about.

use std::sync::Arc;

use delayline::store::Store;

use crate::Failure;

/// What is set of a store, beside its address.
#[derive(Default)]
struct Settings<'a> {
    schema: Option<&'a str>,
    table: Option<&'a str>,
    connections: Option<u32>,
}

/// Where the database is. It may hold a password, so it is never shown, nor what a parser says of it.
pub(crate) struct Address {
    /// The option or the variable.
    given_by: String,
    text: String,
}

impl Address {
    /// What an option says, else the environment.
    pub(crate) fn given(option: &'static str, url: Option<&String>) -> Result<Self, Failure> {
        const VARIABLE: &str = "DATABASE_URL";
        let (given_by, text) = match (url, std::env::var_os(VARIABLE)) {
            (Some(url), _) => (option, Some(url.clone())),
            (None, Some(url)) => (VARIABLE, url.into_string().ok()),
            (None, None) => {
                let missing = format!("{option} is missing, and {VARIABLE} is not set");
                return Err(Failure::Argument(missing));
            }
        };
        let text = text.filter(|text| !text.is_empty());
        let text = text.ok_or_else(|| Failure::Argument(format!("{given_by} is empty or not UTF-8")))?;
        Ok(Self {
            given_by: given_by.to_owned(),
            text,
        })
    }

    /// What a setting of a configuration says.
    pub(crate) fn of_setting(setting: String, text: &str) -> Self {
        Self {
            given_by: setting,
            text: text.to_owned(),
        }
    }

    /// All of it, for a client: never to be shown.
    #[cfg(feature = "redis")]
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The scheme; empty for a path.
    pub(crate) fn scheme(&self) -> &str {
        let scheme = self.text.split_once(':').map_or("", |(scheme, _)| scheme);
        // A path may have a colon in it.
        match scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'+')
        {
            true => scheme,
            false => "",
        }
    }

    /// Whether a server of tasks could open it, as far as can be said without connecting.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.scheme() {
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => self
                .options::<sqlx::postgres::PgConnectOptions>(["postgres", "postgresql"])
                .map(drop),
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => self
                .options::<sqlx::mysql::MySqlConnectOptions>(["mysql", "mariadb"])
                .map(drop),
            #[cfg(feature = "sqlite")]
            "" | "sqlite" => self.file().map(drop),
            #[cfg(feature = "redis")]
            scheme if is_redis(scheme) => self.redis().map(drop),
            _ => Err(self.unknown()),
        }
    }

    /// Opens the store for a server of tasks, with as many connections as a store has. A file that is not there is made.
    pub(crate) async fn serve(&self) -> Result<Arc<dyn Store>, Failure> {
        self.connect(&Settings::default()).await
    }

    /// Opens the store that is there.
    pub(crate) async fn existing(&self) -> Result<Arc<dyn Store>, Failure> {
        self.is_there()?;
        self.serve().await
    }

    /// Refuses a file that is not there, as opening makes one.
    fn is_there(&self) -> Result<(), Failure> {
        #[cfg(feature = "sqlite")]
        if matches!(self.scheme(), "" | "sqlite") && !self.file()?.exists() {
            return Err(self.missing());
        }
        Ok(())
    }

    #[cfg_attr(
        not(any(feature = "postgres", feature = "mysql")),
        allow(unused_variables, reason = "other stores have no settings")
    )]
    async fn connect(&self, settings: &Settings<'_>) -> Result<Arc<dyn Store>, Failure> {
        let store: Arc<dyn Store> = match self.scheme() {
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => {
                let options: sqlx::postgres::PgConnectOptions = self.options(["postgres", "postgresql"])?;
                let mut builder = delayline::store::PostgresStore::builder(options.clone());
                if let Some(schema) = settings.schema {
                    builder = builder.schema(schema);
                }
                if let Some(table) = settings.table {
                    builder = builder.table(table);
                }
                if let Some(connections) = settings.connections {
                    builder = builder.connections(connections);
                }
                let store = builder.connect().await?;
                crate::plaintext::warn_of_postgres(&options).await;
                Arc::new(store)
            }
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => {
                let options: sqlx::mysql::MySqlConnectOptions = self.options(["mysql", "mariadb"])?;
                let mut builder = delayline::store::MySqlStore::builder(options.clone());
                if let Some(table) = settings.table {
                    builder = builder.table(table);
                }
                if let Some(connections) = settings.connections {
                    builder = builder.connections(connections);
                }
                let store = builder.connect().await?;
                crate::plaintext::warn_of_mysql(&options).await;
                Arc::new(store)
            }
            #[cfg(feature = "sqlite")]
            "" | "sqlite" => Arc::new(delayline::store::SqliteStore::open(self.file()?).await?),
            #[cfg(feature = "redis")]
            scheme if is_redis(scheme) => Arc::new(self.redis()?),
            _ => return Err(self.unknown()),
        };
        store.check().await?;
        Ok(store)
    }

    #[cfg(feature = "redis")]
    fn redis(&self) -> Result<delayline::store::RedisStore, Failure> {
        delayline::store::RedisStore::new(&self.text).map_err(|error| match error.is_invalid() {
            true => Failure::Argument(format!("{}: {error}", self.given_by)),
            false => error.into(),
        })
    }

    pub(crate) fn unknown(&self) -> Failure {
        self.refused("the URL of a database that this build knows")
    }

    /// Opens the database that is there, whose tables are there already.
    #[cfg(all(
        feature = "redis",
        any(feature = "postgres", feature = "mysql", feature = "sqlite")
    ))]
    pub(crate) async fn open(
        &self,
        schema: Option<&str>,
        table: Option<&str>,
    ) -> Result<Arc<dyn Store>, Failure> {
        if is_redis(self.scheme()) {
            return Err(self.unknown());
        }
        self.is_there()?;
        let settings = Settings {
            schema,
            table,
            connections: Some(2),
        };
        let store = self.connect(&settings).await?;
        let is_for = |option: Option<&str>, name: &str, is_right: bool| match option {
            Some(_) if !is_right => Err(Failure::Argument(format!("--{name} is not for {}", store.name()))),
            _ => Ok(()),
        };
        is_for(schema, "schema", store.name() == "postgres")?;
        is_for(table, "table", store.name() != "sqlite")?;
        Ok(store)
    }

    /// What the driver makes of a URL. It would take any scheme, and then connect to an unintended place.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn options<O: std::str::FromStr>(&self, schemes: [&str; 2]) -> Result<O, Failure> {
        let scheme = self.text.split_once("://").map(|(scheme, _)| scheme);
        let is_meant = scheme.is_some_and(|scheme| schemes.contains(&scheme));
        let options = self.text.parse().ok().filter(|_| is_meant);
        options.ok_or_else(|| self.refused(&format!("{}://user:password@host:port/database", schemes[0])))
    }

    /// The path, which may also be written as sqlx's own tools have it in `DATABASE_URL`.
    #[cfg(feature = "sqlite")]
    pub(crate) fn file(&self) -> Result<std::path::PathBuf, Failure> {
        let path = match self.text.strip_prefix("sqlite:") {
            Some(path) if path.contains(":memory:") || path.contains("mode=memory") => None,
            Some(_) => {
                let options: Option<sqlx::sqlite::SqliteConnectOptions> = self.text.parse().ok();
                options.map(|options| options.get_filename().to_owned())
            }
            // The URL of another database.
            None if self.text.contains("://") => None,
            None => Some(self.text.clone().into()),
        };
        path.ok_or_else(|| self.refused("the path of a file, or sqlite://path"))
    }

    /// That a file is not there. What is its path, and nothing else, is shown.
    #[cfg(feature = "sqlite")]
    fn missing(&self) -> Failure {
        const ALLOWED: &str = "the path of a file that is there";
        let path = self.text.strip_prefix("sqlite:").unwrap_or(&self.text);
        match crate::arguments::is_path(path) {
            true => Failure::Argument(format!("{} is {path:?}: allowed is {ALLOWED}", self.given_by)),
            false => self.refused(ALLOWED),
        }
    }

    fn refused(&self, allowed: &str) -> Failure {
        let given_by = &self.given_by;
        Failure::Argument(format!(
            "{given_by} is not shown, as it may hold a password: allowed is {allowed}"
        ))
    }
}

#[cfg(feature = "redis")]
fn is_redis(scheme: &str) -> bool {
    matches!(scheme.split('+').next(), Some("redis" | "rediss"))
}
