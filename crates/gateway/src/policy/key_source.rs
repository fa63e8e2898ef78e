//! Where the public keys of an issuer are read: a file, or a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tollfree::gateway::{aside, read_file};

use crate::tls;

/// The longest JWK set that is read, in bytes.
const SET_LEN_MAX: u64 = 1 << 20;
/// How long a server may take for all of it.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Where keys are.
#[derive(Clone, Debug)]
pub(crate) enum KeySource {
    File(PathBuf),
    Server(KeyServer),
}

/// A server of keys.
#[derive(Clone, Debug)]
pub(crate) struct KeyServer {
    uri: Uri,
    is_tls: bool,
}

/// By what a changed file is known.
pub(super) type FileState = Option<(SystemTime, u64)>;

impl KeySource {
    /// # Errors
    /// What is neither a path nor an address.
    pub(crate) fn parse(text: &str) -> Result<KeySource, String> {
        let help = || {
            format!(
                "\"{text}\" is no place of keys: write an absolute path, https://host/path or http://host/path"
            )
        };
        if text.starts_with('/') {
            return Ok(KeySource::File(text.into()));
        }
        let uri: Uri = text.parse().map_err(|_| help())?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(help()),
        };
        match uri.host().is_some_and(|host| !host.is_empty()) && !text.contains('@') {
            true => Ok(KeySource::Server(KeyServer { uri, is_tls })),
            false => Err(help()),
        }
    }

    /// Whether certificates matter.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, KeySource::Server(server) if server.is_tls)
    }

    /// Reads a file. Blocks the thread. None for a server.
    pub(super) fn read_file(&self) -> Option<Result<Vec<u8>, String>> {
        let KeySource::File(path) = self else { return None };
        Some(read(path))
    }

    /// How its file is now. Blocks the thread.
    pub(super) fn file_state(&self) -> FileState {
        let KeySource::File(path) = self else { return None };
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }

    /// Reads the keys, aside of the runtime's threads, and within a time.
    ///
    /// # Errors
    /// In words.
    pub(super) async fn read(&self, tls: Option<&Arc<ClientConfig>>) -> Result<Vec<u8>, String> {
        match self {
            KeySource::File(path) => {
                let path = path.clone();
                let read = aside(move || read(&path)).await;
                read.map_err(|error| error.to_string())?
            }
            KeySource::Server(server) => match tokio::time::timeout(PATIENCE, server.get(tls)).await {
                Ok(read) => read.map_err(|problem| format!("{}: {problem}", server.uri)),
                Err(_) => Err(format!("{}: no answer within {} s", server.uri, PATIENCE.as_secs())),
            },
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    read_file(path, SET_LEN_MAX).map_err(|error| format!("{}: {error}", path.display()))
}

/// How servers of keys are trusted. Blocks the thread.
///
/// # Errors
/// The file is of no use.
pub(super) fn trust(ca: &Path) -> Result<Arc<ClientConfig>, String> {
    tls::client_config(ca).map_err(|error| error.to_string())
}

impl KeyServer {
    async fn get(&self, tls: Option<&Arc<ClientConfig>>) -> Result<Vec<u8>, String> {
        let host = self.uri.host().unwrap_or_default();
        let host = host.trim_matches(['[', ']']);
        let port = self.uri.port_u16().unwrap_or(if self.is_tls { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await;
        let stream = stream.map_err(|error| format!("can't be reached: {error}"))?;
        match tls.filter(|_| self.is_tls) {
            None if self.is_tls => Err("nobody's certificates are trusted for it".into()),
            None => self.get_by(stream).await,
            Some(config) => {
                let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
                let stream = TlsConnector::from(config.clone()).connect(name, stream).await;
                self.get_by(stream.map_err(|error| format!("no TLS: {error}"))?).await
            }
        }
    }

    async fn get_by(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Vec<u8>, String> {
        let words = |error: hyper::Error| format!("no answer: {error}");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(words)?;
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::get(path)
            .header(header::HOST, self.uri.authority().map_or("", |authority| authority.as_str()))
            .header(header::ACCEPT, "application/jwk-set+json, application/json")
            .body(Empty::<Bytes>::new());
        let request = request.map_err(|error| error.to_string())?;
        let answered = async {
            let response = sender.send_request(request).await.map_err(words)?;
            if response.status() != StatusCode::OK {
                return Err(format!("answers {}", response.status()));
            }
            let body = Limited::new(response.into_body(), SET_LEN_MAX as usize).collect().await;
            body.map(|body| body.to_bytes().to_vec()).map_err(|error| error.to_string())
        };
        tokio::pin!(answered, connection);
        tokio::select! {
            answered = &mut answered => answered,
            ended = &mut connection => match ended {
                // What it has brought may be read still.
                Ok(()) => answered.await,
                Err(error) => Err(words(error)),
            },
        }
    }
}
