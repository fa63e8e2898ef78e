//! Which certificate a client gets, by the name that it asks for.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Certificates by DNS name.
#[derive(Debug)]
pub(crate) struct ServerNames {
    /// In small letters; `*.` stands for one label.
    by_name: HashMap<String, Arc<CertifiedKey>>,
    /// For clients that ask for none of these.
    first: Arc<CertifiedKey>,
}

impl ServerNames {
    pub(crate) fn new(first: CertifiedKey) -> ServerNames {
        ServerNames { by_name: HashMap::new(), first: Arc::new(first) }
    }

    /// Adds a certificate for the names that it has.
    ///
    /// # Errors
    /// It has none, or another has one of them.
    pub(crate) fn add(&mut self, key: CertifiedKey) -> Result<(), String> {
        let names = key.cert.first().map_or_else(Vec::new, |der| dns_names(der));
        if names.is_empty() {
            return Err("has no DNS name that a client could ask for".into());
        }
        let key = Arc::new(key);
        for name in names {
            if self.by_name.insert(name.clone(), key.clone()).is_some() {
                return Err(format!("is for {name}, and so is another: leave one of them out"));
            }
        }
        Ok(())
    }

    fn of(&self, name: Option<&str>) -> &Arc<CertifiedKey> {
        let name = name.unwrap_or_default().to_ascii_lowercase();
        let parent = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let own = self.by_name.get(&name).or_else(|| self.by_name.get(&parent?));
        own.unwrap_or(&self.first)
    }
}

impl ResolvesServerCert for ServerNames {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.of(hello.server_name()).clone())
    }
}

fn dns_names(der: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Vec::new() };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let dns = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    dns.collect()
}
