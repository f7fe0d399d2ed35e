//! The interface, described for machines.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{OpenApi, RefOr, Required, Schema, Server};
use utoipa::{Modify, OpenApi as _};

use super::{Shared, bulk, claims, events, forecast, kinds, schedule, stats, task, time, verbs};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Delayline", description = "Tasks that are due later, and can be moved, cancelled and run at once."),
    paths(
        schedule::put,
        schedule::post,
        task::by_key,
        task::by_id,
        task::list,
        verbs::cancel,
        verbs::run,
        verbs::redrive,
        verbs::dismiss,
        verbs::reschedule,
        verbs::shift,
        bulk::cancel,
        bulk::run,
        bulk::redrive,
        bulk::dismiss,
        bulk::reschedule,
        bulk::shift,
        bulk::list,
        bulk::show,
        bulk::stop,
        kinds::list,
        kinds::pause,
        kinds::resume,
        forecast::show,
        stats::show,
        time::show,
        time::advance,
        events::listen,
        claims::take,
        claims::all_done,
        claims::done,
        claims::retry,
        claims::snooze,
        claims::discard,
        claims::extend,
    ),
    security((), ("token" = [])),
    modifiers(&Tokens, &Parameters, &Bodies)
)]
struct Described;

struct Tokens;

impl Modify for Tokens {
    fn modify(&self, described: &mut OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        let components = described.components.get_or_insert_default();
        components.add_security_scheme("token", scheme);
    }
}

/// A parameter is there or not, but never null, as a field of a body may be.
struct Parameters;

fn operations(described: &mut OpenApi) -> impl Iterator<Item = &mut Operation> {
    described.paths.paths.values_mut().flat_map(|path| {
        let path = [&mut path.get, &mut path.put, &mut path.post, &mut path.delete];
        path.into_iter().flatten()
    })
}

impl Modify for Parameters {
    fn modify(&self, described: &mut OpenApi) {
        let operations = operations(described);
        for parameter in operations.flat_map(|operation| operation.parameters.iter_mut().flatten()) {
            if let RefOr::T(parameter) = parameter {
                parameter.schema = parameter.schema.take().map(never_null);
            }
        }
    }
}

/// A body in which nothing has to be said may be left out.
struct Bodies;

impl Bodies {
    /// The schemas of such bodies.
    const OPTIONAL: [&str; 4] = ["Nothing", "Pause", "Plain", "Retry"];
}

impl Modify for Bodies {
    fn modify(&self, described: &mut OpenApi) {
        let bodies = operations(described).filter_map(|operation| operation.request_body.as_mut());
        for body in bodies {
            let RefOr::T(body) = body else { continue };
            let is_optional = body.content.values().any(|content| {
                let RefOr::T(content) = content else { return false };
                let Some(RefOr::Ref(schema)) = &content.schema else {
                    return false;
                };
                let name = schema.ref_location.rsplit('/').next();
                name.is_some_and(|name| Self::OPTIONAL.contains(&name))
            });
            if is_optional {
                body.required = Some(Required::False);
            }
        }
    }
}

fn never_null(schema: RefOr<Schema>) -> RefOr<Schema> {
    match schema {
        RefOr::T(Schema::Object(mut object)) => {
            if let SchemaType::Array(types) = &mut object.schema_type {
                types.retain(|one| *one != Type::Null);
            }
            RefOr::T(Schema::Object(object))
        }
        RefOr::T(Schema::OneOf(mut either)) => {
            either.items.retain(|one| !is_null(one));
            match either.items.len() {
                1 => either.items.remove(0),
                _ => RefOr::T(Schema::OneOf(either)),
            }
        }
        other => other,
    }
}

fn is_null(schema: &RefOr<Schema>) -> bool {
    matches!(schema, RefOr::T(Schema::Object(object)) if object.schema_type == SchemaType::Type(Type::Null))
}

/// `GET /openapi.json`
pub(super) async fn describe(State(app): State<Shared>) -> Response {
    let mut described = Described::openapi();
    if !app.base_path.is_empty() {
        described.servers = Some(vec![Server::new(&app.base_path)]);
    }
    Json(described).into_response()
}
