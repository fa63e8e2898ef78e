//! A gateway's end and a backend' end, over either engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tokio::runtime::Builder;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tollfree_driver_tokio::*;
use tollfree_layout::device::PROTOCOL;

use crate::echo::serve;

/// Within this time what has to happen has happened, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it happens in time")
}

/// Who signs certificates, in a directory of its own.
pub(crate) struct Authority {
    pub(crate) directory: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Authority { directory, issuer }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A certificate of this common name, for localhost. `is_expired`: since long.
    pub(crate) fn sign(&self, name: &str, is_expired: bool) -> Certificates {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        if is_expired {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = Certificates {
            ca: self.file("ca.pem"),
            certificate: self.file(&format!("{name}.pem")),
            key: self.file(&format!("{name}.key")),
        };
        std::fs::write(&files.certificate, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    fn server(&self) -> Arc<ServerConfig> {
        let files = self.sign("gateway", false);
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&files.ca).unwrap()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![CertificateDer::from_pem_file(&files.certificate).unwrap()],
                PrivateKeyDer::from_pem_file(&files.key).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Arc::new(config)
    }
}

/// Where a backend finds the door.
#[derive(Clone)]
enum Place {
    Memory(Address),
    Stream(StreamAddress, Certificates),
}

impl Place {
    async fn dial(&self, config: &Config) -> Result<Attachment, ConnectError> {
        match self {
            Place::Memory(address) => Attachment::attach(address, config, registration()).await,
            Place::Stream(address, files) => {
                Attachment::connect_over(address, files, config, Purpose::Attach(registration())).await
            }
        }
    }
}

/// A backend' thread.
pub(crate) struct Thread(PathBuf);

impl Thread {
    /// Times that it went to sleep.
    pub(crate) fn sleeps(&self) -> u64 {
        let status = std::fs::read_to_string(self.0.join("status")).unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    }
}

enum Engine {
    Memory { address: Address, listener: Listener, _directory: tempfile::TempDir },
    Stream { address: StreamAddress, listener: StreamListener, backends: Certificates },
}

/// A gateway's door over one engine.
pub(crate) struct Lab {
    engine: Engine,
    pub(crate) authority: Option<Authority>,
    /// Of the backends to come.
    pub(crate) config: Config,
}

/// The two ends of a session: the gateway calls, the backend serves.
pub(crate) struct Pair {
    pub(crate) gateway: Arc<Attachment>,
    pub(crate) backends: Arc<Attachment>,
}

fn gateway() -> Config {
    Config { accepts: Accepts::Backends, load: true, wait: WaitPolicy::Park, ..Config::default() }
}

pub(crate) fn registration() -> Registration {
    Registration::new("group", vec!["test.Echo".to_owned()]).unwrap()
}

impl Lab {
    pub(crate) fn memory() -> Lab {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("gateway.sock"));
        let listener = Listener::bind(&address, gateway()).unwrap();
        let engine = Engine::Memory { address, listener, _directory: directory };
        Lab { engine, authority: None, config: Config { load: true, ..Config::default() } }
    }

    pub(crate) async fn stream() -> Lab {
        Lab::stream_with(gateway()).await
    }

    /// A gateway that has its own ideas.
    pub(crate) async fn stream_with(config: Config) -> Lab {
        let authority = Authority::new();
        let server = authority.server();
        let policy = StreamPolicy {
            tls: Arc::new(move || server.clone()),
            subject: Arc::new(|_| Some("CN=backends".into())),
        };
        let config = Config { accepts: Accepts::Backends, load: true, ..config };
        let listener = StreamListener::bind("127.0.0.1:0", policy, config).await.unwrap();
        let address = format!("device+tls://localhost:{}", listener.address().port()).parse().unwrap();
        let backends = authority.sign("backends", false);
        let engine = Engine::Stream { address, listener, backends };
        Lab { engine, authority: Some(authority), config: Config { load: true, ..Config::default() } }
    }

    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.engine, Engine::Stream { .. })
    }

    /// Where the stream's listener is.
    pub(crate) fn port(&self) -> u16 {
        match &self.engine {
            Engine::Stream { listener, .. } => listener.address().port(),
            Engine::Memory { .. } => unreachable!("there is none"),
        }
    }

    pub(crate) fn backend_certificates(&self) -> Certificates {
        match &self.engine {
            Engine::Stream { backends, .. } => backends.clone(),
            Engine::Memory { .. } => unreachable!("there are none"),
        }
    }

    /// What a backend gets that attaches.
    pub(crate) async fn dial(&self) -> Result<Attachment, ConnectError> {
        self.place().dial(&self.config).await
    }

    fn place(&self) -> Place {
        match &self.engine {
            Engine::Memory { address, .. } => Place::Memory(address.clone()),
            Engine::Stream { address, backends, .. } => Place::Stream(address.clone(), backends.clone()),
        }
    }

    /// The gateway's end of a session with a backend that echoes in a thread, and a runtime, of its own.
    pub(crate) async fn apart(&mut self) -> (Arc<Attachment>, Thread) {
        let (place, config) = (self.place(), self.config.clone());
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            tell.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
            Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
                serve(&place.dial(&config).await.unwrap()).await;
            });
        });
        let gateway = Arc::new(self.accept().await);
        (gateway, Thread(PathBuf::from("/proc").join(told.recv().unwrap())))
    }

    /// The same, by another way or with other files.
    pub(crate) async fn dial_with(
        &self,
        port: u16,
        files: &Certificates,
    ) -> Result<Attachment, ConnectError> {
        self.dial_as(port, files, 0).await
    }

    /// The same as one of several backend connections.
    pub(crate) async fn dial_as(
        &self,
        port: u16,
        files: &Certificates,
        backend_connection: u32,
    ) -> Result<Attachment, ConnectError> {
        let address = format!("device+tls://localhost:{port}").parse().unwrap();
        let purpose = Purpose::Attach(Registration { backend_connection, ..registration() });
        Attachment::connect_over(&address, files, &self.config, purpose).await
    }

    /// The session of that backend connection; others that have come before it are let go.
    pub(crate) async fn accept_of(&mut self, backend_connection: u32) -> Attachment {
        loop {
            let attachment = self.accept().await;
            if matches!(attachment.purpose(), Purpose::Attach(registration) if registration.backend_connection == backend_connection)
            {
                return attachment;
            }
        }
    }

    pub(crate) async fn accept(&mut self) -> Attachment {
        in_time(async {
            match &mut self.engine {
                Engine::Memory { listener, .. } => listener.accept().await,
                Engine::Stream { listener, .. } => listener.accept().await,
            }
        })
        .await
        .expect("the listener listens")
    }

    pub(crate) async fn pair(&mut self) -> Pair {
        let backends = in_time(self.dial()).await.unwrap();
        Pair { gateway: Arc::new(self.accept().await), backends: Arc::new(backends) }
    }
}
