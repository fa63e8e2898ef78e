//! A shim between a client and a server that changes what they announce at the handshake, and nothing afterwards.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tollfree_layout::handshake::Hello;
use zerocopy::IntoBytes;

use crate::door::Door;

/// Edits a message on its way; by its kind one sees whose it is.
type Edit = dyn Fn(&mut Hello) + Send + Sync;

/// Passes everything on between clients that connect to it and a server, descriptors included.
#[derive(Debug)]
pub struct Shim {
    front: PathBuf,
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Hello>>>,
}

impl Shim {
    /// Listens at `front` for clients of the server at `back`.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn start(
        front: &Path,
        back: &Path,
        edit: impl Fn(&mut Hello) + Send + Sync + 'static,
    ) -> io::Result<Shim> {
        let listener = UnixListener::bind(front)?;
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (edit, back): (Arc<Edit>, _) = (Arc::new(edit), back.to_owned());
        let (stopped, log) = (stop.clone(), seen.clone());
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (edit, back, log) = (edit.clone(), back.clone(), log.clone());
                // Whatever goes wrong shows as a hang-up at both ends.
                std::thread::spawn(move || drop(pass(client, &back, &*edit, &log)));
            }
        });
        Ok(Shim { front: front.to_owned(), stop, seen })
    }

    /// The messages that have passed, as they were sent on.
    pub fn seen(&self) -> Vec<Hello> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = UnixStream::connect(&self.front);
        let _ = std::fs::remove_file(&self.front);
    }
}

fn pass(client: UnixStream, back: &Path, edit: &Edit, log: &Mutex<Vec<Hello>>) -> io::Result<()> {
    let (client, server) = (Door::over(client)?, Door::knock(back)?);
    for (from, to) in [(&client, &server), (&server, &client)] {
        let Some((mut hello, fds)) = from.recv_hello()? else { break };
        edit(&mut hello);
        log.lock().unwrap_or_else(PoisonError::into_inner).push(hello);
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        to.send(hello.as_bytes(), &fds)?;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| forward(&client, &server));
        forward(&server, &client);
    });
    Ok(())
}

/// Doorbells and payload areas, until one side hangs up.
fn forward(from: &Door, to: &Door) {
    if from.socket.set_read_timeout(None).is_ok() {
        while let Ok((bytes, fds)) = from.recv() {
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            if bytes.is_empty() || to.send(&bytes, &fds).is_err() {
                break;
            }
        }
    }
    from.shutdown(Shutdown::Both);
    to.shutdown(Shutdown::Both);
}
