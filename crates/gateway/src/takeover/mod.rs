//! A gateway that takes the place of a running one, without a call lost: a new version, a new container.
//!
//! The new process asks at the control socket of the running one, which gives it its listening sockets. So no connection is refused, and none
//! waits. What each of the two does, in this order:
//!
//! ```text
//! new: reads its config and files          old: serves
//!      asks at the control socket  ──►          passes its sockets (TCP, Unix, figures, control, backends of other hosts)
//!      binds what is new, and the socket
//!      of backends under a name beside ──►      "enter"
//!      gives that socket its name,
//!      lets backends in            ──►          has each backend attach anew; they serve both
//!      accepts clients             ──►          accepts no more, tells clients to go, answers what is under way, ends
//! ```
//!
//! Until the last step the old gateway serves as before, and it goes on serving where the new one dies, refuses, or takes too long: it binds the socket of
//! backends again then, and the backends come back. Where the old one ends in the middle, the new one goes on: it has the sockets.
//!
//! The socket of backends is not passed but replaced: the kernel tells those who connect which process listens, and they watch that one's life.

mod new;
mod old;
mod wire;

pub use new::OpenError;
pub(crate) use new::Takeover;
pub(crate) use old::{HandOver, Sockets};

/// What the two agree on. A change to the messages, or to their order, changes the number.
const PROTOCOL: &str = "tollfree-takeover/1";
/// This program's version, for logs.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Where the control socket answers for it.
pub(crate) const TAKEOVER: &str = "/takeover";
