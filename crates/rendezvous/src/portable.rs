//! Unix listeners of HTTP/2 on systems other than Linux, by what the standard library has there. Windows has none.
//!
//! A dead server's socket is found by connecting to it, and replaced. There is no lock: of two servers that start at the same moment
//! and find a dead server's socket, the later one may take the path from the earlier one.

use std::io;
use std::path::Path;

use tollfree_os::unix::fs::{FileTypeExt, MetadataExt};
use tollfree_os::unix::net::{UnixListener, UnixStream};

use crate::bind::BindError;
use crate::offered_socket::FileId;
use crate::socket_file::{SocketFile, SocketMode};

/// Binds a path and listens there, in the place of a server that died. `address` is how people know it. The listener doesn't block.
pub(crate) fn listen_at(
    address: &str,
    path: &Path,
    mode: SocketMode,
) -> Result<(UnixListener, SocketFile), BindError> {
    let io = |source| BindError::Io { address: address.to_owned(), source };
    if let SocketMode::Exact(_) = mode {
        // Between binding and setting the bits anybody could connect.
        let text = "a socket file gets its permissions on Linux only: restrict its directory, or the process's umask";
        return Err(io(io::Error::new(io::ErrorKind::Unsupported, text)));
    }
    clear_stale(address, path)?;
    let listener = UnixListener::bind(path).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse(address.to_owned()),
        _ => io(error),
    })?;
    listener.set_nonblocking(true).map_err(io)?;
    let made = std::fs::symlink_metadata(path).map_err(io)?;
    Ok((listener, SocketFile::new(path, FileId { device: made.dev(), inode: made.ino() })))
}

/// Removes a socket file that nobody listens on; anything else stays and is an error.
fn clear_stale(address: &str, path: &Path) -> Result<(), BindError> {
    let io = |source| BindError::Io { address: address.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => return Err(BindError::NotASocket { address: address.to_owned(), path: path.into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(address, "replacing the socket that a dead server left behind");
            std::fs::remove_file(path).map_err(io)
        }
        _ => Err(BindError::InUse(address.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_servers_socket_is_replaced_and_all_else_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let bind = |mode| listen_at("unix:s.sock", &path, mode);
        drop(UnixListener::bind(&path).unwrap());
        let (listener, file) = bind(SocketMode::Umask).unwrap();
        assert!(matches!(bind(SocketMode::Umask), Err(BindError::InUse(_))));
        drop((listener, file));
        assert!(!path.exists(), "a server that ends takes its socket away");
        std::fs::write(&path, "no socket").unwrap();
        assert!(matches!(bind(SocketMode::Umask), Err(BindError::NotASocket { .. })));
        let error = bind(SocketMode::Exact(0o600)).unwrap_err().to_string();
        assert!(error.contains("umask"), "{error}");
    }
}
