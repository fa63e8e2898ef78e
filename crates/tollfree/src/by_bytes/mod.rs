//! Calls by bytes: of any method by its path, with messages as the bytes that gRPC carries: for proxies, recorders, load tests, and programs with
//! a codec of their own.
//!
//! A [`Client`] makes calls of all four kinds over a [`Channel`](crate::Channel), or over anything else that a generated client can be made of; a
//! [`BlockingClient`] makes them from threads without a runtime. [`AnyMethod`] serves every method that no service of the server has
//! ([`Server::fallback`](crate::Server::fallback)). Deadlines, metadata, statuses, interceptors, retries, limits and compression are those of generated
//! clients and servers; nobody reads the bytes on the way.
//!
//! # Example
//! ```
//! use bytes::Bytes;
//! use futures_util::StreamExt as _;
//! use tollfree::by_bytes::{AnyMethod, Client, Method};
//! use tonic::{Request, Response};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let address = format!("shm://{}/echo.sock", directory.path().display());
//! // A server that answers every call with its own messages.
//! let echo = AnyMethod::new(|_method: Method, request: Request<tollfree::Streaming<Bytes>>| async {
//!     Ok(Response::new(request.into_inner()))
//! });
//! let server = tollfree::Server::builder().fallback(echo).serve(address.clone());
//! # let server = tokio::spawn(server);
//!
//! # while std::os::unix::net::UnixStream::connect(directory.path().join("echo.sock")).is_err() { tokio::task::yield_now().await }
//! let channel = tollfree::Channel::connect(&address).await?;
//! let mut client = Client::new(channel);
//! let method = Method::new("/any.Service/Method")?;
//! let answer = client.unary(&method, Bytes::from_static(b"hello")).await?;
//! assert_eq!(&answer.into_inner()[..], b"hello");
//!
//! let asks = futures_util::stream::iter(["a", "b"]).map(Bytes::from);
//! let mut answers = client.streaming(&method, asks).await?.into_inner();
//! assert_eq!(answers.message().await?, Some(Bytes::from("a")));
//! # server.abort();
//! # Ok(())
//! # }
//! ```

mod blocking;
mod client;
mod proxy;
mod server;
mod trailers;

use std::fmt;
use std::str::FromStr;

use http::Extensions;
use http::uri::PathAndQuery;

use crate::typed::Named;

pub use blocking::BlockingClient;
pub use client::Client;
pub use proxy::PassedOn;
pub use server::AnyMethod;
pub use trailers::Trailers;

/// A method by its path. Cheap to clone.
///
/// A client's interceptors find it in the extensions of their requests, and so does the handler of an [`AnyMethod`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method(PathAndQuery);

/// What was given is no method's path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} is no path of a method: it is to be \"/package.Service/Method\"")]
pub struct MethodError {
    path: String,
}

impl Method {
    /// The method with this path, `/package.Service/Method`.
    ///
    /// # Errors
    /// [`MethodError`] for anything else.
    pub fn new(path: impl Into<String>) -> Result<Method, MethodError> {
        let path = path.into();
        match PathAndQuery::from_maybe_shared(bytes::Bytes::from(path.clone())).ok().and_then(Method::of) {
            Some(method) if method.path() == path && path.is_ascii() => Ok(method),
            _ => Err(MethodError { path }),
        }
    }

    /// The method of a request's URI.
    fn of(path: PathAndQuery) -> Option<Method> {
        let (service, name) = path.path().strip_prefix('/')?.split_once('/')?;
        let is_method =
            !service.is_empty() && !name.is_empty() && !name.contains('/') && path.query().is_none();
        is_method.then_some(Method(path))
    }

    /// `/package.Service/Method`.
    pub fn path(&self) -> &str {
        self.0.path()
    }

    /// `package.Service`.
    pub fn service(&self) -> &str {
        self.parts().0
    }

    /// `Method`.
    pub fn name(&self) -> &str {
        self.parts().1
    }

    fn parts(&self) -> (&str, &str) {
        self.path()[1..].split_once('/').unwrap_or_default()
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path())
    }
}

impl FromStr for Method {
    type Err = MethodError;

    fn from_str(path: &str) -> Result<Method, MethodError> {
        Method::new(path)
    }
}

impl Named for Method {
    fn path(&self) -> &str {
        Method::path(self)
    }

    fn path_and_query(&self) -> PathAndQuery {
        self.0.clone()
    }

    fn note(&self, extensions: &mut Extensions) {
        extensions.insert(self.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_a_service_and_a_name() {
        let method = Method::new("/a.b.C/D").unwrap();
        assert_eq!((method.service(), method.name(), &*method.to_string()), ("a.b.C", "D", "/a.b.C/D"));
        for path in [
            "",
            "/",
            "C/D",
            "/C",
            "/C/",
            "//D",
            "/C/D/E",
            "/C/D?x",
            "/C/D#x",
            "/C /D",
            "http://localhost/C/D",
            "/C/\u{e4}",
        ] {
            let told = Method::new(path).unwrap_err().to_string();
            assert!(
                told.contains(&format!("{path:?}")) && told.contains("/package.Service/Method"),
                "{told}"
            );
        }
    }
}
