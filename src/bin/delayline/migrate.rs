//! `delayline migrate`: the tables of a store.

use clap::ValueEnum;

use crate::Failure;

/// Make the tables of a store, bring them up to date, check them, or print the SQL for whoever does it by hand.
#[derive(Debug, clap::Args)]
pub(crate) struct Migrate {
    /// The kind of database
    #[arg(value_name = "DATABASE")]
    database: Database,
    /// The database, such as postgres://user:password@host/database, or the file for sqlite; otherwise what the
    /// environment variable DATABASE_URL says
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Print the SQL, and connect to nothing
    #[arg(long, conflicts_with = "check")]
    print: bool,
    /// Change nothing: say whether the tables are what this release needs
    #[arg(long)]
    check: bool,
    /// The schema of the table (postgres only); otherwise the first of the connection's search_path
    #[arg(long, value_name = "NAME")]
    schema: Option<String>,
    /// The table of the tasks (not for sqlite); otherwise delayline_tasks
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
}

/// The kinds of databases that this build knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Database {
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "mysql")]
    Mysql,
    #[cfg(feature = "sqlite")]
    Sqlite,
}

impl Migrate {
    pub(crate) fn run(self) -> Result<String, Failure> {
        let is_for = |option: Option<&String>, name: &str, is_right: bool| match option {
            Some(_) if !is_right => Err(Failure::Argument(format!("--{name} is not for {}", self.name()))),
            _ => Ok(()),
        };
        is_for(self.schema.as_ref(), "schema", self.name() == "postgres")?;
        is_for(self.table.as_ref(), "table", self.name() != "sqlite")?;
        match self.database {
            #[cfg(feature = "postgres")]
            Database::Postgres => self.postgres(),
            #[cfg(feature = "mysql")]
            Database::Mysql => self.mysql(),
            #[cfg(feature = "sqlite")]
            Database::Sqlite => self.sqlite(),
        }
    }

    fn name(&self) -> &'static str {
        match self.database {
            #[cfg(feature = "postgres")]
            Database::Postgres => "postgres",
            #[cfg(feature = "mysql")]
            Database::Mysql => "mysql",
            #[cfg(feature = "sqlite")]
            Database::Sqlite => "sqlite",
        }
    }

    #[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
    fn address(&self) -> Result<Address, Failure> {
        const VARIABLE: &str = "DATABASE_URL";
        let (given_by, text) = match (&self.url, std::env::var_os(VARIABLE)) {
            (Some(url), _) => ("--url", Some(url.clone())),
            (None, Some(url)) => (VARIABLE, url.into_string().ok()),
            (None, None) => {
                let missing = format!("--url is missing, and {VARIABLE} is not set");
                return Err(Failure::Argument(missing));
            }
        };
        let text = text.filter(|text| !text.is_empty());
        let text = text.ok_or_else(|| Failure::Argument(format!("{given_by} is empty or not UTF-8")))?;
        Ok(Address { given_by, text })
    }

    /// What was done, in a line.
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
    fn done(&self) -> String {
        let done = if self.check { "are" } else { "are now" };
        format!("the tables {done} what this release needs\n")
    }
}

/// Where the database is. It may hold a password, so it is never shown, nor what a parser says of it.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
struct Address {
    /// The option or the variable.
    given_by: &'static str,
    text: String,
}

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
impl Address {
    /// What the driver makes of a URL. It would take any scheme, and then go where nobody has meant.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    fn options<O: std::str::FromStr>(&self, schemes: [&str; 2]) -> Result<O, Failure> {
        let scheme = self.text.split_once("://").map(|(scheme, _)| scheme);
        let is_meant = scheme.is_some_and(|scheme| schemes.contains(&scheme));
        let options = self.text.parse().ok().filter(|_| is_meant);
        options.ok_or_else(|| self.refused(&format!("{}://user:password@host:port/database", schemes[0])))
    }

    /// The path, which may also be written as sqlx's own tools have it in `DATABASE_URL`.
    #[cfg(feature = "sqlite")]
    fn file(&self) -> Result<std::path::PathBuf, Failure> {
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

    fn refused(&self, allowed: &str) -> Failure {
        let given_by = self.given_by;
        Failure::Argument(format!(
            "{given_by} is not shown, as it may hold a password: allowed is {allowed}"
        ))
    }
}

#[cfg(feature = "postgres")]
impl Migrate {
    fn postgres(self) -> Result<String, Failure> {
        use delayline::store::{PostgresStore, Store};

        let options = match self.print {
            true => Default::default(),
            false => self.address()?.options(["postgres", "postgresql"])?,
        };
        let mut builder = PostgresStore::builder(options).connections(1);
        if let Some(schema) = &self.schema {
            builder = builder.schema(schema);
        }
        if let Some(table) = &self.table {
            builder = builder.table(table);
        }
        if self.print {
            return Ok(builder.migrations()?);
        }
        crate::in_runtime(async {
            let store = builder.connect().await?;
            if !self.check {
                store.migrate().await?;
            }
            store.check().await
        })??;
        Ok(self.done())
    }
}

#[cfg(feature = "mysql")]
impl Migrate {
    fn mysql(self) -> Result<String, Failure> {
        use delayline::store::{MySqlStore, Store};

        let options = match self.print {
            true => Default::default(),
            false => self.address()?.options(["mysql", "mariadb"])?,
        };
        let mut builder = MySqlStore::builder(options).connections(1);
        if let Some(table) = &self.table {
            builder = builder.table(table);
        }
        if self.print {
            return Ok(builder.migrations()?);
        }
        crate::in_runtime(async {
            let store = builder.connect().await?;
            if !self.check {
                store.migrate().await?;
            }
            store.check().await
        })??;
        Ok(self.done())
    }
}

#[cfg(feature = "sqlite")]
impl Migrate {
    fn sqlite(self) -> Result<String, Failure> {
        use delayline::store::SqliteStore;

        if self.print {
            return Ok(SqliteStore::migrations());
        }
        if self.check {
            return Err(Failure::Argument(
                "--check is not for sqlite, whose tables are brought up to date when a file is opened"
                    .to_owned(),
            ));
        }
        let file = self.address()?.file()?;
        crate::in_runtime(async { SqliteStore::open(file).await.map(drop) })??;
        Ok(self.done())
    }
}
