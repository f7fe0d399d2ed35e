//! Lets visitors in to pages, or has them sign in first.

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::super::Shared;
use super::super::problem::Problem;
use super::form::posted;
use super::frame::{Frame, Tab, go_to, page};
use super::sign_in;
use super::signs::Signs;
use super::visitor::{Visitor, session};
use crate::serve::config::Right;

/// Lets only visitors through that have the right, if one is needed, and forms only of this server's own pages.
pub(super) async fn enter(
    State((app, right)): State<(Shared, Option<Right>)>,
    request: Request,
    next: Next,
) -> Response {
    let mut visitor = match Visitor::of(&app, request.headers()) {
        Ok(Some(visitor)) => visitor,
        Ok(None) => return unknown(&app, &request),
        Err(problem) => return problem.into_response(),
    };
    if let Err(problem) = right.map_or(Ok(()), |right| visitor.caller.need(right)) {
        return with(problem.into_response(), visitor);
    }
    if request.method() == Method::GET && !wants_events(&request) {
        visitor.signs = Signs::of(&app, &visitor.caller).await;
    }
    let session = session(request.headers()).filter(|_| !app.access.is_open());
    let session = session.unwrap_or_default().to_owned();
    let mut request = match posted(&app, &session, request).await {
        Ok(request) => request,
        Err(problem) => return with(problem.into_response(), visitor),
    };
    request.extensions_mut().insert(visitor.clone());
    request.extensions_mut().insert(visitor.caller.clone());
    with(next.run(request).await, visitor)
}

/// Adds the visitor to an answer, for a page that says what was wrong.
fn with(mut response: Response, visitor: Visitor) -> Response {
    response.extensions_mut().insert(visitor);
    response
}

fn wants_events(request: &Request) -> bool {
    let accepts = request.headers().get("accept").map(|accept| accept.as_bytes());
    accepts.is_some_and(|accept| accept.starts_with(b"text/event-stream"))
}

/// Sends a visitor that has to sign in to do so, if a page was asked for.
fn unknown(app: &Shared, request: &Request) -> Response {
    if request.method() != Method::GET || wants_events(request) {
        let detail = "the session has ended: sign in again";
        return Problem::new(StatusCode::UNAUTHORIZED, detail).into_response();
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let path = format!("{}{path}", app.base_path);
    let site = request.headers().get("sec-fetch-site");
    if site.is_some_and(|site| site == "cross-site") {
        let again = page(&AgainPage {
            frame: Frame::new(app, Tab::Other, None),
            path,
        });
        return again.unwrap_or_else(|problem| problem.into_response());
    }
    go_to(&sign_in::path(app, &path))
}

/// The answer to a link that was followed from elsewhere, with which a browser does not send the session: it asks once
/// more, and then from here.
#[derive(Debug, Template)]
#[template(path = "again.html")]
struct AgainPage {
    frame: Frame,
    path: String,
}
