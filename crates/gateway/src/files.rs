//! What a config needs and does not hold: files, names, a directory. All of it can be looked at without that anything is bound.

use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::config::{Config, Stream, Tls, TlsVersion};
use crate::egress::EgressFiles;
use crate::policy;
use crate::tables;
use crate::tls::{Certificates, Protocol, expiry_of};

/// A certificate that is good for no longer is warned of.
const SOON: Duration = Duration::from_secs(14 * 86_400);

/// Something that a config names and that is of no use, or will not be for long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}{key}: {problem}")]
#[non_exhaustive]
pub struct Finding {
    /// File and line, a variable, or a flag; ends in ": " where there is one.
    pub place: String,
    /// The key.
    pub key: String,
    /// What is wrong, and what to do.
    pub problem: String,
    /// A gateway does not start with it, or does not serve. Else it is a warning.
    pub is_error: bool,
}

/// What was found so far.
struct Findings<'c> {
    config: &'c Config,
    all: Vec<Finding>,
}

impl Findings<'_> {
    fn add(&mut self, key: String, problem: String, is_error: bool) {
        let place = self.config.place_of(&key);
        self.all.push(Finding { place, key, problem, is_error });
    }

    fn error(&mut self, key: impl Into<String>, problem: impl std::fmt::Display) {
        self.add(key.into(), problem.to_string(), true);
    }

    fn warning(&mut self, key: impl Into<String>, problem: impl std::fmt::Display) {
        self.add(key.into(), problem.to_string(), false);
    }

    fn tls(&mut self, key: &str, files: &Tls, protocol: Protocol) {
        match Certificates::check(files, protocol) {
            Err(error) => self.error(key, error),
            Ok(()) => {
                self.expiry(&format!("{key}.certificate"), &files.certificate);
                for (nth, more) in files.more.iter().enumerate() {
                    self.expiry(&format!("{key}.more.{nth}.certificate"), &more.certificate);
                }
            }
        }
    }

    fn expiry(&mut self, key: &str, file: &Path) {
        let Some(end) = expiry_of(file) else { return };
        let file = file.display();
        match end.duration_since(SystemTime::now()) {
            Err(_) => self.error(key, format!("{file}: the certificate has expired: renew it")),
            Ok(left) if left < SOON => {
                let days = left.as_secs() / 86_400;
                self.warning(key, format!("{file}: the certificate expires in {days} days: renew it"));
            }
            Ok(_) => {}
        }
    }

    /// An address that is to be bound.
    fn own_address(&mut self, key: &str, address: &str) {
        if let Err(error) = address.to_socket_addrs() {
            self.error(key, format!("\"{address}\" can't be resolved: {error}"));
        }
    }

    /// The directory that a socket is to be in.
    fn directory(&mut self, key: &str, socket: &str) {
        let Some(directory) = Path::new(socket).parent() else { return };
        if !directory.is_dir() {
            // It may be made when the gateway starts.
            let directory = directory.display();
            self.warning(
                key,
                format!("the directory {directory} is not there: make it, or have systemd do so"),
            );
        }
    }
}

impl Config {
    /// Looks at all that the config names, as a gateway would at its start: files, names of hosts, directories of sockets. Nothing is bound, so an
    /// address that another process has is not found. Blocks the thread, for as long as files and the resolver take.
    ///
    /// What is of no use, or soon will not be. An empty list: a gateway can start.
    pub fn check_surroundings(&self) -> Vec<Finding> {
        let mut findings = Findings { config: self, all: Vec::new() };
        for (name, listener) in &self.listeners {
            let key = format!("listeners.{name}.address");
            match listener.address.split_once(':') {
                Some(("unix", path)) => findings.directory(&key, path),
                Some(("systemd", _)) => {}
                _ => findings.own_address(&key, &listener.address),
            }
            if let Some(files) = &listener.tls {
                findings.tls(&format!("listeners.{name}.tls"), files, Protocol::Http2);
            }
        }
        if let Some(path) = self.backends.socket.strip_prefix("shm://").filter(|path| path.starts_with('/')) {
            findings.directory("backends.socket", path);
        }
        if let Some(stream) = &self.backends.stream {
            findings.own_address("backends.stream.address", &stream.address);
            findings.tls("backends.stream", &stream.files(), Protocol::Device);
        }
        let pages = [("metrics.address", &self.metrics.address), ("probes.address", &self.probes.address)];
        for (key, address) in pages.into_iter().filter_map(|(key, address)| Some((key, address.as_ref()?))) {
            findings.own_address(key, address);
        }
        for error in tables::check(self) {
            findings.error(
                format!("groups.{}.descriptors", error.group),
                format!("{}: {}", error.file.display(), error.problem),
            );
        }
        if let Err(error) = policy::check(self) {
            findings.error(error.key, error.problem);
        }
        if let Err((key, problem)) = EgressFiles::read(&self.egress) {
            findings.error(key, problem);
        }
        for (name, target) in &self.egress.targets {
            let key = format!("egress.targets.{name}");
            if let Some(certificate) = &target.certificate {
                findings.expiry(&format!("{key}.certificate"), certificate);
            }
            for address in &target.addresses {
                if let Err(error) = address.to_socket_addrs() {
                    // It may be known later, and is looked up again.
                    findings.warning(
                        format!("{key}.addresses"),
                        format!("\"{address}\" can't be resolved: {error}"),
                    );
                }
            }
        }
        findings.all
    }
}

impl Stream {
    /// Its certificates, as a listener has them.
    pub(crate) fn files(&self) -> Tls {
        Tls {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            client_ca: Some(self.client_ca.clone()),
            crls: Vec::new(),
            min_version: TlsVersion::Tls13,
            ocsp: None,
            more: Vec::new(),
        }
    }
}
