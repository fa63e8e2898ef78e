//! What the code calls that `tollfree-build` generates: calls that go from typed message to session and back.
//!
//! Not for use by hand: it changes together with the generator. What stands here takes a call only where the outcome is
//! what tonic's own layers would have made of it; every other call goes the way of level 1, as an `http::Request`, and
//! [`Way`] says why.

mod bypass;
mod client;
mod codec;
mod exchange;
mod form;
mod handler;
mod message;
mod method;
mod objects;
mod run;
mod serving;
mod slot;
mod template;
mod typed;

pub use client::{Generated, Grpc, Way};
pub use codec::{Coding, FormCodec, FormDecoder, FormEncoder, Objects, OneCall, Other, Prost, codec};
pub use form::{Form, Ready, Struct};
pub use handler::{Handler, handler, unimplemented};
pub use run::{Direct, Passing, Raw, Run, introduce, type_id, unary};
pub use slot::pass;

pub use objects::Written;

pub(crate) use bypass::{Bypass, Large, OfClient, OfServer};
pub(crate) use message::{check_len, encode, says_encoding, too_long, unpack};
pub(crate) use method::{Begun, DirectMethod};
pub(crate) use run::{Found, find};
pub(crate) use serving::{Answered, DirectServing, Left};
pub(crate) use slot::Slot;
pub(crate) use template::Templates;

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
