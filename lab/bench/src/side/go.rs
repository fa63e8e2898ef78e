//! The sides in Go: each end is a process of its own program (`lab/bench/go`), which this process starts. It runs where this one is pinned.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use serde::Deserialize;

use crate::latency::Latencies;
use crate::order::{Load, Measured, Serve, Serving};
use crate::plan::Case;

/// Where the program is: `make bench-go` builds it, and says so to the bench.
const PROGRAM: &str = "TOLLFREE_BENCH_GO";

/// The program, if it is there.
pub(crate) fn program() -> Option<PathBuf> {
    std::env::var_os(PROGRAM).map(PathBuf::from).filter(|path| path.is_file())
}

/// Ends with the pipe that this process holds.
struct Peer {
    child: Child,
    /// Kept beside it: a child that is waited for loses its own.
    _pipe: Option<ChildStdin>,
}

impl Peer {
    fn start(program: &Path, part: &str, case: Case, arguments: &[(&str, String)]) -> Result<Peer, String> {
        let mut command = Command::new(program);
        command.args([part, "-side", case.side.name(), "-size", &case.size.to_string()]);
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

fn known_program() -> Result<PathBuf, String> {
    program().ok_or_else(|| format!("{PROGRAM} names no program"))
}

/// Serves until the process ends.
pub(super) fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
    serve_by(&known_program()?, order, ready)
}

fn serve_by(program: &Path, order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let dir = order.dir.display().to_string();
    let mut peer = Peer::start(program, "serve", order.case, &[("-dir", dir)])?;
    ready(Serving { address: peer.line()?.trim_end().to_owned() });
    Err(format!("the server ended: {}", peer.ended()?))
}

/// What the program has measured.
#[derive(Deserialize)]
struct Answer {
    elapsed_ns: u64,
    latencies: Latencies,
}

/// Calls and measures.
pub(super) fn measure(load: &Load) -> Result<Measured, String> {
    measure_by(&known_program()?, load)
}

fn measure_by(program: &Path, load: &Load) -> Result<Measured, String> {
    let ns = |time: std::time::Duration| format!("{}ns", time.as_nanos());
    let arguments = [
        ("-address", load.address.clone()),
        ("-inflight", load.case.inflight.to_string()),
        ("-warm-up", ns(load.warm_up)),
        ("-measure", ns(load.measure)),
        ("-calls", load.calls.unwrap_or(0).to_string()),
    ];
    let mut peer = Peer::start(program, "call", load.case, &arguments)?;
    let line = peer.line()?;
    let Answer { elapsed_ns, latencies } =
        serde_json::from_str(&line).map_err(|error| format!("its answer makes no sense: {error}"))?;
    Ok(Measured { latencies, elapsed_ns, used: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use crate::plan::{RuntimeKind, Side};

    /// A program that answers as the one in Go does, and says what it was told.
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
        let order = Serve { case: case(), dir: dir.path().to_owned() };
        let ended = serve_by(&program, &order, |serving| address = Some(serving.address));
        assert_eq!(address.as_deref(), Some("shm:///there"));
        assert!(ended.unwrap_err().contains("the server ended"));
        assert!(dir.path().join("stayed").exists(), "its input stays open while it serves");
        let load = Load::new(case(), "shm:///there".into(), Duration::ZERO, Duration::from_millis(5));
        let measured = measure_by(&program, &load).unwrap();
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
            let error = measure_by(&program, &load).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
