//! What is meant, where a name is nearly right.

use crate::client::Client;
use crate::table::one_line;

/// How many kinds are compared.
const MOST: usize = 1_000;
/// How alike two names are at the least, as the parser of arguments has it.
const ALIKE: f64 = 0.7;

/// Which of some names is meant by one that is nearly the same.
pub(crate) fn nearest<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let names = names.into_iter().map(|known| (strsim::jaro(name, known), known));
    let (alike, nearest) = names.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (alike > ALIKE).then_some(nearest)
}

/// What to say of a kind of which there are no tasks, if there are tasks of one whose name is nearly the same.
pub(crate) async fn near(client: &Client, kind: &str) -> Option<String> {
    // Where the kinds cannot be asked for, what is to be said has been said.
    let kinds = client.kinds(MOST).await.ok()?;
    // One that is there only as a pause has no tasks.
    let names: Vec<_> = kinds
        .iter()
        .filter(|known| !known.states.is_empty())
        .map(|known| known.kind.as_str())
        .collect();
    if names.contains(&kind) {
        return None;
    }
    let nearest = one_line(nearest(kind, names)?);
    let kind = one_line(kind);
    Some(format!(
        "there are no tasks of kind {kind:?}; there are of {nearest:?}"
    ))
}
