//! What the code calls that `tollfree-build` generates: calls that go from typed message to session and back.
//!
//! Not for use by hand: it changes together with the generator. What stands here takes a call only where the outcome is
//! what tonic's own layers would have made of it; every other call goes the way of level 1, as an `http::Request`, and
//! [`Way`] says why.

pub use crate::channel::slot::pass;
pub use crate::message::codec::{
    Coding, FormCodec, FormDecoder, FormEncoder, Objects, OneCall, Other, Prost, codec,
};
pub use crate::message::compression::Encodings;
pub use crate::message::form::{Form, Ready, Root, Struct, Types, types};
pub use crate::message::objects::Written;
pub use crate::server::typed::handler::{Handler, handler, unimplemented};
pub use crate::server::typed::run::{Direct, Passing, Raw, Run, register, type_id, unary};
pub use crate::server::typed::streams::{client_streaming, server_streaming, streaming};
pub use crate::typed::client::{Generated, Grpc, Streams, Way};
pub use crate::typed::{GeneratedMethod, Named};
