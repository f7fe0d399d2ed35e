//! What texts have to look like, for the description of the interface.

use utoipa::openapi::schema::{ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::reason::Reason;
use crate::span::Span;
use crate::time::Time;

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// Without control characters and bidirectional overrides.
fn name(least: usize, most: usize) -> ObjectBuilder {
    let text = text().min_length(Some(least)).max_length(Some(most));
    text.pattern(Some(
        r"^[^\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]*$",
    ))
}

fn of_format(format: &str) -> ObjectBuilder {
    text().format(Some(SchemaFormat::Custom(format.to_owned())))
}

/// One number with its unit, or several, or 0.
macro_rules! span {
    ($before:literal) => {
        concat!(
            "^",
            $before,
            "(0|[0-9]{1,12}(ms|s|m|h|d)( ?[0-9]{1,12}(ms|s|m|h|d))*)$"
        )
    };
}

/// Names in the description of what is a plain text in a request: nothing is made of these types.
macro_rules! names {
    ($($name:ident)*) => {
        $(pub(crate) struct $name;)*
    };
}

names!(Kind Key Owner SignedSpan RequestName TaskId ClaimId Version);

/// Describes types by the schemas that are built for them, under their names.
macro_rules! describe {
    ($($name:ident = $schema:expr, $description:literal;)*) => {
        $(
            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    $schema.description(Some($description)).into()
                }
            }

            impl ToSchema for $name {}
        )*
    };
}

describe! {
    Kind = name(1, 100), "1 to 100 bytes without control characters and bidirectional overrides.";
    Key = name(1, 255), "1 to 255 bytes without control characters and bidirectional overrides.";
    Owner = name(0, 255), "Up to 255 bytes without control characters and bidirectional overrides.";
    Span = text().max_length(Some(100)).pattern(Some(span!(""))).examples(["15m"]),
        "Whole numbers with a unit `ms`, `s`, `m`, `h` or `d`, such as `250ms`, `15m` or `1h 30m`, up to `3660000d`.";
    SignedSpan = text().max_length(Some(101)).pattern(Some(span!("[+-]"))).examples(["+10m"]),
        "A time span with its sign, such as `+10m` or `-2h`.";
    RequestName = text().min_length(Some(1)).max_length(Some(255)).pattern(Some("^[ -~]*$")), "1 to 255 characters of ASCII.";
    Time = of_format("date-time"), "In RFC 3339.";
    Reason = text().max_length(Some(500)), "Why, for the history of the task: up to 500 characters.";
    TaskId = of_format("uuid"), "A UUID.";
    ClaimId = text().pattern(Some(
        "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\.(0|[1-9][0-9]{0,17})$"
    )), "`<id>.<version>`, as it was given.";
    Version = text().pattern(Some(r#"^(\*|"[0-9]{1,18}")$"#)), "The `ETag` of a task, or `*`.";
}
