//! A socket file that somebody else named, looked up beneath directories of one's own choice.
//!
//! # Trust
//! The name comes from a server that is not known yet. The kernel resolves it (`openat2`), beneath the directory, without
//! following any symbolic link and without leaving by `..`; what was found is held by a descriptor, and connecting goes by
//! that descriptor. Nothing can be put in its place between the look and the connection.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tollfree_os::fd::{AsRawFd, OwnedFd};
use tollfree_os::rustix;
use tollfree_os::rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use tollfree_os::rustix::io::Errno;

use crate::address::Address;

/// Which file a socket is. A live server's can't be another's: the kernel keeps the file for as long as the socket exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// The device of its file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.inode)
    }
}

impl FromStr for FileId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<FileId, Self::Err> {
        let (device, inode) = text.split_once(':').unwrap_or((text, ""));
        Ok(FileId { device: device.parse()?, inode: inode.parse()? })
    }
}

/// Why a socket that was named can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BeneathError {
    /// It lies in none of the directories.
    #[error("{path} does not lie in {directories}")]
    Outside {
        /// As named.
        path: PathBuf,
        /// The directories, for people.
        directories: String,
    },
    /// On the way there is a symbolic link, or `..` that leads out.
    #[error("{path} leads out of {directory}, or over a symbolic link")]
    Link {
        /// As named.
        path: PathBuf,
        /// Where it was looked up.
        directory: PathBuf,
    },
    /// Something else than a socket.
    #[error("{path} is not a socket")]
    NotASocket {
        /// As named.
        path: PathBuf,
    },
    /// Another socket than was meant.
    #[error("the socket at {path} is another one than was meant: another server has taken the place")]
    Another {
        /// As named.
        path: PathBuf,
    },
    /// The kernel knows no `openat2` (before Linux 5.6), a filter forbids it, or there is no `/proc`.
    #[error(
        "{path} can't be looked up safely: openat2 and /proc are needed, and one of them is not there ({source})"
    )]
    Unsupported {
        /// As named.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Anything else.
    #[error("{path} can't be looked up: {source}")]
    Io {
        /// As named.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A socket file that was found beneath a directory. It stays the same file for as long as this lives.
#[derive(Debug)]
pub struct OfferedSocket {
    file: OwnedFd,
    address: Address,
}

impl OfferedSocket {
    /// Looks a socket up that lies in one of the directories, at any depth, and is the file that was meant.
    ///
    /// # Errors
    /// [`BeneathError`], which names the path.
    pub fn find(directories: &[PathBuf], path: &Path, id: FileId) -> Result<OfferedSocket, BeneathError> {
        let (directory, rest) = place(directories, path)?;
        let io = |error: Errno| match error {
            Errno::LOOP | Errno::XDEV => {
                BeneathError::Link { path: path.into(), directory: directory.clone() }
            }
            Errno::NOSYS | Errno::PERM => {
                BeneathError::Unsupported { path: path.into(), source: error.into() }
            }
            error => BeneathError::Io { path: path.into(), source: error.into() },
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let beneath = rustix::fs::open(&directory, flags | OFlags::DIRECTORY, Mode::empty()).map_err(io)?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let file = rustix::fs::openat2(&beneath, &rest, flags, Mode::empty(), resolve).map_err(io)?;
        let found = rustix::fs::fstat(&file).map_err(io)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
            return Err(BeneathError::NotASocket { path: path.into() });
        }
        if (FileId { device: found.st_dev, inode: found.st_ino }) != id {
            return Err(BeneathError::Another { path: path.into() });
        }
        let beneath = OfferedSocket { file, address: Address::Path(path.into()) };
        match std::fs::symlink_metadata(beneath.socket_path()) {
            Ok(_) => Ok(beneath),
            Err(source) => Err(BeneathError::Unsupported { path: path.into(), source }),
        }
    }

    /// As it was named, for people.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What to hand to the socket calls: it leads to this file and to no other.
    pub fn socket_path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}

/// The directory that a path lies in, and the rest of the path. A directory may be given by a name that leads over links.
fn place(directories: &[PathBuf], path: &Path) -> Result<(PathBuf, PathBuf), BeneathError> {
    for directory in directories {
        for name in [Some(directory.clone()), directory.canonicalize().ok()].into_iter().flatten() {
            if let Ok(rest) = path.strip_prefix(&name) {
                return Ok((name, rest.into()));
            }
        }
    }
    let names: Vec<_> = directories.iter().map(|directory| directory.display().to_string()).collect();
    Err(BeneathError::Outside { path: path.into(), directories: names.join(" or ") })
}

#[cfg(test)]
mod tests {
    use tollfree_os::unix::fs::{MetadataExt, symlink};
    use tollfree_os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn id(path: &Path) -> FileId {
        let found = std::fs::symlink_metadata(path).unwrap();
        FileId { device: found.dev(), inode: found.ino() }
    }

    /// A directory with another inside, and a socket in each.
    struct Place {
        _outer: tempfile::TempDir,
        inner: PathBuf,
        inside: PathBuf,
        outside: PathBuf,
        _listeners: [UnixListener; 2],
    }

    fn place() -> Place {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("inner");
        std::fs::create_dir_all(inner.join("deep")).unwrap();
        let (inside, outside) = (inner.join("deep/in.sock"), outer.path().join("out.sock"));
        let listeners = [&inside, &outside].map(|path| UnixListener::bind(path).unwrap());
        Place { _outer: outer, inner, inside, outside, _listeners: listeners }
    }

    #[test]
    fn what_lies_inside_is_found_and_stays_the_same() {
        let place = place();
        let linked = place.inner.with_file_name("linked");
        symlink(&place.inner, &linked).unwrap();
        for directory in [&place.inner, &linked] {
            let directories = ["/elsewhere".into(), directory.clone()];
            OfferedSocket::find(&directories, &place.inside, id(&place.inside)).unwrap();
        }
        let found = OfferedSocket::find(std::slice::from_ref(&place.inner), &place.inside, id(&place.inside))
            .unwrap();
        assert_eq!(found.address().to_string(), format!("shm://{}", place.inside.display()));
        std::fs::remove_file(&place.inside).unwrap();
        let _usurper = UnixListener::bind(&place.inside).unwrap();
        UnixStream::connect(found.socket_path()).unwrap();
        assert!(place._listeners[0].accept().is_ok(), "the one that was found");
    }

    #[test]
    fn nothing_leads_out() {
        let place = place();
        let deep = place.inner.join("deep");
        symlink(&place.outside, deep.join("link.sock")).unwrap();
        symlink(place.inner.parent().unwrap(), deep.join("up")).unwrap();
        let find = |path: &Path| {
            let directories = std::slice::from_ref(&place.inner);
            OfferedSocket::find(directories, path, id(&place.outside)).unwrap_err()
        };
        assert!(matches!(find(&place.outside), BeneathError::Outside { .. }));
        let beside = PathBuf::from(format!("{}-and-more/s.sock", place.inner.display()));
        assert!(matches!(find(&beside), BeneathError::Outside { .. }), "names that only begin alike");
        for path in ["../out.sock", "deep/../../out.sock", "deep/link.sock", "deep/up/out.sock"] {
            let error = find(&place.inner.join(path));
            assert!(matches!(error, BeneathError::Link { .. }), "{path}: {error}");
        }
    }

    #[test]
    fn only_the_socket_that_was_meant_will_do() {
        let place = place();
        let directories = std::slice::from_ref(&place.inner);
        let error = OfferedSocket::find(directories, &place.inside, id(&place.outside)).unwrap_err();
        assert!(matches!(error, BeneathError::Another { .. }), "{error}");
        let file = place.inner.join("file");
        std::fs::write(&file, "").unwrap();
        let error = OfferedSocket::find(directories, &file, id(&file)).unwrap_err();
        assert!(matches!(error, BeneathError::NotASocket { .. }), "{error}");
        let error = OfferedSocket::find(directories, &place.inner.join("none"), id(&file)).unwrap_err();
        assert!(matches!(error, BeneathError::Io { .. }), "{error}");
        assert_eq!("2049:77".parse(), Ok(FileId { device: 2049, inode: 77 }));
        for text in ["", ":", "1", "1:", ":1", "1:2:3", "-1:2", "a:b"] {
            assert!(text.parse::<FileId>().is_err(), "{text}");
        }
    }
}
