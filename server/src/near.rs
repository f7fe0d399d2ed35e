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

/// Says on standard error which kinds may be meant by those that are named, where there are no tasks of one, and some of
/// another whose name is nearly the same.
pub(crate) async fn note_near(client: &Client, named: &[&str]) {
    if named.is_empty() {
        return;
    }
    // Where the kinds cannot be asked for, what is to be said has been said.
    let kinds = client.kinds(MOST).await.unwrap_or_default();
    // One that is there only as a pause has no tasks.
    let names: Vec<_> = kinds
        .iter()
        .filter(|known| !known.states.is_empty())
        .map(|known| known.kind.as_str())
        .collect();
    for kind in named.iter().filter(|kind| !names.contains(kind)) {
        if let Some(nearest) = nearest(kind, names.iter().copied()) {
            let (kind, nearest) = (one_line(kind), one_line(nearest));
            crate::note(&format!(
                "there are no tasks of kind {kind:?}; there are of {nearest:?}"
            ));
        }
    }
}
