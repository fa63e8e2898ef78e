//! Directories: a private one for sockets, gone when the run ends however it ends, and one for results.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::BenchError;

/// Writes the files of a result into a directory, which is made if need be.
///
/// # Errors
/// [`BenchError::Write`].
pub fn write_files(dir: &Path, files: &[(&str, String)]) -> Result<(), BenchError> {
    std::fs::create_dir_all(dir).map_err(|source| BenchError::Write { path: dir.to_owned(), source })?;
    for (name, text) in files {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|source| BenchError::Write { path, source })?;
    }
    Ok(())
}

/// A directory that only this user may enter, removed when dropped.
#[derive(Debug)]
pub struct Workdir {
    dir: TempDir,
}

impl Workdir {
    /// Makes one where the system keeps temporary files.
    ///
    /// # Errors
    /// [`BenchError::System`] when that place cannot be written.
    pub fn create() -> Result<Self, BenchError> {
        let dir = tempfile::Builder::new()
            .prefix("tollfree-")
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir()
            .map_err(BenchError::system("cannot make a temporary directory for the sockets"))?;
        Ok(Self { dir })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Workdir {
    fn drop(&mut self) {
        // A process that was killed a moment ago may still make a file that it has begun to make.
        for _ in 0..100 {
            match std::fs::remove_dir_all(self.path()) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_private_and_goes_with_all_that_is_in_it() {
        let dir = Workdir::create().unwrap();
        let path = dir.path().to_owned();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(dir.join("socket"), "").unwrap();
        drop(dir);
        assert!(!path.exists());
    }
}
