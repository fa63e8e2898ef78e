//! Sides whose ends are processes of a program in another language, which this process starts. It runs where this one is pinned.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{go, python};
use crate::latency::Latencies;
use crate::order::{Load, Measured, Serve, Serving};

/// A language whose program is both ends of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Go,
    Python,
}

impl Program {
    /// Why its sides can't run, if they can't.
    pub(crate) fn absent(self) -> Option<&'static str> {
        match self {
            Program::Go => go::absent(),
            Program::Python => python::absent(),
        }
    }

    fn path(self) -> Result<PathBuf, String> {
        match self {
            Program::Go => go::known_program(),
            Program::Python => python::known_program(),
        }
    }

    /// Has it serve a part of its own until the process ends.
    pub(crate) fn serve(
        self,
        part: &str,
        side: &str,
        dir: &Path,
        arguments: &[(&str, String)],
        ready: impl FnOnce(Serving),
    ) -> Result<(), String> {
        serve_by(&self.path()?, part, side, dir, arguments, ready)
    }

    /// Has it call and measure, and takes its answer.
    pub(crate) fn measure<A: DeserializeOwned>(
        self,
        part: &str,
        side: &str,
        arguments: &[(&str, String)],
    ) -> Result<A, String> {
        measure_by(&self.path()?, part, side, arguments)
    }
}

/// Ends with the pipe that this process holds.
struct Peer {
    child: Child,
    /// Kept beside it: a child that is waited for loses its own.
    _pipe: Option<ChildStdin>,
}

impl Peer {
    fn start(program: &Path, part: &str, side: &str, arguments: &[(&str, String)]) -> Result<Peer, String> {
        let mut command = Command::new(program);
        command.args([part, "-side", side]);
        for (name, value) in arguments {
            command.args([name, value.as_str()]);
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        Ok(Peer { _pipe: child.stdin.take(), child })
    }

    /// What it says, up to the end of the line.
    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let output = self.child.stdout.as_mut().ok_or("its output is gone")?;
        let read = BufReader::new(output).read_line(&mut line);
        match read.map_err(|error| format!("its answer: {error}"))? {
            0 => Err(format!("it ended without an answer: {}", self.ended()?)),
            _ => Ok(line),
        }
    }

    fn ended(&mut self) -> Result<std::process::ExitStatus, String> {
        self.child.wait().map_err(|error| format!("its end: {error}"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A time as the program takes it.
pub(crate) fn ns(time: Duration) -> String {
    format!("{}ns", time.as_nanos())
}

/// Has a program serve until the process ends.
pub(super) fn serve(program: &Path, order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let size = ("-size", order.case.size.to_string());
    serve_by(program, "serve", order.case.side.name(), &order.dir, &[size], ready)
}

/// Has a program serve a part of its own until the process ends.
pub(super) fn serve_by(
    program: &Path,
    part: &str,
    side: &str,
    dir: &Path,
    arguments: &[(&str, String)],
    ready: impl FnOnce(Serving),
) -> Result<(), String> {
    let mut all = vec![("-dir", dir.display().to_string())];
    all.extend_from_slice(arguments);
    let mut peer = Peer::start(program, part, side, &all)?;
    ready(Serving { address: peer.line()?.trim_end().to_owned() });
    Err(format!("the server ended: {}", peer.ended()?))
}

/// What the program has measured.
#[derive(Deserialize)]
struct Answer {
    elapsed_ns: u64,
    latencies: Latencies,
}

/// Has a program call and measure.
pub(super) fn measure_load(program: &Path, load: &Load) -> Result<Measured, String> {
    let arguments = [
        ("-size", load.case.size.to_string()),
        ("-address", load.address.clone()),
        ("-inflight", load.case.inflight.to_string()),
        ("-warm-up", ns(load.warm_up)),
        ("-measure", ns(load.measure)),
        ("-calls", load.calls.unwrap_or(0).to_string()),
    ];
    let Answer { elapsed_ns, latencies } = measure_by(program, "call", load.case.side.name(), &arguments)?;
    Ok(Measured { latencies, elapsed_ns, used: None })
}

/// Has a program do a part of its own, and takes its answer.
pub(super) fn measure_by<A: DeserializeOwned>(
    program: &Path,
    part: &str,
    side: &str,
    arguments: &[(&str, String)],
) -> Result<A, String> {
    let line = Peer::start(program, part, side, arguments)?.line()?;
    serde_json::from_str(&line).map_err(|error| format!("its answer makes no sense: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    use crate::plan::{Case, RuntimeKind, Side};

    /// A program that answers as those do, and says what it was told.
    const STAND_IN: &str = r#"#!/bin/sh
echo "$@" > "$(dirname "$0")/$1"
case $1 in
serve) echo shm:///there; timeout 0.3 cat > /dev/null; [ $? = 124 ] && touch "$(dirname "$0")/stayed" ;;
call) echo '{"elapsed_ns":2000,"latencies":[[3,2],[9,1]]}' ;;
esac
"#;

    fn stand_in(script: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("peer");
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        (dir, program)
    }

    fn case() -> Case {
        Case::probe(Side::GoInline, 64, 3, RuntimeKind::Current)
    }

    #[test]
    fn the_program_is_told_the_case_and_its_answer_is_taken() {
        let (dir, program) = stand_in(STAND_IN);
        let mut address = None;
        let ended = serve_by(&program, "serve", "go-inline", dir.path(), &[], |serving| {
            address = Some(serving.address);
        });
        assert_eq!(address.as_deref(), Some("shm:///there"));
        assert!(ended.unwrap_err().contains("the server ended"));
        assert!(dir.path().join("stayed").exists(), "its input stays open while it serves");
        let load = Load::new(case(), "shm:///there".into(), Duration::ZERO, Duration::from_millis(5));
        let measured = measure_load(&program, &load).unwrap();
        assert_eq!((measured.elapsed_ns, measured.latencies.count()), (2000, 3));
        let told = std::fs::read_to_string(dir.path().join("call")).unwrap();
        for words in
            ["-side go-inline", "-size 64", "-address shm:///there", "-inflight 3", "-measure 5000000ns"]
        {
            assert!(told.contains(words), "{told} lacks {words}");
        }
    }

    #[test]
    fn a_program_that_says_nothing_or_nonsense_is_an_error() {
        let load = Load::new(case(), String::new(), Duration::ZERO, Duration::ZERO);
        for (script, words) in
            [("#!/bin/sh\nexit 3\n", "without an answer"), ("#!/bin/sh\necho x\n", "no sense")]
        {
            let (_dir, program) = stand_in(script);
            let error = measure_load(&program, &load).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
