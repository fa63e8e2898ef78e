//! Paths at which a gateway makes sockets, and what stands there before and afterwards.

use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tollfree_gateway::{Config, Gateway};

use super::lab::PATIENCE;

/// What has a path in a config: the world's listener, the socket of backends, and the control socket beside that.
const NAMES: [&str; 3] = ["world.sock", "backends.sock", "backends.sock.control"];

fn config(directory: &Path) -> Config {
    let text = format!(
        "listeners.world.address = \"unix:{}\"\nbackends.socket = \"shm://{}\"\n",
        directory.join(NAMES[0]).display(),
        directory.join(NAMES[1]).display()
    );
    Config::from_toml(&text).unwrap()
}

#[tokio::test]
async fn what_is_no_socket_is_left_alone_and_named_at_every_path() {
    for name in NAMES {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        let refused = async || {
            let error = Gateway::bind(config(directory.path())).await.unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()) && error.contains("no socket"), "{error}");
            let key = if name == NAMES[0] { "listeners.world.address" } else { "backends.socket" };
            assert!(error.contains(key) || name == NAMES[1], "{error}");
        };
        std::fs::write(&path, "precious").unwrap();
        refused().await;
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        // Where the link leads, a dead server's socket stands, which by itself would be replaced.
        let stale = directory.path().join("stale.sock");
        drop(UnixListener::bind(&stale).unwrap());
        std::fs::remove_file(&path).unwrap();
        symlink(&stale, &path).unwrap();
        refused().await;
        assert!(stale.exists() && std::fs::symlink_metadata(&path).unwrap().is_symlink());
        // Sockets that were made before that one are gone again.
        let left = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, 2, "only the link and the stale socket");
    }
}

/// What dead gateways left is replaced. At its end a gateway removes its own sockets, and nothing that stands there by then.
#[tokio::test]
async fn an_ending_gateway_removes_its_own_sockets_only() {
    let directory = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = NAMES.iter().map(|name| directory.path().join(name)).collect();
    for path in &paths {
        drop(UnixListener::bind(path).unwrap());
    }
    for round in 0..2 {
        let gateway = Gateway::bind(config(directory.path())).await.unwrap();
        let mode = std::fs::metadata(&paths[2]).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "the control socket is its user's alone");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(gateway.run(async { drop(stopped.await) }));
        let mut successors = Vec::new();
        if round == 1 {
            for path in &paths {
                std::fs::remove_file(path).unwrap();
                successors.push(UnixListener::bind(path).unwrap());
            }
        }
        drop(stop);
        tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
        for path in &paths {
            let found = std::fs::symlink_metadata(path);
            match round {
                0 => assert!(found.is_err(), "{} is left behind", path.display()),
                _ => assert!(found.unwrap().file_type().is_socket(), "another's socket is gone"),
            }
        }
    }
}
