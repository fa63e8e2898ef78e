//! Records between two processes: a single-producer single-consumer ring and its doorbell.
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod doorbell;
mod geometry;
#[cfg(test)]
mod late;
mod receiver;
mod record;
mod sender;

pub use doorbell::{Ringer, Waiter};
pub use geometry::{Geometry, GeometryError};
pub use receiver::{RingReceiver, RingRecord};
pub use record::{RecordRead, RecordReceiver, RecordSender, RingViolation, StageError};
pub use sender::RingSender;
