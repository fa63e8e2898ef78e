//! Calls of HTTP requests (level 1): what tonic's stubs make.

pub(crate) mod call;
pub(crate) mod direct_connection;
pub(crate) mod health;
pub(crate) mod http2_attempt;
pub(crate) mod keeping;
pub(crate) mod outflow;
pub(crate) mod replay;
pub(crate) mod request_sender;
pub(crate) mod request_source;
pub(crate) mod response_body;
pub(crate) mod session_attempt;
