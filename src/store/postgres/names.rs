//! The names of the tables.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// The table of the tasks and its schema, from which every other name is made.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// None: the first of the search path.
    schema: Option<String>,
    name: String,
}

impl Names {
    /// `name` is checked; `schema` is one that the caller has checked, or that the database has told.
    pub(super) fn new(schema: Option<String>, name: String) -> Self {
        Self { schema, name }
    }

    /// A statement, or several, with its placeholders filled in.
    pub(super) fn fill(&self, template: &str) -> SqlStr {
        AssertSqlSafe(Arc::<str>::from(self.text(template))).into_sql_str()
    }

    /// As [`fill`](Self::fill), to be read.
    pub(super) fn text(&self, template: &str) -> String {
        let of = |ending: &str| quoted(&format!("{}{ending}", self.name));
        template
            .replace("{tasks}", &self.with_schema(""))
            .replace("{migrations}", &self.with_schema("_migrations"))
            .replace("{wake}", &of("_wake"))
            .replace("{due}", &of("_due"))
            .replace("{live}", &of("_live"))
            .replace("{key}", &of("_key"))
    }

    /// The table as statements name it.
    pub(super) fn full_name(&self) -> String {
        self.with_schema("")
    }

    fn with_schema(&self, ending: &str) -> String {
        let table = quoted(&format!("{}{ending}", self.name));
        match &self.schema {
            Some(schema) => format!("{}.{table}", quoted(schema)),
            None => table,
        }
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
