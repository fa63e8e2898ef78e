//! Where a server is met: `shm:///path/to.sock` or `shm-abstract:name`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tollfree_layout::errors;

/// Longest path of a Unix socket (`sun_path` less its terminator).
const PATH_LEN_MAX: usize = 107;

/// The rendezvous socket of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A socket file. A process that may open it may try to connect.
    Path(PathBuf),
    /// A name in Linux's abstract namespace: bound to a network namespace, with no file and no permissions.
    Abstract(String),
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Neither scheme.
    #[error("\"{0}\" is not an address of a session: write shm:///absolute/path.sock or shm-abstract:name")]
    Scheme(String),
    /// `shm://host/path`, or a relative path.
    #[error("\"{0}\" has no absolute path: write three slashes, as in shm:///run/app/greeter.sock")]
    NotAbsolute(String),
    /// Longer than a socket address can be.
    #[error("\"{0}\" is longer than the {PATH_LEN_MAX} bytes that a socket's path or name may have")]
    TooLong(String),
    /// Empty name, or a NUL in it.
    #[error("\"{0}\" names no socket")]
    Empty(String),
    /// The program was built for another system than Linux.
    #[error("\"{0}\" can't be used: {1}")]
    NeedsLinux(String, tollfree_os::NeedsLinux),
}

impl AddressError {
    /// Its number, as `spec/errors.md` has it.
    pub fn number(&self) -> u16 {
        match self {
            AddressError::Scheme(_) => errors::ADDRESS_SCHEME,
            AddressError::NotAbsolute(_) => errors::ADDRESS_NOT_ABSOLUTE,
            AddressError::TooLong(_) => errors::ADDRESS_TOO_LONG,
            AddressError::Empty(_) => errors::ADDRESS_EMPTY,
            AddressError::NeedsLinux(..) => errors::NEEDS_LINUX,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        if text.starts_with("shm") {
            tollfree_os::shared_memory().map_err(|why| AddressError::NeedsLinux(text.into(), why))?;
        }
        if let Some(name) = text.strip_prefix("shm-abstract:") {
            return match name {
                "" => Err(AddressError::Empty(text.into())),
                _ if name.contains('\0') => Err(AddressError::Empty(text.into())),
                _ if name.len() > PATH_LEN_MAX => Err(AddressError::TooLong(text.into())),
                _ => Ok(Address::Abstract(name.into())),
            };
        }
        let Some(path) = text.strip_prefix("shm://") else {
            return Err(AddressError::Scheme(text.into()));
        };
        if !path.starts_with('/') {
            return Err(AddressError::NotAbsolute(text.into()));
        }
        if path.ends_with('/') || path.contains('\0') {
            return Err(AddressError::Empty(text.into()));
        }
        if path.len() > PATH_LEN_MAX {
            return Err(AddressError::TooLong(text.into()));
        }
        Ok(Address::Path(PathBuf::from(path)))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Path(path) => write!(f, "shm://{}", path.display()),
            Address::Abstract(name) => write!(f, "shm-abstract:{name}"),
        }
    }
}

impl Address {
    /// The path to hand to the socket calls; abstract names begin with NUL there.
    pub fn socket_path(&self) -> PathBuf {
        match self {
            Address::Path(path) => path.clone(),
            Address::Abstract(name) => Path::new(&format!("\0{name}")).to_path_buf(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_there_and_back() {
        for text in ["shm:///run/app/greeter.sock", "shm-abstract:greeter"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_says_how_to_write_one() {
        let long = format!("shm:///{}", "x".repeat(108));
        let cases = [
            ("http://localhost:1", "shm:///absolute/path.sock"),
            ("/run/x.sock", "shm:///absolute/path.sock"),
            ("shm://run/x.sock", "three slashes"),
            ("shm:///run/", "names no socket"),
            ("shm-abstract:", "names no socket"),
            (long.as_str(), "107 bytes"),
        ];
        for (text, hint) in cases {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
