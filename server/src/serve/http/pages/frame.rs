//! What all pages have around them, and how each is sent.

use askama::Template;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse as _, Response};

use super::super::Shared;
use super::super::problem::Problem;
use super::signs::Signs;
use super::visitor::Visitor;
use crate::serve::config::Right;
use crate::time::now;

/// Nothing but what this server has, and no script or style within a page, so that a text of a task can be neither.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Which page is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Overview,
    Tasks,
    Dead,
    Kinds,
    Workers,
    Bulk,
    Brokers,
    /// None that is in the menu.
    Other,
}

/// The pages in the menu: their names, paths and icons.
const MENU: [(Tab, &str, &str); 7] = [
    (Tab::Overview, "Overview", ""),
    (Tab::Tasks, "Tasks", "/tasks"),
    (Tab::Dead, "Dead", "/dead"),
    (Tab::Kinds, "Kinds", "/kinds"),
    (Tab::Workers, "Workers", "/workers"),
    (Tab::Bulk, "Bulk", "/bulk"),
    (Tab::Brokers, "Brokers", "/brokers"),
];

/// A page in the menu.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) path: String,
    pub(super) is_shown: bool,
    pub(super) sign: Option<Sign>,
}

/// What stands beside the name of a page.
#[derive(Debug)]
pub(super) struct Sign {
    pub(super) count: String,
    /// What it counts.
    pub(super) of: &'static str,
    pub(super) is_bad: bool,
}

/// What is around a page: where it is, and who looks at it.
#[derive(Debug)]
pub(super) struct Frame {
    /// Where all pages begin: empty, or without a slash at its end.
    pub(super) base: String,
    pub(super) tab: Tab,
    /// None before the visitor has signed in.
    pub(super) visitor: Option<Visitor>,
    /// What is searched for.
    pub(super) q: String,
    /// The time of this server, in ms.
    pub(super) now: i64,
}

impl Frame {
    pub(super) fn new(app: &Shared, tab: Tab, visitor: Option<Visitor>) -> Self {
        Self {
            base: app.base_path.clone(),
            tab,
            visitor,
            q: String::new(),
            now: now().as_millis(),
        }
    }

    /// The path of the overview.
    pub(super) fn home(&self) -> &str {
        match self.base.as_str() {
            "" => "/",
            base => base,
        }
    }

    /// None before a sign-in.
    pub(super) fn menu(&self) -> Vec<Entry> {
        let Some(visitor) = &self.visitor else {
            return Vec::new();
        };
        let entry = |(tab, name, path): (Tab, &'static str, &str)| Entry {
            name,
            path: match path {
                "" => self.home().to_owned(),
                path => format!("{}{path}", self.base),
            },
            is_shown: self.tab == tab,
            sign: Sign::of(tab, &visitor.signs),
        };
        MENU.map(entry).into()
    }

    /// Writes a command that schedules a task, to begin with.
    pub(super) fn first_command(&self) -> String {
        let Some(visitor) = &self.visitor else {
            return String::new();
        };
        let token = match visitor.name {
            Some(_) => " -H \"authorization: Bearer $TOKEN\"",
            None => "",
        };
        format!(
            "curl -X PUT {}{}/v1/tasks/order.cancel/order-42{token} \\\n  -H 'content-type: application/json' -d \
             '{{\"after\": \"15m\"}}'",
            visitor.origin, self.base
        )
    }

    pub(super) fn may_change(&self) -> bool {
        self.visitor.as_ref().is_some_and(Visitor::may_change)
    }

    pub(super) fn may_schedule(&self) -> bool {
        let visitor = self.visitor.as_ref();
        visitor.is_some_and(|visitor| visitor.caller.may(Right::Schedule))
    }

    /// What each form sends back.
    pub(super) fn csrf(&self) -> &str {
        self.visitor.as_ref().map_or("", |visitor| &visitor.csrf)
    }

    /// Who has signed in.
    pub(super) fn name(&self) -> Option<&str> {
        self.visitor.as_ref()?.name.as_deref()
    }
}

impl Sign {
    fn of(tab: Tab, signs: &Signs) -> Option<Self> {
        let (count, of, is_bad) = match tab {
            Tab::Dead if !signs.dead.is_zero() => (signs.dead.to_string(), "dead tasks", true),
            Tab::Bulk if signs.jobs > 0 => (signs.jobs.to_string(), "that go on", false),
            Tab::Brokers if signs.silent > 0 => (signs.silent.to_string(), "that do not answer", true),
            _ => return None,
        };
        Some(Self { count, of, is_bad })
    }
}

/// A page, as it is sent.
pub(super) fn page(template: &impl Template) -> Result<Response, Problem> {
    let text = template.render().map_err(|error| {
        tracing::error!(%error, "a page could not be written");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be written")
    })?;
    Ok(Html(text).into_response())
}

/// To another page, which is asked for as a page that was not changed by it.
pub(super) fn go_to(path: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(path) = HeaderValue::from_str(path) {
        response.headers_mut().insert(LOCATION, path);
    }
    response
}

#[derive(Debug, Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    frame: Frame,
    title: String,
    detail: String,
}

/// What the rest of the interface says as JSON, said to a person.
pub(super) async fn answer(State(app): State<Shared>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) || is_html(response.headers()) {
        return response;
    }
    let visitor = response.extensions().get::<Visitor>().cloned();
    let (parts, body) = response.into_parts();
    let problem = to_bytes(body, 64 << 10).await.unwrap_or_default();
    let problem: serde_json::Value = serde_json::from_slice(&problem).unwrap_or_default();
    let detail = problem["detail"]
        .as_str()
        .unwrap_or("the server did not answer in time");
    let shown = page(&ProblemPage {
        frame: Frame::new(&app, Tab::Other, visitor),
        title: status.canonical_reason().unwrap_or("Error").to_owned(),
        detail: detail.to_owned(),
    });
    match shown {
        Ok(mut response) => {
            *response.status_mut() = status;
            for (name, value) in parts.headers.iter().filter(|(name, _)| **name == "retry-after") {
                response.headers_mut().insert(name.clone(), value.clone());
            }
            response
        }
        Err(problem) => problem.into_response(),
    }
}

fn is_html(headers: &HeaderMap) -> bool {
    let type_of = headers.get(CONTENT_TYPE);
    type_of.is_some_and(|type_of| type_of.as_bytes().starts_with(b"text/html"))
}

/// Tells browsers what a page may do and who may see it, whatever it says.
pub(super) async fn guard(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let mut say = |name: &'static str, value: &'static str| {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    };
    say("content-security-policy", POLICY);
    say("x-content-type-options", "nosniff");
    // With `no-referrer` a browser would not say of a form either where it comes from.
    say("referrer-policy", "same-origin");
    say("x-frame-options", "DENY");
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}
