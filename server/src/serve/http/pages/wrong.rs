//! What is wrong with a form.

use super::super::problem::Problem;

/// What is wrong with what was filled in, and in which field; nothing, where nothing is.
#[derive(Debug, Default)]
pub(super) struct Wrong(Option<(&'static str, String)>);

impl Wrong {
    pub(super) fn at(field: &'static str, problem: &Problem) -> Self {
        Self(Some((field, problem.detail().to_owned())))
    }

    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Returns what is wrong in a field.
    pub(super) fn of(&self, field: &str) -> Option<&str> {
        let (at, text) = self.0.as_ref()?;
        (*at == field).then_some(text)
    }
}
