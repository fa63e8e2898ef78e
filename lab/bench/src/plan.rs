//! What benches measure: the axes that they share, and a case of two processes that echo.

use std::fmt;

use serde::{Deserialize, Serialize};

use tollfree_measure::axis;
pub use tollfree_measure::axis::Placement;

use crate::harness::words::bytes_in_words;
pub use crate::message::Message;
use crate::side::program::Program;
use crate::side::{c, cpp, go, python};

/// Largest body that may be asked for, in bytes: what the project tests as its largest message.
pub const SIZE_MAX: usize = 256 << 20;

/// Most calls in flight that may be asked for.
pub const INFLIGHT_MAX: usize = 4096;

axis! {
    /// What carries the calls.
    Side, "side", {
        /// Two bare rings, one process spinning on each end: what no transport can undercut.
        Floor = "floor",
        /// iceoryx2's request-response, both ends polling: a peer through shared memory, without RPC semantics.
        Iceoryx2 = "iceoryx2",
        /// A session carrying bytes, without tonic.
        Session = "session",
        /// The same by the driver of one thread: a loop that calls and a loop that serves.
        Loop = "loop",
        /// The same by the driver for threads, which share a session: a thread for each call in flight.
        Threads = "threads",
        /// Tollfree's own stubs, from typed message to session.
        TollfreeDirect = "tollfree-direct",
        /// The same, stubs that take objects: messages are read and built in place, and travel as they are.
        TollfreeView = "tollfree-view",
        /// The same with a pool, in which large objects go by ref and are read where they lie.
        TollfreeViewPool = "tollfree-view-pool",
        /// Own stubs, bodies by ref through a pool: copied into it where they are sent, out of it where they are received.
        TollfreeRef = "tollfree-ref",
        /// Tollfree's own stubs, blocking: a thread that calls and a thread that serves.
        TollfreeBlocking = "tollfree-blocking",
        /// The same, threads that call share a channel.
        TollfreeThreads = "tollfree-threads",
        /// Unmodified tonic stubs over Tollfree.
        Tollfree = "tollfree",
        /// The same, neither end ever spinning: for cores that must not.
        TollfreePark = "tollfree-park",
        /// The same, on a channel to TCP that has left it for Tollfree.
        TollfreeUpgrade = "tollfree-upgrade",
        /// The same, by way of a gateway that has led the client to the server.
        TollfreeDirectConnection = "tollfree-direct-connection",
        /// Stock tonic over a Unix socket: what the others are compared with.
        TonicUnix = "tonic-unix",
        /// The same for threads that block: they share a channel, and each waits in its runtime.
        TonicBlocking = "tonic-blocking",
        /// Stock tonic over TCP on the loopback interface.
        TonicTcp = "tonic-tcp",
        /// Tollfree in C, by bytes: a loop that calls and a loop that serves.
        C = "c",
        /// Tollfree in C++, the stubs of protoc-gen-tollfree-cpp.
        Cpp = "cpp",
        /// The same, the stubs of grpc_cpp_plugin by an interceptor.
        CppStock = "cpp-stock",
        /// gRPC C++ over a Unix socket: what the sides in C++ are compared with.
        GrpcCpp = "grpc-cpp",
        /// Tollfree in Go, the stubs of protoc-gen-go-grpc.
        Go = "go",
        /// The same, the handler on the goroutine that reads.
        GoInline = "go-inline",
        /// The same, the stubs of protoc-gen-go-tollfree.
        GoDirect = "go-direct",
        /// A client of that side, and a server of `tollfree-direct`.
        GoToRust = "go-to-rust",
        /// The opposite; the handler is on the goroutine that reads.
        RustToGo = "rust-to-go",
        /// grpc-go over a Unix socket: what the sides in Go are compared with.
        GrpcGo = "grpc-go",
        /// Tollfree in Python, the stubs of grpcio's generator; handlers run in a pool of threads.
        Python = "python",
        /// The same, the handler in the thread that serves.
        PythonInline = "python-inline",
        /// A client of that side, and a server of `tollfree-direct`.
        PythonToRust = "python-to-rust",
        /// The same client by asyncio.
        PythonAioToRust = "python-aio-to-rust",
        /// Tollfree in Python at both ends, by asyncio.
        PythonAio = "python-aio",
        /// Tollfree in Python at both ends; bodies are arrays in a pool, which go by ref and are read where they lie.
        PythonRef = "python-ref",
        /// A client of that side, and a server of `tollfree-ref`.
        PythonRefToRust = "python-ref-to-rust",
        /// grpcio over a Unix socket: what the sides in Python are compared with.
        Grpcio = "grpcio",
        /// The same by asyncio.
        GrpcioAio = "grpcio-aio",
    }
}

