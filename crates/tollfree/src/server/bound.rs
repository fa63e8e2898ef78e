//! What a server serves: addresses that are bound, and connections that somebody else accepts.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_stream::{Stream, StreamExt};
use tollfree_driver_tokio::{Address, Config, Listener, SocketFile, SocketMode, Tokens, bind_unix};
use tollfree_os::tokio_net::UnixListener;
use tollfree_os::tonic_uds::UnixListenerStream;
use tonic::service::Routes;
use tonic::transport::server::{Connected, TcpIncoming};

use crate::server::Server;
use crate::server::connection::{self, ServedConnection};
use crate::server::load::TallyLayer;
use crate::server::offer::{OfferService, SocketOffer};
use crate::server::session_task::{ServerContext, SessionTask};
use crate::status::ServeError;

/// An address that is bound and not yet served.
pub(crate) enum Bound {
    Shm(Listener),
    /// With its file, which goes when that is dropped.
    Unix(String, UnixListener, Option<SocketFile>),
    Tcp(String, TcpListener, Box<tonic::transport::Server>),
}

/// Binds an address of sessions. Another server that starts or ends there holds a lock, which is waited for: not on a thread of the
/// runtime's.
pub(crate) async fn listen(address: Address, config: Config) -> Result<Listener, ServeError> {
    let name = address.to_string();
    match tokio::task::spawn_blocking(move || Listener::bind(&address, config)).await {
        Ok(bound) => Ok(bound?),
        // The runtime ends, and this with it.
        Err(failed) => Err(ServeError::Socket { address: name, source: io::Error::other(failed) }),
    }
}

/// The same under a name beside the address, until it is published.
pub(crate) async fn listen_beside(address: Address, config: Config) -> Result<Listener, ServeError> {
    let name = address.to_string();
    match tokio::task::spawn_blocking(move || Listener::bind_beside(&address, config)).await {
        Ok(bound) => Ok(bound?),
        Err(failed) => Err(ServeError::Socket { address: name, source: io::Error::other(failed) }),
    }
}

impl Bound {
    pub(crate) async fn bind(uri: &str, server: &Server) -> Result<Bound, ServeError> {
        let socket = |source| ServeError::Socket { address: uri.into(), source };
        if uri.starts_with("shm:") || uri.starts_with("shm-abstract:") {
            let address: Address = uri.parse().map_err(|error: tollfree_driver_tokio::AddressError| {
                ServeError::Address { address: uri.into(), reason: error.to_string() }
            })?;
            return Ok(Bound::Shm(listen(address, server.session_config()).await?));
        }
        if let Some(path) = uri.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            let (listener, file) = bind_unix(Path::new(path), SocketMode::Umask).await?;
            return Ok(Bound::Unix(uri.into(), listener, file));
        }
        if let Some(host) = uri.strip_prefix("http://") {
            let listener = TcpListener::bind(host.trim_end_matches('/')).await.map_err(socket)?;
            return Ok(Bound::Tcp(uri.into(), listener, Box::default()));
        }
        if let Some(host) = uri.strip_prefix("https://") {
            let http = server.with_tls(uri)?;
            let listener = TcpListener::bind(host.trim_end_matches('/')).await.map_err(socket)?;
            return Ok(Bound::Tcp(uri.into(), listener, Box::new(http)));
        }
        Err(ServeError::Address {
            address: uri.into(),
            reason: "write shm:///path, shm-abstract:name, unix:/path, http://host:port or https://host:port"
                .into(),
        })
    }

    /// What clients on TCP can be told of this one.
    pub(crate) fn offer(&self, tokens: &Arc<Tokens>) -> Option<SocketOffer> {
        match self {
            Bound::Shm(listener) => SocketOffer::of(listener, tokens),
            _ => None,
        }
    }

    pub(crate) async fn run(
        self,
        duty: Arc<ServerContext>,
        offer: Option<Arc<SocketOffer>>,
        stopped: watch::Receiver<bool>,
    ) -> Result<(), ServeError> {
        let routes = duty.routes.clone();
        match self {
            Bound::Shm(listener) => {
                serve_sessions(listener, duty, stopped).await;
                Ok(())
            }
            Bound::Unix(address, listener, _file) => {
                let incoming = UnixListenerStream::new(listener);
                serve_http2(address, Box::default(), routes, incoming, &duty, stopped).await
            }
            Bound::Tcp(address, listener, builder) => {
                // Not under TLS: a client that has checked a certificate is not sent elsewhere by the server that showed it.
                let routes = match offer {
                    Some(offer) if address.starts_with("http://") => routes.add_service(OfferService(offer)),
                    _ => routes,
                };
                // As tonic does where it binds itself: a reply does not wait for the acknowledgement of the one before.
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                serve_http2(address, builder, routes, incoming, &duty, stopped).await
            }
        }
    }
}

