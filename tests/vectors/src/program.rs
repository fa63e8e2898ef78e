//! An implementation's program: lines to it, lines from it, each within a time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Longest answer, in bytes: far more than any right one.
const LONGEST: u64 = 16 << 20;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Silence {
    /// Not within the time.
    Late,
    /// The program has ended, or closed its output.
    Ended(String),
}

/// A program that runs. It is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    to: Sender<String>,
    from: Receiver<io::Result<String>>,
}

impl Program {
    pub(crate) fn start(command: &[String]) -> io::Result<Program> {
        let (program, arguments) =
            command.split_first().ok_or_else(|| io::Error::other("there is no program to start"))?;
        let mut child =
            Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (mut stdin, stdout) = stdin.zip(stdout).ok_or_else(|| io::Error::other("it has no pipes"))?;
        // Threads of their own, since a program may stop reading as well as writing. Both end with their pipe.
        let (to, lines) = channel::<String>();
        std::thread::spawn(move || {
            for line in lines {
                if stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).is_err() {
                    break;
                }
            }
        });
        let (answers, from) = channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            loop {
                let mut line = Vec::new();
                let read = (&mut stdout).take(LONGEST).read_until(b'\n', &mut line);
                let answer = match read {
                    Ok(0) => break,
                    Ok(_) if line.last() != Some(&b'\n') => {
                        Err(io::Error::other("its answer breaks off, or is longer than 16 MiB"))
                    }
                    Ok(_) => String::from_utf8(line).map_err(|_| io::Error::other("its answer is not UTF-8")),
                    Err(error) => Err(error),
                };
                let last = answer.is_err();
                if answers.send(answer).is_err() || last {
                    break;
                }
            }
        });
        Ok(Program { child, to, from })
    }

    /// Sends a line, which ends in a newline, and waits for one.
    pub(crate) fn ask(&mut self, line: String, time: Duration) -> Result<String, Silence> {
        // A program that has ended is noticed by its answer, which never comes.
        drop(self.to.send(line));
        match self.from.recv_timeout(time) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Silence::Ended(error.to_string())),
            Err(RecvTimeoutError::Timeout) => Err(Silence::Late),
            Err(RecvTimeoutError::Disconnected) => Err(Silence::Ended(self.end())),
        }
    }

    /// How it ended. One that has only closed its output is given a moment.
    fn end(&mut self) -> String {
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(Some(status)) => return format!("it ended: {status}"),
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => return error.to_string(),
            }
        }
        "it closed its standard output".to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
