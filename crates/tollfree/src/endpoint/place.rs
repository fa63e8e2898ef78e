//! Where the other end of a session is: on this host, or a gateway of another one.

use std::fmt;

use tollfree_driver_tokio::{Address, AddressError};
#[cfg(feature = "tls")]
use tollfree_driver_tokio::{Certificates, StreamAddress, StreamAddressError};

/// What a process shows and trusts at a gateway of another host, where it was told.
#[cfg(feature = "tls")]
pub(crate) type Files = Option<Certificates>;
/// Without the feature `tls` there is nothing to tell.
#[cfg(not(feature = "tls"))]
pub(crate) type Files = Option<std::convert::Infallible>;

/// An address of a session.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Of this host.
    Memory(Address),
    /// Of a gateway, by TCP with TLS.
    #[cfg(feature = "tls")]
    Stream(StreamAddress, Certificates),
}

/// Why an address can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Misplaced {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[cfg(feature = "tls")]
    #[error(transparent)]
    Stream(#[from] StreamAddressError),
    #[cfg(feature = "tls")]
    #[error("a gateway of another host wants to see a certificate: say which by certificates()")]
    NoCertificate,
    #[cfg(feature = "tls")]
    #[error("\"{0}\" can't be used: {1}")]
    NeedsLinux(String, tollfree_os::NeedsLinux),
}

impl Place {
    /// # Errors
    /// [`Misplaced`].
    pub(crate) fn of(
        uri: &str,
        #[cfg_attr(not(feature = "tls"), expect(unused_variables))] files: &Files,
    ) -> Result<Place, Misplaced> {
        #[cfg(feature = "tls")]
        if is_device(uri) {
            needs_linux(uri)?;
            let files = files.clone().ok_or(Misplaced::NoCertificate)?;
            return Ok(Place::Stream(uri.parse()?, files));
        }
        Ok(Place::Memory(uri.parse()?))
    }

    /// Whether a text is an address of a session at all.
    ///
    /// # Errors
    /// [`Misplaced`].
    pub(crate) fn check(uri: &str) -> Result<(), Misplaced> {
        #[cfg(feature = "tls")]
        if is_device(uri) {
            needs_linux(uri)?;
            return Ok(uri.parse::<StreamAddress>().map(drop)?);
        }
        Ok(uri.parse::<Address>().map(drop)?)
    }

    /// Whether the two ends share no memory.
    pub(crate) fn is_stream(&self) -> bool {
        !matches!(self, Place::Memory(_))
    }
}

/// As [`Address`] does for memory of this host.
#[cfg(feature = "tls")]
fn needs_linux(uri: &str) -> Result<(), Misplaced> {
    tollfree_os::shared_memory().map_err(|why| Misplaced::NeedsLinux(uri.into(), why))
}

/// Whether a text is meant as the address of a gateway of another host.
#[cfg(feature = "tls")]
pub(crate) fn is_device(uri: &str) -> bool {
    StreamAddress::is_meant(uri)
}

/// Without the feature `tls` no such gateway can be met.
#[cfg(not(feature = "tls"))]
pub(crate) fn is_device(_: &str) -> bool {
    false
}

/// Whether a text may be a gateway's address.
pub(crate) fn is_gateway_address(uri: &str) -> bool {
    uri.starts_with("shm") || is_device(uri)
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Memory(address) => address.fmt(f),
            #[cfg(feature = "tls")]
            Place::Stream(address, _) => address.fmt(f),
        }
    }
}
