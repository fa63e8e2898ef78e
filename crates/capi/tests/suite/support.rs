//! The library installed once for all tests, and C programs built against it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(120);

/// Settings with which a program ends at what it does wrong in memory, or leaks.
pub(crate) const SANITIZERS: [&str; 3] =
    ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two directories above").to_owned()
}

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Runs a command to its end; what it prints. A program that hangs is ended, which fails.
pub(crate) fn run(program: impl AsRef<Path>, arguments: &[&str]) -> String {
    done(Command::new("timeout").arg("300").arg(program.as_ref()).args(arguments))
}

/// Where the library is installed, as `make install-c` does it.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        // Cargo puts the archive beside the tests.
        let tests = std::env::current_exe().expect("this test");
        let archive = tests.with_file_name("libtollfree_capi.a");
        let prefix =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("installed-{}", std::process::id()));
        let install = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/install");
        run(install, &[&archive.to_string_lossy(), &prefix.to_string_lossy()]);
        prefix
    })
}

/// A directory of a test's own.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        Place(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn address(&self) -> String {
        format!("shm://{}/s.sock", self.path().display())
    }

    /// Compiles a program with the settings that pkg-config gives, and others.
    pub(crate) fn compile(&self, source: &str, others: &[&str]) -> PathBuf {
        let libraries = pkg_config(&["--cflags", "--libs"]);
        let path = format!("-Wl,-rpath,{}", prefix().join("lib").display());
        let libraries: Vec<&str> = libraries.split_whitespace().chain([path.as_str()]).collect();
        self.compiled(source, others, &libraries)
    }

    /// Compiles a program that needs no shared library of ours.
    pub(crate) fn compile_with_archive(&self, source: &str) -> PathBuf {
        let settings = pkg_config(&["--cflags", "--libs", "--static"]);
        let archive = prefix().join("lib/libtollfree.a").to_string_lossy().into_owned();
        let libraries = settings.split_whitespace().map(|word| match word {
            "-ltollfree" => archive.as_str(),
            word => word,
        });
        self.compiled(source, &[], &libraries.collect::<Vec<_>>())
    }

    fn compiled(&self, source: &str, settings: &[&str], libraries: &[&str]) -> PathBuf {
        let program = self.path().join(Path::new(source).file_stem().expect("a name"));
        done(
            Command::new("cc")
                .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
                .args(settings)
                .arg("-o")
                .arg(&program)
                .arg(root().join(source))
                .args(libraries),
        );
        program
    }
}

fn pkg_config(arguments: &[&str]) -> String {
    let path = prefix().join("lib/pkgconfig");
    done(Command::new("pkg-config").env("PKG_CONFIG_PATH", path).args(arguments).arg("tollfree"))
}

/// A program that says "listening" and serves until its input ends.
pub(crate) struct Serving {
    child: Child,
    input: Option<ChildStdin>,
}

impl Serving {
    pub(crate) fn start(program: &Path, address: &str) -> Serving {
        let mut child = Command::new(program)
            .arg(address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program:?}: {error}"));
        let mut line = String::new();
        let output = child.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line, "listening\n");
        Serving { input: child.stdin.take(), child }
    }

    pub(crate) fn input(&mut self) -> &mut ChildStdin {
        self.input.as_mut().expect("it was not ended")
    }

    /// Ends its input: it ends by itself, and well.
    pub(crate) fn end(mut self) {
        self.input = None;
        let until = Instant::now() + LONG;
        let status = loop {
            match self.child.try_wait().expect("a child") {
                Some(status) => break status,
                None if Instant::now() > until => panic!("the server does not end"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let mut rest = String::new();
        if let Some(mut output) = self.child.stderr.take() {
            let _ = output.read_to_string(&mut rest);
        }
        assert!(status.success(), "{status}: {rest}");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
