//! Which kind is meant, where a name is nearly right.

use crate::client::Client;
use crate::table::one_line;

/// How many kinds are compared.
const MOST: usize = 1_000;
/// How alike two names are at the least, as the parser of arguments has it.
const ALIKE: f64 = 0.7;

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
    let alike = |name: &&str| strsim::jaro(kind, name);
    let nearest = names.into_iter().max_by(|a, b| alike(a).total_cmp(&alike(b)))?;
    (alike(&nearest) > ALIKE).then(|| {
        let (kind, nearest) = (one_line(kind), one_line(nearest));
        format!("there are no tasks of kind {kind:?}; there are of {nearest:?}")
    })
}
