//! How a gateway changes messages on their way to a backend whose handlers take flat ones.

use bytes::Bytes;
use tollfree_driver_tokio::Encoded;
use tonic::Status;

use crate::message::aside::Turns;

/// Which of a method's two types a message is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The request's.
    Request,
    /// The reply's.
    Reply,
}

/// Changes the messages of one method between protobuf's bytes and flat messages, so that the process that serves it encodes and decodes nothing
/// (Cerebros, section 4).
///
/// It is called on the thread that serves the call, for messages of up to 80 KiB between two waits of that; what is longer is done on other threads, in
/// its [turns](Converter::turns). No bytes of a message are in memory that another process can change.
///
/// # Errors
/// Statuses end the call. Their words reach the client where [`about_content`](crate::gateway::about_content) has marked them.
pub trait Converter: Send + Sync {
    /// The fingerprint of both types (`spec/wire.md`, section 12).
    fn types(&self) -> u64;

    /// A request as a flat message. `None`: it goes on as it is, and its handler's side says what is wrong with it.
    ///
    /// # Errors
    /// What the call ends with.
    fn flat(&self, request: &[u8]) -> Result<Option<Encoded>, Status>;

    /// Gives a request as a flat message to `put`. `false`: it is none, and what becomes of it is left to [`flat`](Converter::flat).
    fn put_flat(&self, request: &[u8], put: &mut dyn FnMut(&[u8])) -> bool;

    /// Looks whether a flat message that came is sound.
    ///
    /// # Errors
    /// What the call ends with: it is not.
    fn check(&self, which: Which, message: &Bytes) -> Result<(), Status>;

    /// A flat message that came, encoded behind gRPC's prefix of 5 bytes.
    ///
    /// # Errors
    /// What the call ends with: it is not sound, or can't be encoded.
    fn encoded(&self, which: Which, message: &Bytes) -> Result<Bytes, Status>;

    /// A flat message that [`check`](Converter::check) has found sound goes on as it came.
    fn passed(&self, which: Which);

    /// An answer came as protobuf's bytes.
    fn came_encoded(&self);

    /// The turns in which long messages are changed.
    fn turns(&self) -> &Turns;
}
