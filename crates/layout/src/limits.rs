//! Every size constant of the protocol, in one place. Lengths are in bytes.

/// A cache line: the unit in which rings are laid out.
pub const LINE_LEN: usize = 64;
/// The unit in which regions are sized, and the length of the control page.
pub const PAGE_LEN: usize = 4096;

/// Length of the ring a side creates unless it has reason to differ.
pub const RING_LEN_DEFAULT: usize = 32 * 1024;
/// The shortest ring a peer may announce.
pub const RING_LEN_MIN: usize = 4 * 1024;
/// The longest ring a peer may announce: a session starts with at most 64 KiB a side.
pub const RING_LEN_MAX: usize = 32 * 1024;
/// A session starts with at most this much memory a side.
pub const REGION_LEN_MAX: usize = 64 * 1024;

/// Length of a payload area when the first large message asks for one.
pub const AREA_LEN_DEFAULT: usize = 512 * 1024;
/// The shortest payload area a peer may offer.
pub const AREA_LEN_MIN: usize = 64 * 1024;
/// The longest payload area a peer may offer.
pub const AREA_LEN_MAX: usize = 16 * 1024 * 1024;
/// The share of an area that one chunk may take: 1 / `AREA_CHUNK_SHARE`.
pub const AREA_CHUNK_SHARE: usize = 4;

/// Both handshake messages have this length.
pub const HELLO_LEN: usize = 288;
/// Longest text (agent, refusal) inside a handshake message.
pub const HELLO_TEXT_MAX: usize = 120;
/// Longest registration at a gateway.
pub const REGISTRATION_LEN_MAX: usize = 8 * 1024;
/// Longest name of a group.
pub const GROUP_LEN_MAX: usize = 64;
/// Longest name of a service that attaches.
pub const SERVICE_LEN_MAX: usize = 255;
/// Services of one process that attaches.
pub const SERVICE_COUNT_MAX: usize = 256;
/// Longest target of calls via a gateway.
pub const TARGET_LEN_MAX: usize = 1024;

/// Longest block of metadata (headers or trailers, as packed) unless configured lower.
pub const METADATA_LEN_MAX: usize = 15 * 1024;
/// Longest path of a method, as in `/package.Service/Method`.
pub const METHOD_PATH_LEN_MAX: usize = 1024;
/// Methods that one session may intern.
pub const METHOD_COUNT_MAX: usize = 4096;
/// Bytes of the paths of all methods that one session interns, together.
pub const METHOD_PATHS_LEN_MAX: usize = 256 * 1024;
/// Longest message the protocol can carry.
pub const MESSAGE_LEN_MAX: usize = u32::MAX as usize;
/// What gRPC receives unless told otherwise.
pub const MESSAGE_LEN_DEFAULT: usize = 4 * 1024 * 1024;
/// Longest message that travels as a flat message; a longer one is encoded.
pub const OBJECT_LEN_MAX: usize = 4 * 1024 * 1024;

/// Concurrent calls of one session unless configured otherwise.
pub const STREAM_COUNT_DEFAULT: u32 = 1024;
/// Credit in bytes that a stream starts with unless configured otherwise.
pub const STREAM_WINDOW_DEFAULT: u64 = 64 * 1024;
/// Credit up to which a receiver raises the window of a stream whose reader keeps up.
pub const STREAM_WINDOW_MAX: u64 = 1024 * 1024;
/// Credit up to which a receiver raises the window of a stream on which a longer message begins.
pub const MESSAGE_WINDOW_MAX: u64 = 4 * 1024 * 1024;
/// Credit a session keeps for raising windows, beside what every stream starts with.
pub const WINDOW_RESERVE: u64 = 16 * 1024 * 1024;
/// What every chunk costs in credit beside its bytes, so that empty messages are not free.
pub const CHUNK_CHARGE: u64 = 64;

/// Refs in one segmented message.
pub const SEGMENTED_REF_COUNT_MAX: usize = 1024;
/// SegmentedMessages that a sender keeps for a peer that has not taken them, unless it says so earlier; further messages go inline.
pub const SEGMENTED_COUNT_MAX: usize = 1024;

/// The longest that a gateway can ask a process to look before it sleeps, in microseconds.
pub const ASKED_SPIN_US_MAX: u32 = 1_000_000;
/// How long a process looks that is asked to, where it is not said for how long, in microseconds.
pub const ASKED_LOOK_US: u32 = 10_000;
