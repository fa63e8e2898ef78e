//! C++ protobuf's rows: one program for each kept schema, built by `make bench-peers`, asked over a pipe.
//!
//! The program reads lines on its standard input and answers each with one: `load <type> <length>` and the
//! message's bytes gives `ok`; `run <operation> <count>` gives the nanoseconds that took. Anything else it
//! answers is what went wrong, in words.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use tollfree_bench::schemas;

use super::measure::{Batch, Runner};
use super::payload::Payload;

/// Row and what the program calls it.
const ROWS: [(&str, &str, &str); 3] = [
    ("decode", "C++ protobuf, arena", "decode-arena"),
    ("decode", "C++ protobuf, reused", "decode-reused"),
    ("encode", "C++ protobuf", "encode"),
];

struct Program {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Drop for Program {
    fn drop(&mut self) {
        // It ends by itself when its input does; a program that hangs must not keep this one.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    fn ask(&mut self, line: &str, rest: &[u8]) -> Result<String, String> {
        let broken = |error: std::io::Error| format!("the C++ program does not answer: {error}");
        self.to.write_all(line.as_bytes()).and_then(|()| self.to.write_all(rest)).map_err(broken)?;
        self.to.flush().map_err(broken)?;
        let mut answer = String::new();
        match self.from.read_line(&mut answer).map_err(broken)? {
            0 => Err("the C++ program has ended".to_owned()),
            _ => Ok(answer.trim_end().to_owned()),
        }
    }

    fn run(&mut self, operation: &str, count: u32) -> Result<Duration, String> {
        let answer = self.ask(&format!("run {operation} {count}\n"), &[])?;
        answer.parse().map(Duration::from_nanos).map_err(|_| answer)
    }
}

pub(super) fn rows<'p>(dir: &Path, payload: &Payload) -> Vec<Runner<'p>> {
    let program = start(dir, payload).map(|program| Rc::new(RefCell::new(program)));
    ROWS.into_iter()
        .map(|(operation, side, order)| match &program {
            Ok(program) => {
                let program = Rc::clone(program);
                let batch: Batch<'p> = Box::new(move |count| program.borrow_mut().run(order, count));
                Runner { operation, side, batch: Ok(batch) }
            }
            Err(why) => Runner::not_run(operation, side, why.clone()),
        })
        .collect()
}

fn start(dir: &Path, payload: &Payload) -> Result<Program, String> {
    if !schemas::kept(&payload.schema).is_ok_and(|kept| kept == payload.descriptor_set) {
        return Err(format!("no types were generated for this schema {}", payload.schema));
    }
    let path = dir.join(format!("codec-{}", payload.schema));
    if !path.is_file() {
        return Err(format!("{} is not there, `make bench-peers` builds it", path.display()));
    }
    let started = Command::new(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = started.map_err(|error| format!("cannot start {}: {error}", path.display()))?;
    let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("the C++ program has no pipes".to_owned());
    };
    let mut program = Program { child, to, from: BufReader::new(from) };
    let order = format!("load {} {}\n", payload.type_name, payload.bytes.len());
    match program.ask(&order, &payload.bytes)?.as_str() {
        "ok" => Ok(program),
        why => Err(why.to_owned()),
    }
}
