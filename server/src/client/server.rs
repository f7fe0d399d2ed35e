//! A server that has tasks, asked over HTTP.

use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{Method, Response, StatusCode, redirect};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use url::Url;

use super::ChangeOutcome;
use crate::Failure;
use crate::cause::cause;
use crate::operations::TaskView;
use crate::place::Token;
use crate::table::one_line;

/// A server answers within 30 s, or says that it took too long.
const LIMIT: Duration = Duration::from_secs(40);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How many bytes of an answer are read: a page of tasks has payloads of 16 MiB, and one more.
const MOST: usize = 64 << 20;
const OURS: &str = env!("CARGO_PKG_VERSION");

/// A server, and what it is asked with.
#[derive(Debug)]
pub(crate) struct Server {
    client: reqwest::Client,
    base: Url,
}

/// What a server says where it does not do what it was asked for.
#[derive(Debug, Default, Deserialize)]
struct Problem {
    detail: String,
    /// Of a verb that was not done.
    answer: Option<String>,
    task: Option<TaskView>,
}

/// What a server answers.
pub(super) enum Answered<T> {
    /// It is so.
    Found(T),
    /// A verb was not done, and why.
    Refused(Box<ChangeOutcome>),
    /// There is no such thing.
    Absent,
}

/// What is said of the server by itself.
#[derive(Deserialize)]
struct Described {
    info: Info,
}

#[derive(Deserialize)]
struct Info {
    title: String,
    version: String,
}

/// Whether a name in a path would be a step within it.
pub(super) fn is_step(name: &str) -> bool {
    matches!(name, "." | "..")
}

/// Refuses a name that would be something else in a path.
pub(super) fn no_place(name: &str) -> Failure {
    Failure::Argument(format!(
        "a name is {name:?}: a URL has no place for it, so allowed is --id in place of KIND and KEY, or --store"
    ))
}

impl Server {
    /// Nothing is asked yet.
    pub(crate) fn new(given_by: &str, url: &str, token: Option<Token>) -> Result<Self, Failure> {
        let base = base(given_by, url)?;
        let mut client = reqwest::Client::builder()
            .user_agent(concat!("delayline/", env!("CARGO_PKG_VERSION")))
            .timeout(LIMIT)
            .connect_timeout(CONNECT_LIMIT)
            // The token is for this server alone.
            .redirect(redirect::Policy::none())
            .http1_only();
        if let Some(token) = token {
            let value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
            let mut value = value.map_err(|_| Failure::Argument("the token cannot be sent".to_owned()))?;
            value.set_sensitive(true);
            client = client.default_headers([(AUTHORIZATION, value)].into_iter().collect());
        }
        let client = client
            .build()
            .map_err(|error| Failure::Found(format!("no server can be asked: {}", cause(&error))))?;
        Ok(Self { client, base })
    }

