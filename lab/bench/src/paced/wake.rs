//! Two bare rings and a thread that sleeps at each end: what being woken there and back costs, without any RPC.
//!
//! The rings are the floor's. Who has sent writes a byte to a socket, which is what the other sleeps on.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use crate::load::body_of;
use crate::order::Serving;
use crate::plan::Case;
use crate::side::floor::Ends;

/// One end, and what it sleeps on.
struct End {
    ends: Ends,
    socket: UnixStream,
    number: u64,
    body: Vec<u8>,
}

impl End {
    fn new(socket: UnixStream, case: Case) -> Result<End, String> {
        let ends = Ends::exchange(&socket, case)?;
        Ok(End { ends, socket, number: 0, body: body_of(case.size) })
    }

    fn send(&mut self) -> Result<(), String> {
        self.ends.send(self.number, &self.body);
        self.socket.write_all(b"w").map_err(|error| format!("cannot wake the other end: {error}"))
    }

    fn receive(&mut self) -> Result<(), String> {
        self.socket.read_exact(&mut [0]).map_err(|error| format!("the other end has gone: {error}"))?;
        self.ends.receive(self.number, &mut self.body);
        Ok(())
    }
}

/// Echoes until the process ends.
pub(super) fn serve(case: Case, dir: &Path, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let path = dir.join("wake.sock");
    let trouble = |error| format!("cannot accept on {}: {error}", path.display());
    let listener = UnixListener::bind(&path).map_err(trouble)?;
    ready(Serving { address: path.display().to_string() });
    let (socket, _) = listener.accept().map_err(trouble)?;
    let mut end = End::new(socket, case)?;
    loop {
        end.number += 1;
        end.receive()?;
        end.send()?;
    }
}

/// The end that begins.
pub(super) struct Caller(End);

impl Caller {
    pub(super) fn connect(path: &Path, case: Case) -> Result<Caller, String> {
        let socket = UnixStream::connect(path)
            .map_err(|error| format!("cannot connect to {}: {error}", path.display()))?;
        Ok(Caller(End::new(socket, case)?))
    }

    pub(super) fn call(&mut self) -> Result<(), String> {
        self.0.number += 1;
        self.0.send()?;
        self.0.receive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Message, Placement, RuntimeKind, Side};

    #[test]
    fn what_is_sent_comes_back() {
        let (placement, runtime) = (Placement::Unpinned, RuntimeKind::Current);
        let case = Case {
            side: Side::Floor,
            message: Message::Probe,
            size: 64,
            metadata: 0,
            inflight: 1,
            placement,
            runtime,
        };
        let dir = tempfile::tempdir().unwrap();
        let (say, hear) = std::sync::mpsc::channel();
        let path = dir.path().to_owned();
        let serving = std::thread::spawn(move || serve(case, &path, |serving| say.send(serving).unwrap()));
        let address = hear.recv().unwrap().address;
        let mut caller = Caller::connect(Path::new(&address), case).unwrap();
        for _ in 0..20 {
            caller.0.body.fill(7);
            caller.call().unwrap();
            assert_eq!(caller.0.body, [7; 64]);
        }
        drop(caller);
        assert!(serving.join().unwrap().unwrap_err().contains("has gone"));
    }
}
