//! Where the repository is.

use std::path::{Path, PathBuf};

/// Of the package whose tests these are: the library's is the root, and the others are beside each other in it.
const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// The folder with `scripts` and `tests/support` in it.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(PACKAGE);
    let folders = [Some(package), package.parent()];
    let root = folders
        .into_iter()
        .flatten()
        .find(|folder| folder.join("tests/support").is_dir());
    root.expect("the root of the repository, around this package")
        .to_owned()
}