    /// The address of what is at a path, of which each part is a name.
    pub(super) fn path(&self, parts: &[impl AsRef<str>]) -> Result<Url, Failure> {
        if let Some(name) = parts.iter().map(AsRef::as_ref).find(|name| is_step(name)) {
            return Err(no_place(name));
        }
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty()
                .push("v1")
                .extend(parts.iter().map(AsRef::as_ref));
        }
        Ok(url)
    }

    /// What is there, if it is.
    pub(super) async fn look<T: DeserializeOwned>(&self, url: Url) -> Result<Option<T>, Failure> {
        match self.ask(Method::GET, url, None::<&()>).await? {
            Answered::Found(found) => Ok(Some(found)),
            Answered::Refused(_) | Answered::Absent => Ok(None),
        }
    }

    /// What has to be there.
    pub(super) async fn get<T: DeserializeOwned>(&self, url: Url) -> Result<T, Failure> {
        let path = url.path().to_owned();
        let found = self.look(url).await?;
        found.ok_or_else(|| Failure::Found(format!("{} has no {path}", self.base)))
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        url: Url,
        body: &impl Serialize,
    ) -> Result<Answered<T>, Failure> {
        self.ask(Method::POST, url, Some(body)).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        url: Url,
        body: Option<&impl Serialize>,
    ) -> Result<Answered<T>, Failure> {
        let path = url.path().to_owned();
        let mut request = self
            .client
            .request(method, url)
            .header(ACCEPT, "application/json");
        if let Some(body) = body {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .body(crate::json(body)?);
        }
        let response = request.send().await.map_err(|error| self.unanswered(&error))?;
        let (status, location) = (response.status(), response.headers().get(LOCATION).cloned());
        let is_json = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|of| of.to_str().ok())
            .is_some_and(|of| of.contains("json"));
        let text = self.body(response).await?;
        if status.is_success() {
            let found = serde_json::from_slice(&text);
            return match found {
                Ok(found) => Ok(Answered::Found(found)),
                Err(error) => Err(self.misunderstood(status, &error.to_string()).await),
            };
        }
        if status.is_redirection() {
            let location = location.as_ref().and_then(|to| to.to_str().ok()).unwrap_or("?");
            return Err(Failure::Found(format!(
                "{} says that it is at {:?}, which is not followed, as the token is not for it: give that URL as --server",
                self.base,
                one_line(location)
            )));
        }
        let problem: Option<Problem> = serde_json::from_slice(&text).ok().filter(|_| is_json);
        let Some(problem) = problem else {
            return Err(self.misunderstood(status, "no reason is given").await);
        };
        let detail = one_line(&problem.detail);
        match (status, problem.answer) {
            (
                StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED,
                Some(answer),
            ) => {
                let task = problem.task;
                Ok(Answered::Refused(Box::new(ChangeOutcome { answer, task })))
            }
            (StatusCode::NOT_FOUND, None) if detail != "there is nothing at this path" => {
                Ok(Answered::Absent)
            }
            (StatusCode::UNAUTHORIZED, _) => Err(Failure::Found(format!(
                "{} knows no such token: needed is one of its http.tokens, by --token-file or DELAYLINE_TOKEN",
                self.base
            ))),
            (StatusCode::FORBIDDEN, _) => Err(Failure::Found(format!("{} refuses: {detail}", self.base))),
            (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _) => {
                let what = format!("{} has no {path}: {detail}", self.base);
                Err(Failure::Found(
                    what + &self.version("; perhaps its http.base_path is another").await,
                ))
            }
            (StatusCode::BAD_REQUEST, _) => Err(Failure::Argument(detail + &self.other_version().await)),
            (status, _) => Err(Failure::Found(format!(
                "{} answers {}: {detail}",
                self.base,
                status.as_u16()
            ))),
        }
    }

    async fn body(&self, mut response: Response) -> Result<Vec<u8>, Failure> {
        let mut text = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| self.unanswered(&error))? {
            if text.len() + part.len() > MOST {
                return Err(Failure::Found(format!(
                    "{} answers more than {MOST} bytes: allowed is a smaller --limit",
                    self.base
                )));
            }
            text.extend_from_slice(&part);
        }
        Ok(text)
    }

    /// Why there is no answer.
    fn unanswered(&self, error: &reqwest::Error) -> Failure {
        let base = &self.base;
        if error.is_timeout() && !error.is_connect() {
            return Failure::Found(format!(
                "{base} does not answer within {LIMIT:?}; what was asked for may have been done or not"
            ));
        }
        let cause = one_line(&cause(error));
        let other = match base.scheme() {
            "https" if cause.contains("InvalidContentType") => "; perhaps it speaks http:// and no TLS",
            "https" if cause.contains("certificate") => {
                "; its certificate must be for this name, and by an authority that this machine trusts (SSL_CERT_FILE)"
            }
            "http" if cause.contains("invalid HTTP version") => "; perhaps it speaks https://",
            _ => "",
        };
        match error.is_connect() {
            true => Failure::Found(format!("no connection to {base}: {cause}{other}")),
            false => Failure::Found(format!("no answer from {base}: {cause}{other}")),
        }
    }

    async fn misunderstood(&self, status: StatusCode, why: &str) -> Failure {
        let status = status.as_u16();
        let version = self.version("").await;
        Failure::Found(format!(
            "{} does not answer as a Delayline server does (status {status}: {}){version}",
            self.base,
            one_line(why)
        ))
    }

    /// What may be wrong with the address, or which version is there; what may be wrong if it is this one.
    async fn version(&self, same: &str) -> String {
        match self.described().await {
            Some(version) if version == OURS => same.to_owned(),
            Some(version) => other(&version),
            None => "; perhaps the URL is of something else, or its http.base_path is missing".to_owned(),
        }
    }

    /// The same, where only another version explains anything.
    async fn other_version(&self) -> String {
        let version = self.described().await.filter(|version| version != OURS);
        version.map_or_else(String::new, |version| other(&version))
    }

    /// The version of the server, if it is one.
    async fn described(&self) -> Option<String> {
        let mut url = self.base.clone();
        url.path_segments_mut().ok()?.pop_if_empty().push("openapi.json");
        let response = self.client.get(url).send().await.ok()?;
        let text = self.body(response).await.ok()?;
        let Described { info } = serde_json::from_slice(&text).ok()?;
        (info.title == "Delayline").then(|| one_line(&info.version))
    }
}

fn other(version: &str) -> String {
    format!("; the server is of version {version}, and this tool of {OURS}")
}

/// The address of a server, which is shown in errors and so has no secrets in it.
fn base(given_by: &str, text: &str) -> Result<Url, Failure> {
    const ALLOWED: &str =
        "allowed is http:// or https://HOST:PORT, and the path that http.base_path says, without a password";
    let url = Url::parse(text).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    });
    let url = url.ok_or_else(|| match text.contains('@') {
        true => Failure::Argument(format!(
            "{given_by} is not shown, as it may hold a password: {ALLOWED}"
        )),
        false => Failure::Argument(format!("{given_by} is {text:?}: {ALLOWED}")),
    })?;
    #[cfg(not(feature = "webhook-tls"))]
    if url.scheme() == "https" {
        return Err(Failure::Argument(format!(
            "{given_by} is {text:?}: https:// needs the feature webhook-tls, which this build does not have"
        )));
    }
    Ok(url)
}
