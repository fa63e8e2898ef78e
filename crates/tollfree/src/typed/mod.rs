//! Calls of typed messages (levels 2 and 3): what Tollfree's stubs make. Calls by bytes are such calls whose messages are bytes.

use http::Extensions;
use http::uri::PathAndQuery;

pub(crate) mod bodies;
pub(crate) mod client;
pub(crate) mod exchange;
pub(crate) mod unary;

/// A method of a service, as the generator knows it.
#[derive(Debug)]
pub struct GeneratedMethod {
    /// `package.Service`.
    pub service: &'static str,
    /// `Method`.
    pub name: &'static str,
    /// `/package.Service/Method`.
    pub path: &'static str,
}

/// What calls go by: a method that generated code knows, or that its caller names.
pub trait Named: Send + Sync {
    /// `/package.Service/Method`.
    fn path(&self) -> &str;

    /// The same, for a request's URI.
    fn path_and_query(&self) -> PathAndQuery;

    /// Puts it where interceptors and layers look for it.
    fn note(&self, extensions: &mut Extensions);
}

impl Named for GeneratedMethod {
    #[inline]
    fn path(&self) -> &str {
        self.path
    }

    fn path_and_query(&self) -> PathAndQuery {
        PathAndQuery::from_static(self.path)
    }

    fn note(&self, extensions: &mut Extensions) {
        extensions.insert(tonic::GrpcMethod::new(self.service, self.name));
    }
}
