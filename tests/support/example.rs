//! Where the examples are.

use std::path::{Path, PathBuf};

/// Cargo builds the examples beside the tests, in the folder next to theirs.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let built = test.parent().and_then(Path::parent).expect("in a folder in one");
    let example = built.join(format!("examples/{name}{}", std::env::consts::EXE_SUFFIX));
    assert!(
        example.exists(),
        "build it first, with the features of this test: cargo build --example {name}"
    );
    example
}
