//! Calls of typed messages (levels 2 and 3): what Tollfree's stubs make.

pub(crate) mod bodies;
pub(crate) mod client;
pub(crate) mod exchange;
pub(crate) mod unary;

/// A method of a service, as the generator knows it.
#[derive(Debug)]
pub struct Method {
    /// `package.Service`.
    pub service: &'static str,
    /// `Method`.
    pub name: &'static str,
    /// `/package.Service/Method`.
    pub path: &'static str,
}
