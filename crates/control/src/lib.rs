//! How other programs ask a shepherd that runs what it does, and change what can be changed: the client of its control socket, and the
//! types of what is said there, which the shepherd itself uses too.
//!
//! The socket lies beside the one at which business processes attach, under its name with `.control` behind it. Only the shepherd's own
//! user, and root, get an answer.
//!
//! ```no_run
//! # async fn example() -> Result<(), tollfree_control::StateError> {
//! let state = tollfree_control::State::read("shm:///run/tollfree/shepherd.sock").await?;
//! println!("{} connections", state.connections);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod ask;
mod device;
mod policy;
mod register;
mod state;

pub use ask::{CONNECTIONS, Change, Closing, REGISTERS, STATE, control_path};
pub use device::{Device, Word};
pub use policy::Policy;
pub use register::Register;
pub use state::{
    ConnectionState, DeviceState, ErrorState, MethodState, ObjectState, StageState, State, StateError,
    SteeringState, WorkerState,
};