/// How long nobody is accepted after that has failed, as it does without a free descriptor.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves connections of HTTP/2 by tonic's server, with what the [`Server`] was told, until `stopped` says so, or no more come.
/// Each has a server of its own, which ends with it.
pub(crate) async fn serve_http2<I, IO, E>(
    address: String,
    builder: Box<tonic::transport::Server>,
    routes: Routes,
    incoming: I,
    duty: &ServerContext,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), ServeError>
where
    I: Stream<Item = Result<IO, E>>,
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let is_plain = !address.starts_with("https://");
    let mut builder = *builder;
    if let Some(settle) = &duty.http2 {
        builder = settle(builder);
    }
    if let Some(timeout) = duty.timeout {
        builder = builder.timeout(timeout);
    }
    if let Some(grace) = duty.age.grace {
        builder = builder.max_connection_age_grace(grace);
    }
    let router = |connection: Arc<ServedConnection>| {
        let mut builder = builder.clone();
        if let Some(age) = duty.age.jittered() {
            builder = builder.max_connection_age(age);
        }
        let (tally, metrics, timeout) = (duty.tally.clone(), duty.metrics.clone(), duty.timeout);
        builder.layer(TallyLayer { tally, metrics, timeout, connection }).add_routes(routes.clone())
    };
    let ending = stopped.clone();
    let (mut connections, mut outcome) = (JoinSet::new(), Ok(()));
    {
        let mut incoming = pin!(incoming);
        let mut stopped = pin!(async { drop(stopped.wait_for(|stop| *stop).await) });
        loop {
            tokio::select! {
                () = &mut stopped => break,
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    outcome = outcome.and(served(ended));
                }
                came = incoming.next() => match came {
                    Some(Ok(socket)) => {
                        let connection = ServedConnection::new(is_plain);
                        let router = router(connection.clone());
                        connections.spawn(connection::serve(router, socket, connection, ending.clone()));
                    }
                    Some(Err(error)) => {
                        tracing::debug!(error = %error.into(), address, "a connection can't be accepted");
                        tokio::time::sleep(PAUSE).await;
                    }
                    None => break,
                },
            }
        }
    }
    while let Some(ended) = connections.join_next().await {
        outcome = outcome.and(served(ended));
    }
    outcome.map_err(|source| ServeError::Http { address, source })
}

/// How a task that serves has ended.
pub(super) fn served<E>(ended: Result<Result<(), E>, JoinError>) -> Result<(), E> {
    match ended {
        Ok(served) => served,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends.
            Err(_) => Ok(()),
        },
    }
}

async fn serve_sessions(mut listener: Listener, duty: Arc<ServerContext>, stopped: watch::Receiver<bool>) {
    let mut stop = stopped.clone();
    tracing::info!(address = %listener.address(), "serving over shared memory");
    let mut sessions = JoinSet::new();
    let mut closing = false;
    loop {
        tokio::select! {
            attached = listener.accept() => match attached {
                // Also one that came while the listener was being closed: it is told to go elsewhere, and its calls with it.
                Some(attachment) => {
                    tracing::debug!(peer = ?attachment.peer(), agent = attachment.agent(), "a client attached");
                    sessions.spawn(SessionTask::new(attachment, duty.clone()).run(stopped.clone()));
                }
                None => break,
            },
            _ = stop.wait_for(|stop| *stop), if !closing => {
                closing = true;
                listener.close();
            }
            Some(_) = sessions.join_next(), if !sessions.is_empty() => {}
        }
    }
    while sessions.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program may end its runtime while a server is running there.
    #[tokio::test]
    async fn a_task_that_its_runtime_has_cancelled_is_no_panic() {
        let task = tokio::spawn(std::future::pending::<Result<(), ServeError>>());
        task.abort();
        assert!(served(task.await).is_ok());
    }
}
