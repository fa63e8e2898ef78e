//! Methods of generated servers: called with typed messages, without an `http::Request` where nothing needs one.

pub(crate) mod handle;
pub(crate) mod handler;
pub(crate) mod method;
pub(crate) mod run;
pub(crate) mod streams;
