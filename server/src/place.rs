//! Where the tasks are that a command is about: in a store, or at a server.

use std::fmt;
use std::path::{Path, PathBuf};

use delayline::Scheduler;
use delayline::store::History;

use crate::Failure;
use crate::client::{Client, Server};
use crate::database::Address;
use crate::operations::Operations;

const SERVER: &str = "DELAYLINE_SERVER";
const TOKEN: &str = "DELAYLINE_TOKEN";
const TOKEN_FILE: &str = "DELAYLINE_TOKEN_FILE";
const HEADING: &str = "Where the tasks are";

/// The store with the tasks, or a server that has them.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The store with the tasks: postgres://, mysql://, redis:// or the path of a file for SQLite; otherwise what the
    /// environment variable DATABASE_URL says
    #[arg(long, help_heading = HEADING, value_name = "URL", value_hint = clap::ValueHint::AnyPath)]
    store: Option<String>,
    /// A server in place of the store: http:// or https://HOST:PORT, and its http.base_path; otherwise DELAYLINE_SERVER,
    /// which goes before DATABASE_URL
    #[arg(long, help_heading = HEADING, value_name = "URL", conflicts_with = "store", value_hint = clap::ValueHint::Url)]
    server: Option<String>,
    /// A file with the token for the server, or - for standard input; otherwise what is in DELAYLINE_TOKEN, or in the
    /// file that DELAYLINE_TOKEN_FILE names
    #[arg(long, help_heading = HEADING, value_name = "FILE", conflicts_with = "store", value_hint = clap::ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// The token itself; others see it where they see processes, so rather the file or the variable
    #[arg(long, help_heading = HEADING, value_name = "TOKEN", conflicts_with_all = ["store", "token_file"], value_parser = token)]
    token: Option<Token>,
}

/// A bearer token, which is shown nowhere.
#[derive(Clone)]
pub(crate) struct Token(String);

/// Takes any text: what is wrong with one is said later, without it.
fn token(text: &str) -> Result<Token, std::convert::Infallible> {
    Ok(Token(text.to_owned()))
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not shown")
    }
}

impl Token {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// One that can stand in a header.
    fn checked(self, given_by: &str) -> Result<Self, Failure> {
        let text = self.0.trim();
        match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Self(text.to_owned())),
            false => Err(Failure::Argument(format!(
                "{given_by} is not shown, as it is a secret: allowed are characters of ASCII without spaces, one or more"
            ))),
        }
    }

    fn in_file(path: &Path, given_by: &str) -> Result<Self, Failure> {
        let refused = |cause| {
            Failure::Argument(format!(
                "{given_by} is {path:?}: allowed is the path of a file with a token that can be read ({cause})"
            ))
        };
        let text = crate::input::read(path).map_err(refused)?;
        Self(text).checked(&format!("the token in {path:?}"))
    }
}

impl Place {
    /// Opens the store, which must be there, or prepares to ask the server.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        let server = match (&self.server, &self.store) {
            (Some(url), _) => Some(("--server", url.clone())),
            (None, Some(_)) => None,
            (None, None) => variable(SERVER)?.map(|url| (SERVER, url)),
        };
        match server {
            Some((given_by, url)) => Ok(Client::Server(Server::new(given_by, &url, self.token()?)?)),
            None if self.token.is_some() || self.token_file.is_some() => Err(Failure::Argument(format!(
                "a token is given and no server that asks for it: needed is --server or {SERVER}"
            ))),
            None => Ok(Client::Store(self.operations().await?)),
        }
    }

    /// The operations on the tasks of the store. What is changed has no wake-up sent: a worker finds that within a second, as
    /// its row says.
    async fn operations(&self) -> Result<Operations, Failure> {
        let address = match (&self.store, std::env::var_os("DATABASE_URL")) {
            (None, None) => {
                let missing = format!(
                    "it is not said where the tasks are: needed is --store or DATABASE_URL, or --server or {SERVER}"
                );
                return Err(Failure::Argument(missing));
            }
            _ => Address::given("--store", self.store.as_ref())?,
        };
        let store = address.existing().await?;
        let builder = Scheduler::builder(store.clone()).history(History::Changes);
        Ok(Operations::new(&builder.build()?, store, "cli".to_owned()))
    }

    fn token(&self) -> Result<Option<Token>, Failure> {
        if let Some(token) = &self.token {
            return token.clone().checked("--token").map(Some);
        }
        if let Some(path) = &self.token_file {
            return Token::in_file(path, "--token-file").map(Some);
        }
        if let Some(token) = variable(TOKEN)? {
            return Token(token).checked(TOKEN).map(Some);
        }
        let path = variable(TOKEN_FILE)?;
        path.map(|path| Token::in_file(Path::new(&path), TOKEN_FILE))
            .transpose()
    }
}

/// A variable of the environment; an empty one is none.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(Failure::Argument(format!("{name} is not UTF-8"))),
    }
}
