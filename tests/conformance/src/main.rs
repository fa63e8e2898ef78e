//! The program that protobuf's conformance runner tests.
//!
//! The runner starts it, writes requests to its standard input and reads answers from its standard output, each
//! after a length of four bytes, little endian. A request holds a message and a form in which it is to come back.
//! Here it is decoded by the table into a flat message and encoded from that object, in binary or JSON. Requests and answers
//! take the same way; with the feature `generated`, the message under test goes through views and builders that are generated of the
//! suite's own messages (`build.rs`). No protobuf library is linked: `tests/testee.rs` holds the build to that.
//!
//! ```text
//! tollfree-conformance <descriptor set>
//! ```
//!
//! The descriptor set holds the test messages and `conformance.proto`, with their imports.
#![forbid(unsafe_code)]

mod answer;
#[cfg(not(feature = "generated"))]
mod dynamic;
#[cfg(feature = "generated")]
mod generated;
mod testee;

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::process::ExitCode;

use testee::Testee;

/// Longest request, in bytes; the runner's longest are a few MiB.
const LONGEST: u32 = 256 << 20;

fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("tollfree-conformance: give the path of the descriptor set with the test messages");
        return ExitCode::from(2);
    };
    let served = std::fs::read(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
        .and_then(|set| Testee::new(&set).map_err(|error| error.to_string()))
        .and_then(|mut testee| serve(&mut testee).map_err(|error| format!("the runner's pipe: {error}")));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            eprintln!("tollfree-conformance: {words}");
            ExitCode::FAILURE
        }
    }
}

/// Answers requests until the runner closes its end.
fn serve(testee: &mut Testee) -> io::Result<()> {
    let mut from = BufReader::new(io::stdin().lock());
    let mut to = BufWriter::new(io::stdout().lock());
    let mut request = Vec::new();
    while let Some(len) = read_len(&mut from)? {
        request.clear();
        let got = (&mut from).take(len.into()).read_to_end(&mut request)?;
        if got < len as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let answer = testee.answer(&request).into_bytes();
        let answer_len = u32::try_from(answer.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        to.write_all(&answer_len.to_le_bytes())?;
        to.write_all(&answer)?;
        to.flush()?;
    }
    Ok(())
}

/// The next request's length; none at the end of the input.
fn read_len(from: &mut impl Read) -> io::Result<Option<u32>> {
    let mut bytes = [0; 4];
    let first = from.read(&mut bytes[..1])?;
    if first == 0 {
        return Ok(None);
    }
    from.read_exact(&mut bytes[1..])?;
    let len = u32::from_le_bytes(bytes);
    if len > LONGEST {
        let words = format!("a request of {len} bytes, more than {LONGEST}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
    }
    Ok(Some(len))
}