impl Side {
    /// Whether an end of it is in Go.
    const fn is_go(self) -> bool {
        let is_all = matches!(self, Side::Go | Side::GoInline | Side::GoDirect | Side::GrpcGo);
        is_all || matches!(self, Side::GoToRust | Side::RustToGo)
    }

    /// Whether an end of it is in Python.
    const fn is_python(self) -> bool {
        let is_all = matches!(self, Side::Python | Side::PythonInline | Side::PythonAio | Side::PythonRef);
        let is_client = matches!(self, Side::PythonToRust | Side::PythonAioToRust | Side::PythonRefToRust);
        is_all || is_client || matches!(self, Side::Grpcio | Side::GrpcioAio)
    }

    /// Whether it is in C++.
    const fn is_cpp(self) -> bool {
        matches!(self, Side::Cpp | Side::CppStock | Side::GrpcCpp)
    }

    /// Whether calls can have metadata here: the others carry bytes and nothing else.
    #[must_use]
    pub const fn carries_metadata(self) -> bool {
        let is_elsewhere = self.is_go() || self.is_python() || self.is_cpp();
        !is_elsewhere
            && !matches!(
                self,
                Side::Floor | Side::Iceoryx2 | Side::Session | Side::Loop | Side::Threads | Side::C
            )
    }

    /// Whether calls can carry messages of many fields: the others carry bytes and nothing else.
    #[must_use]
    pub const fn carries_messages(self) -> bool {
        self.carries_metadata()
    }

    /// Why this build can't run a side, if it can't: a row that is not run for this is no failure.
    #[must_use]
    pub fn missing(self) -> Option<&'static str> {
        match self {
            side if side.is_go() => go::absent(),
            side if side.is_python() => python::absent(),
            Side::C => c::absent(),
            side if side.is_cpp() => cpp::absent(),
            Side::Iceoryx2 if !cfg!(feature = "iceoryx2") => {
                Some("this build has no iceoryx2; `make bench-peers` builds one that has")
            }
            _ => None,
        }
    }
}

axis! {
    /// The tokio runtime in both processes.
    RuntimeKind, "runtime", {
        /// One thread.
        Current = "current",
        /// Work stealing among two workers.
        Multi = "multi",
    }
}

axis! {
    /// What carries the calls of `tollfree-lab bench paced`.
    PacedSide, "side", {
        /// Two bare rings and a thread that sleeps at each end: what being woken twice costs.
        Wake = "wake",
        /// Stock tonic over a Unix socket.
        TonicUnix = "tonic-unix",
        /// Unmodified tonic stubs over Tollfree.
        Tollfree = "tollfree",
        /// Tollfree's own stubs.
        TollfreeDirect = "tollfree-direct",
        /// Tollfree's own stubs, blocking.
        TollfreeBlocking = "tollfree-blocking",
        /// Tollfree in Go, the stubs of protoc-gen-go-grpc.
        Go = "go",
        /// grpc-go over a Unix socket: what the side before is compared with.
        GrpcGo = "grpc-go",
        /// Tollfree in Python, the stubs of grpcio's generator; the handler runs in a pool of threads.
        Python = "python",
        /// The same, the handler in the serving thread.
        PythonInline = "python-inline",
        /// grpcio over a Unix socket: what the sides before are compared with.
        Grpcio = "grpcio",
    }
}

impl PacedSide {
    /// The program in another language whose processes both ends are, if they are.
    pub(crate) const fn program(self) -> Option<Program> {
        match self {
            PacedSide::Go | PacedSide::GrpcGo => Some(Program::Go),
            PacedSide::Python | PacedSide::PythonInline | PacedSide::Grpcio => Some(Program::Python),
            _ => None,
        }
    }

    /// Whether it can be told how its ends wait.
    #[must_use]
    pub const fn waits(self) -> bool {
        self.program().is_none() && !matches!(self, PacedSide::Wake | PacedSide::TonicUnix)
    }
}

