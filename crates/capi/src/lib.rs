//! The C library: an event loop of one thread with calls by bytes, and flat messages read by tables. `include/tollfree.h` is made of this.
//!
//! Nothing that C passes is trusted further than C has to be: pointers that are not null point to what the header says. Handles are numbers that
//! are looked up, lengths and sizes are checked, and no panic leaves a function. Functions that fail return a number of
//! `spec/errors.md`, and leave a text in their thread.

mod batch;
mod buffer;
mod call;
mod channel;
mod config;
mod error;
mod event;
mod handles;
mod loops;
mod metadata;
mod pointers;
mod pool;
mod session;
mod tables;
mod types;
mod values;

pub use batch::{tollfree_call_send_batch, tollfree_call_take_batch};
pub use buffer::{
    Buffer, Payload, Release, tollfree_buffer_copy, tollfree_buffer_release, tollfree_buffer_retain,
    tollfree_buffer_wrap,
};
pub use call::{
    Call, Start, TOLLFREE_FLAG_HAS_MESSAGE, TOLLFREE_FLAG_LAST, TOLLFREE_FLAG_WAITS, TOLLFREE_FLAG_WAITS_NOT,
    tollfree_call_answer, tollfree_call_answer_end, tollfree_call_answer_headers, tollfree_call_cancel,
    tollfree_call_finish, tollfree_call_pause, tollfree_call_resume, tollfree_call_send,
    tollfree_call_send_pieces, tollfree_call_start,
};
pub use channel::{
    Channel, ChannelSettings, Server, TOLLFREE_CHANNEL_CONNECTING, TOLLFREE_CHANNEL_FAILING,
    TOLLFREE_CHANNEL_IDLE, TOLLFREE_CHANNEL_READY, TOLLFREE_POLICY_LEAST_OUTSTANDING,
    TOLLFREE_POLICY_PICK_FIRST, TOLLFREE_POLICY_ROUND_ROBIN, tollfree_channel_call, tollfree_channel_close,
    tollfree_channel_connect, tollfree_channel_open, tollfree_channel_state,
};
pub use config::*;
pub use error::{tollfree_error_name, tollfree_error_text};
pub use event::*;
pub use loops::*;
pub use metadata::{tollfree_metadata_next, tollfree_metadata_put};
pub use pointers::Bytes;
pub use pool::*;
pub use session::*;
pub use tables::*;
pub use types::*;
pub use values::*;

/// The library's version, as `0.1.0`: a static text.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_version() -> *const std::ffi::c_char {
    const VERSION: &std::ffi::CStr =
        match std::ffi::CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}
