//! How a gateway asks a process that has attached to attach anew, while the session goes on (`spec/wire.md`, section 24).

/// The method by which it does so, in a session that began with ATTACH. Its answer comes when the process has attached again.
pub const MOVE: &str = "/tollfree.Gateway/Move";
