//! The files that a config names, looked at before a gateway is started with it.

use crate::config::{Config, Stream, Tls};
use crate::tls::{Certificates, Protocol};
use crate::{BackendsError, ListenError, StartError, tables};

impl Config {
    /// Reads the files by which the gateway is known, and descriptor sets, as a gateway would at its start. Nothing is bound. Files of
    /// `egress` are read when a target is called, and are not looked at.
    ///
    /// # Errors
    /// [`StartError`] names the key of the first that is of no use.
    pub fn check_files(&self) -> Result<(), StartError> {
        for (name, listener) in &self.listeners {
            let Some(files) = &listener.tls else { continue };
            Certificates::check(files, Protocol::Http2)
                .map_err(|source| ListenError::Tls { listener: name.clone(), source })?;
        }
        if let Some(stream) = &self.backends.stream {
            Certificates::check(&stream.files(), Protocol::Device).map_err(BackendsError::Certificates)?;
        }
        tables::read(self)?;
        Ok(())
    }
}

impl Stream {
    /// Its certificates, as a listener has them.
    pub(crate) fn files(&self) -> Tls {
        Tls {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            client_ca: Some(self.client_ca.clone()),
        }
    }
}
