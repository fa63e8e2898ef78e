//! One message between a program and a session: its form, its bytes, and whether it goes by ref.

pub(crate) mod as_bytes;
pub(crate) mod aside;
pub(crate) mod batching;
pub(crate) mod codec;
pub(crate) mod compression;
pub(crate) mod converter;
pub(crate) mod deferred;
pub(crate) mod encoding;
pub(crate) mod form;
pub(crate) mod framing;
pub(crate) mod holdings;
pub(crate) mod objects;
pub(crate) mod out_of_band;
pub(crate) mod payloads;
pub(crate) mod pool_arena;
pub(crate) mod received;
pub(crate) mod relay;
pub(crate) mod stream_body;
pub(crate) mod streaming;
