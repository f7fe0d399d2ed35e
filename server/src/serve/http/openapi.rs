//! The interface, described for machines.

use axum::Json;
use utoipa::OpenApi as _;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{OpenApi, RefOr, Required, Schema, Server};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Delayline", description = "Tasks that are due later, and can be moved, cancelled and run at once."),
    security((), ("token" = []))
)]
struct Described;

fn operations(described: &mut OpenApi) -> impl Iterator<Item = &mut Operation> {
    described.paths.paths.values_mut().flat_map(|path| {
        let path = [&mut path.get, &mut path.put, &mut path.post, &mut path.delete];
        path.into_iter().flatten()
    })
}

/// A parameter is there or not, but never null, as a field of a body may be.
fn without_null(described: &mut OpenApi) {
    let operations = operations(described);
    for parameter in operations.flat_map(|operation| operation.parameters.iter_mut().flatten()) {
        if let RefOr::T(parameter) = parameter {
            parameter.schema = parameter.schema.take().map(never_null);
        }
    }
}

/// The schemas of bodies in which nothing has to be said.
const OPTIONAL: [&str; 4] = ["Nothing", "Pause", "Plain", "Retry"];

/// A body in which nothing has to be said may be left out.
fn with_optional_bodies(described: &mut OpenApi) {
    let bodies = operations(described).filter_map(|operation| operation.request_body.as_mut());
    for body in bodies {
        let RefOr::T(body) = body else { continue };
        let is_optional = body.content.values().any(|content| {
            let RefOr::T(content) = content else { return false };
            let Some(RefOr::Ref(schema)) = &content.schema else {
                return false;
            };
            let name = schema.ref_location.rsplit('/').next();
            name.is_some_and(|name| OPTIONAL.contains(&name))
        });
        if is_optional {
            body.required = Some(Required::False);
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

/// The description of what the interface is, without its operations.
pub(super) fn described() -> OpenApi {
    let mut described = Described::openapi();
    let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let components = described.components.get_or_insert_default();
    components.add_security_scheme("token", scheme);
    described
}

/// `GET /openapi.json`
pub(super) fn json(mut described: OpenApi, base_path: &str) -> Json<OpenApi> {
    without_null(&mut described);
    with_optional_bodies(&mut described);
    if !base_path.is_empty() {
        described.servers = Some(vec![Server::new(base_path)]);
    }
    Json(described)
}
