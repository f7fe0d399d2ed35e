//! A small disk, which can be filled.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A file system of its own in memory, mounted where a folder is; gone when this is dropped. Only root can have one.
#[derive(Debug)]
pub(super) struct Space {
    folder: PathBuf,
}

impl Space {
    /// Mounts one over an empty folder. None if this user may not.
    pub(super) fn mount(folder: &TempDir, size: &str) -> Option<Self> {
        let folder = folder.path().to_owned();
        let owner = fs::metadata(&folder).expect("a folder").uid();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={size},mode=0700,uid={owner}"))
            .arg("tmpfs")
            .arg(&folder)
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { folder }),
            failed => {
                tell!("no disk will be full: only root can mount a small one ({failed:?})");
                None
            }
        }
    }

    /// Fills it.
    pub(super) fn fill(&self) {
        let mut file = fs::File::create(self.filler()).expect("a file");
        for size in [1 << 20, 1 << 12] {
            let chunk = vec![1; size];
            loop {
                match file.write_all(&chunk) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => panic!("a full disk: {error}"),
                }
            }
        }
    }

    /// Frees it.
    pub(super) fn free(&self) {
        fs::remove_file(self.filler()).expect("what filled it");
    }

    fn filler(&self) -> PathBuf {
        Path::new(&self.folder).join("filler")
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // What still has a file there keeps it until it ends.
        drop(Command::new("umount").arg("--lazy").arg(&self.folder).status());
    }
}
