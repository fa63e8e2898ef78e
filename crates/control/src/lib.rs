//! How other programs ask a gateway that runs what it does, and change what can be changed: the client of its control socket, and the
//! types of what is said there, which the gateway itself uses too.
//!
//! The socket lies beside the one at which backends attach, under its name with `.control` behind it. Only the gateway's own
//! user, and root, get an answer.
//!
//! ```no_run
//! # async fn example() -> Result<(), tollfree_control::StateError> {
//! let state = tollfree_control::State::read("shm:///run/tollfree/gateway.sock").await?;
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
    BackendConnectionState, ConnectionState, DeviceState, ErrorState, LoadBalancingState, MethodState,
    ObjectState, StageState, State, StateError,
};
