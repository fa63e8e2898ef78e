//! Tests that need a process of their own, though their package has one test binary.

use std::any::type_name;
use std::env;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};

/// Set in a process that was started for one test: the test's name. Or `all`, where a program can't start itself (an emulator) and
/// tests run one after the other instead.
const ALONE: &str = "TOLLFREE_TEST_ALONE";

/// Runs the test that says so, from its beginning, in a process of its own, and fails as it does there: for tests that count what
/// the process holds or measure what it uses, lower its limits, or fork it. It stands in the test itself.
#[macro_export]
macro_rules! alone {
    () => {
        if !$crate::is_alone(&|| ()) {
            return;
        }
    };
}

/// Whether the test has this process for itself. Where it has not, a process is started that runs nothing but this test, and
/// the test is over when it returns. `within` is a closure or future that the test itself has written: its type names the test.
///
/// # Panics
/// When the test fails there.
pub fn is_alone<T>(_within: &T) -> bool {
    let name = test_name(type_name::<T>());
    let alone = env::var(ALONE).unwrap_or_default();
    if alone == "all" {
        return true;
    }
    if alone == name {
        set_parent_process_death_signal(Some(Signal::KILL)).expect("the kernel knows this request");
        return true;
    }
    let program = env::current_exe().expect("a test knows its program");
    // A file, as a pipe would be open for as long as a child of the child lives. It is not open here while the child runs: other
    // tests of this process count its descriptors.
    let output = tempfile::NamedTempFile::new().expect("a file can be had").into_temp_path();
    let mut child = start(&program, name, &output);
    let status = child.wait().expect("it is this process's child");
    let bytes = std::fs::read(&output).expect("a file can be read");
    let said = String::from_utf8_lossy(&bytes);
    assert!(status.success(), "{name}, in a process of its own: {status}\n{said}");
    assert!(
        said.contains("1 passed"),
        "there is no test {name}: it must say itself that it is alone\n{said}"
    );
    print!("{said}");
    false
}

/// The program again, with nothing but one test to run, and all that it says in a file.
fn start(program: &Path, name: &str, output: &Path) -> Child {
    let said = || Stdio::from(OpenOptions::new().append(true).open(output).expect("a file can be opened"));
    let mut command = Command::new(program);
    command.args(["--exact", name, "--include-ignored", "--nocapture"]).env(ALONE, name);
    command.stdin(Stdio::null()).stdout(said()).stderr(said());
    command.spawn().expect("a process can be started")
}

/// The test's name in its binary, of the type of a closure or future that it has written.
fn test_name(type_name: &str) -> &str {
    let path = type_name.split("::{{closure}}").next().unwrap_or(type_name);
    path.split_once("::").map_or(path, |(_crate, path)| path)
}
