//! Runs the built command in a directory of its own and sees what it leaves behind.

use std::path::Path;
use std::process::{Command, Stdio};

/// A directory that is both the working directory and the place for temporary files.
pub(crate) struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("tmp")).unwrap();
        Self { dir }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Names in the place for temporary files.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let entries = self.dir.path().join("tmp").read_dir().unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// The command, ready for its arguments.
pub(crate) fn lab(scratch: &Scratch) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollfree-lab"));
    command.current_dir(scratch.path()).env("TMPDIR", scratch.path().join("tmp")).stdin(Stdio::null());
    command
}
