//! What is given by a file.

use std::io;
use std::path::Path;

/// Reads a file; `-` stands for standard input.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    match path.as_os_str() == "-" {
        true => io::read_to_string(io::stdin()),
        false => std::fs::read_to_string(path),
    }
}