axis! {
    /// How both ends of a Tollfree session wait.
    Wait, "way to wait", {
        /// As they do unless told otherwise.
        Default = "default",
        /// For the lowest latency.
        LowLatency = "low-latency",
        /// Never spinning.
        Park = "park",
    }
}

axis! {
    /// What malloc does with memory that is free again, in both processes of every side.
    Malloc, "malloc setting", {
        /// Up to 64 MiB stay with the process, as services that carry large messages set their allocator.
        Keep = "keep",
        /// As it is: glibc gives much of it back in each call of a large message, and the kernel zeroes it again.
        System = "system",
    }
}

impl Malloc {
    /// Environment variables that tell glibc's malloc. Those of the user's own stand above them.
    pub fn settings(self) -> Vec<(&'static str, &'static str)> {
        let all = match self {
            Malloc::Keep => {
                &[("MALLOC_TRIM_THRESHOLD_", "67108864"), ("MALLOC_MMAP_THRESHOLD_", "33554432")][..]
            }
            Malloc::System => &[],
        };
        all.iter().copied().filter(|(name, _)| std::env::var_os(name).is_none()).collect()
    }
}

/// One row of the result: one combination of all axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Case {
    /// What carries the calls.
    pub side: Side,
    /// What a call carries.
    pub message: Message,
    /// Bytes in the request's and the reply's body; of another message than the probe, bytes that it has as protobuf's, on average.
    pub size: usize,
    /// Metadata pairs in the request, and as many in the reply.
    pub metadata: usize,
    /// Calls outstanding at any time.
    pub inflight: usize,
    /// Where the two processes run.
    pub placement: Placement,
    /// The tokio runtime in both processes.
    pub runtime: RuntimeKind,
}

impl fmt::Display for Case {
    /// As those hear of it who wait.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { side, metadata, inflight, placement, runtime, .. } = self;
        let pairs = if *metadata == 0 { String::new() } else { format!(" + {metadata} pairs") };
        write!(f, "{side} · {}{pairs}, {inflight} in flight, {placement}, {runtime}", self.payload())
    }
}

impl Case {
    /// Bytes in one field, wherever the kernel puts the processes.
    pub(crate) fn probe(side: Side, size: usize, inflight: usize, runtime: RuntimeKind) -> Case {
        let (message, metadata, placement) = (Message::Probe, 0, Placement::Unpinned);
        Case { side, message, size, metadata, inflight, placement, runtime }
    }

    /// What it carries, in words.
    #[must_use]
    pub fn payload(&self) -> String {
        match self.message {
            Message::Probe => bytes_in_words(self.size),
            message => format!("{message} ({})", bytes_in_words(self.size)),
        }
    }

    /// The same case on another side: what this one is compared with.
    pub fn on(self, side: Side) -> Self {
        Self { side, ..self }
    }

    /// The same case without metadata: what those cost is the difference.
    pub fn bare(self) -> Self {
        Self { metadata: 0, ..self }
    }

    /// Why it can't be run, if it can't: a row that is not run for this is no failure.
    #[must_use]
    pub fn missing(&self) -> Option<&'static str> {
        let carried = self.message == Message::Probe || self.side.carries_messages();
        self.side
            .missing()
            .or_else(|| (!carried).then_some("this side carries bytes: it has no messages with fields"))
    }

    /// The case without its side, in words.
    pub fn setting(&self) -> String {
        let runtime = match self.runtime {
            RuntimeKind::Current => "current-thread runtime",
            RuntimeKind::Multi => "multi-thread runtime, 2 workers",
        };
        let metadata = match self.metadata {
            0 => String::new(),
            1 => " and a metadata pair each way".to_owned(),
            count => format!(" and {count} metadata pairs each way"),
        };
        let size = self.payload();
        format!("{size}{metadata}, {} in flight, {}, {runtime}", self.inflight, self.placement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_unknown_ones_are_answered_with_the_known() {
        for &side in Side::ALL {
            assert_eq!(side.name().parse(), Ok(side));
            assert_eq!(serde_json::to_value(side).unwrap(), side.name());
        }
        let error = "pigeon".parse::<Side>().unwrap_err();
        assert!(error.contains("tonic-unix"), "{error}");
    }
}
