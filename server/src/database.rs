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
    /// What an option says, else `DATABASE_URL`.
    pub(crate) fn given(option: &'static str, url: Option<&String>) -> Result<Self, Failure> {
        Self::given_or_in(option, "DATABASE_URL", url)
    }

    /// What an option says, else a variable of the environment.
    pub(crate) fn given_or_in(
        option: &'static str,
        variable: &'static str,
        url: Option<&String>,
    ) -> Result<Self, Failure> {
        let (given_by, text) = match (url, std::env::var_os(variable)) {
            (Some(url), _) => (option, Some(url.clone())),
            (None, Some(url)) => (variable, url.into_string().ok()),
            (None, None) => {
                let missing = format!("{option} is missing, and {variable} is not set");
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

    /// The option or the variable.
    #[cfg(feature = "redis")]
    pub(crate) fn given_by(&self) -> &str {
        &self.given_by
    }

    /// Names the server in the error of a driver, which does not say where it could not connect.
    pub(crate) fn located(&self, failure: Failure) -> Failure {
        match (failure, self.server()) {
            (Failure::Server(error), Some(server)) if error.is_transient() => {
                Failure::Found(format!("{server}: {error}"))
            }
            (failure, _) => failure,
        }
    }

    /// The hosts of a URL. What stands before the last `@` may be a password.
    fn server(&self) -> Option<&str> {
        let (_, rest) = self.text.split_once("://")?;
        let rest = rest.rsplit('@').next()?;
        rest.split(['/', '?']).next().filter(|hosts| !hosts.is_empty())
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
        self.is_there().await?;
        self.serve().await.map_err(|failure| self.located(failure))
    }

    /// Refuses a file that is not there, or has no tables of ours, as opening would make both.
    async fn is_there(&self) -> Result<(), Failure> {
        #[cfg(feature = "sqlite")]
        if matches!(self.scheme(), "" | "sqlite") {
            let file = self.file()?;
            if !file.exists() {
                return Err(self.not_a("the path of a file that is there"));
            }
            match has_tables(&file).await {
                Ok(true) => {}
                Ok(false) => return Err(self.not_a(NO_TABLES)),
                Err(cause) => {
                    let given_by = &self.given_by;
                    return Err(Failure::Found(format!(
                        "the file of {given_by} cannot be read: {cause}"
                    )));
                }
            }
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
        self.is_there().await?;
        let settings = Settings {
            schema,
            table,
            connections: Some(2),
        };
        let store = self.connect(&settings).await;
        let store = store.map_err(|failure| self.located(failure))?;
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

    /// That a file cannot be used. What is its path, and nothing else, is shown.
    #[cfg(feature = "sqlite")]
    pub(crate) fn not_a(&self, allowed: &str) -> Failure {
        let path = self.text.strip_prefix("sqlite:").unwrap_or(&self.text);
        match crate::arguments::is_path(path) {
            true => Failure::Argument(format!("{} is {path:?}: allowed is {allowed}", self.given_by)),
            false => self.refused(allowed),
        }
    }

    fn refused(&self, allowed: &str) -> Failure {
        let given_by = &self.given_by;
        Failure::Argument(format!(
            "{given_by} is not shown, as it may hold a password: allowed is {allowed}"
        ))
    }
}

#[cfg(feature = "sqlite")]
const NO_TABLES: &str = "a file with Delayline's tables, which delayline migrate sqlite makes";

/// Whether a file has our tables; it is not written to.
#[cfg(feature = "sqlite")]
async fn has_tables(file: &std::path::Path) -> Result<bool, sqlx::Error> {
    use sqlx::{ConnectOptions as _, Connection as _};

    const TABLES: &str = "SELECT count(*) FROM sqlite_schema WHERE name = 'delayline_migrations'";
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(file)
        .read_only(true);
    let mut connection = options.connect().await?;
    let tables: i64 = sqlx::query_scalar(TABLES).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(tables > 0)
}

#[cfg(feature = "redis")]
fn is_redis(scheme: &str) -> bool {
    matches!(scheme.split('+').next(), Some("redis" | "rediss"))
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn a_server_is_named_without_what_may_be_a_password() {
        for (url, server) in [
            ("redis://:s3cret@a:1/0", Some("a:1")),
            ("redis+cluster://a:1,b:2", Some("a:1,b:2")),
            ("postgres://u:s3/cr@et@a/shop?sslmode=require", Some("a")),
            ("postgres://u:s3/cret@a", Some("a")),
            ("postgres:///shop?host=/run&password=s3cret", None),
            ("postgres:s3cret", None),
            ("shop.db", None),
        ] {
            assert_eq!(Address::of_setting(String::new(), url).server(), server, "{url}");
        }
    }
}
