//! Finds the repository.

use std::path::{Path, PathBuf};

/// The package of these tests: the library's is the root, and the others are folders in it.
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
