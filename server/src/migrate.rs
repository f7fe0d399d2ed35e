//! `delayline migrate`: the tables of a store.

use clap::ValueEnum;

use crate::Failure;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
use crate::database::Address;

/// Make the tables of a store, bring them up to date, check them, or print the SQL, to be run by hand.
#[derive(Debug, clap::Args)]
pub(crate) struct Migrate {
    /// The kind of database
    #[arg(value_name = "DATABASE")]
    database: Database,
    /// The database, such as postgres://user:password@host/database, or the file for sqlite; otherwise what the
    /// environment variable DATABASE_URL says
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Print the SQL, and connect to nothing
    #[arg(long, conflicts_with = "check")]
    print: bool,
    /// Change nothing: say whether the tables are what this release needs (not for sqlite)
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
        Address::given("--store", self.store.as_ref())
    }

    #[cfg(any(feature = "postgres", feature = "mysql"))]
    fn located(&self, error: delayline::Error) -> Failure {
        self.address()
            .map_or_else(|missing| missing, |address| address.located(error.into()))
    }

    /// What was done, in a line.
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
    fn done(&self) -> String {
        let done = if self.check { "are" } else { "are now" };
        format!("the tables {done} what this release needs\n")
    }
}

#[cfg(feature = "postgres")]
impl Migrate {
    fn postgres(self) -> Result<String, Failure> {
        use delayline::store::{PostgresStore, Store};

        let options: sqlx::postgres::PgConnectOptions = match self.print {
            true => Default::default(),
            false => self.address()?.options(["postgres", "postgresql"])?,
        };
        let mut builder = PostgresStore::builder(options.clone()).connections(1);
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
            store.check().await?;
            crate::plaintext::warn_of_postgres(&options).await;
            Ok::<_, delayline::Error>(())
        })?
        .map_err(|error| self.located(error))?;
        Ok(self.done())
    }
}

#[cfg(feature = "mysql")]
impl Migrate {
    fn mysql(self) -> Result<String, Failure> {
        use delayline::store::{MySqlStore, Store};

        let options: sqlx::mysql::MySqlConnectOptions = match self.print {
            true => Default::default(),
            false => self.address()?.options(["mysql", "mariadb"])?,
        };
        let mut builder = MySqlStore::builder(options.clone()).connections(1);
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
            store.check().await?;
            crate::plaintext::warn_of_mysql(&options).await;
            Ok::<_, delayline::Error>(())
        })?
        .map_err(|error| self.located(error))?;
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
