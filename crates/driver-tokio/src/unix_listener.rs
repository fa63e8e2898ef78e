//! Unix listeners for what is no session: HTTP/2 at `unix:` addresses, a gateway's control socket.

use std::path::Path;

use tollfree_os::tokio_net::UnixListener;
use tollfree_rendezvous::{BindError, Rendezvous, SocketFile, SocketMode};

/// Binds a path and listens there, taking the place of a server that died. What stands there and is no socket is left alone. The file goes when
/// [`SocketFile`] is dropped. Must be called in a tokio runtime with IO.
///
/// Another server that starts or ends at the path holds a lock, which is waited for, 2 s at most: not on a thread of the runtime's.
///
/// # Errors
/// [`BindError`] names the address as `unix:PATH`.
pub async fn bind_unix(
    path: &Path,
    mode: SocketMode,
) -> Result<(UnixListener, Option<SocketFile>), BindError> {
    let io = |source| BindError::Io { address: format!("unix:{}", path.display()), source };
    let owned = path.to_owned();
    let bound = tokio::task::spawn_blocking(move || Rendezvous::bind_unix(&owned, mode)).await;
    // Only where the runtime ends, and this with it, there is no outcome.
    let (listener, file) = bound.map_err(|failed| io(std::io::Error::other(failed)))??.into_parts();
    Ok((UnixListener::from_std(listener).map_err(io)?, file))
}
