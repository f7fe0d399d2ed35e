//! Whether the file that was opened is still in its place.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The path of a file, and which file was there when it was opened.
///
/// A process that has a file open can go on with it when its name leads nowhere any more, or to another file. What it
/// writes then is gone when the last one closes it, however well it was written to the disk.
#[derive(Debug)]
pub(super) struct Presence {
    path: PathBuf,
    opened: OnceLock<Identity>,
}

/// By what a file system tells its files apart: the device and the number of the file.
type Identity = (u64, u64);

/// The file is not there any more.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} was {} after it was opened, and what is written to it would be lost: put it back; or start the process anew, which \
     then uses the file that is there, or makes one",
    .path.display(),
    if *.replaced { "replaced by another file" } else { "deleted, or moved away," }
)]
struct Gone {
    path: PathBuf,
    replaced: bool,
}

impl Presence {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            // Where a relative one leads may change.
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            opened: OnceLock::new(),
        }
    }

    /// Remembers the file that is there.
    pub(super) fn remember(&self) {
        if let Ok(Some(found)) = identity(&self.path) {
            self.opened.get_or_init(|| found);
        }
    }

    /// Fails if it is not there any more. The names of files are in memory: this waits for no disk.
    pub(super) fn check(&self) -> Result<(), sqlx::Error> {
        let Some(opened) = self.opened.get() else {
            return Ok(());
        };
        let replaced = match identity(&self.path) {
            Ok(Some(found)) if found == *opened => return Ok(()),
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error.into()),
        };
        let path = self.path.clone();
        Err(io::Error::other(Gone { path, replaced }).into())
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> io::Result<Option<Identity>> {
    use std::os::unix::fs::MetadataExt;

    let found = std::fs::metadata(path)?;
    Ok(Some((found.dev(), found.ino())))
}

/// Other systems do not let a file that is open be deleted.
#[cfg(not(unix))]
fn identity(_: &Path) -> io::Result<Option<Identity>> {
    Ok(None)
}
