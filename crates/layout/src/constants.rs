//! Every number of the protocol: written from `spec/constants.toml`, and not to be changed here.
#![allow(unreachable_pub, reason = "the modules of the layout pass them on")]

/// Sizes and counts; lengths are in bytes.
pub mod limits {
    /// A cache line: the unit in which rings are laid out.
    pub const LINE_LEN: usize = 64;
    /// The unit in which regions are sized, and the length of the control page.
    pub const PAGE_LEN: usize = 4096;
    /// Length of the ring a side creates unless it has reason to differ.
    pub const RING_LEN_DEFAULT: usize = 32_768;
    /// The shortest ring a peer may announce.
    pub const RING_LEN_MIN: usize = 4096;
    /// The longest ring a peer may announce: a session starts with at most 64 KiB a side.
    pub const RING_LEN_MAX: usize = 32_768;
    /// A session starts with at most this much memory a side.
    pub const REGION_LEN_MAX: usize = 65_536;
    /// Length of a payload area when the first large message asks for one.
    pub const AREA_LEN_DEFAULT: usize = 524_288;
    /// The shortest payload area a peer may offer.
    pub const AREA_LEN_MIN: usize = 65_536;
    /// The longest payload area a peer may offer.
    pub const AREA_LEN_MAX: usize = 16_777_216;
    /// The share of an area that one chunk may take: 1 / `AREA_CHUNK_SHARE`.
    pub const AREA_CHUNK_SHARE: usize = 4;
    /// Both handshake messages have this length.
    pub const HELLO_LEN: usize = 288;
    /// Longest text (agent, refusal) inside a handshake message.
    pub const HELLO_TEXT_MAX: usize = 120;
    /// Longest registration at a gateway.
    pub const REGISTRATION_LEN_MAX: usize = 8192;
    /// Longest name of a group.
    pub const GROUP_LEN_MAX: usize = 64;
    /// Longest name of a service that attaches.
    pub const SERVICE_LEN_MAX: usize = 255;
    /// Services of one process that attaches.
    pub const SERVICE_COUNT_MAX: usize = 256;
    /// Longest target of calls via a gateway.
    pub const TARGET_LEN_MAX: usize = 1024;
    /// Longest block of metadata (headers or trailers, as packed) unless configured lower.
    pub const METADATA_LEN_MAX: usize = 15_360;
    /// Longest path of a method, as in `/package.Service/Method`.
    pub const METHOD_PATH_LEN_MAX: usize = 1024;
    /// Methods that one session may intern.
    pub const METHOD_COUNT_MAX: usize = 4096;
    /// Bytes of the paths of all methods that one session interns, together.
    pub const METHOD_PATHS_LEN_MAX: usize = 262_144;
    /// Longest message the protocol can carry.
    pub const MESSAGE_LEN_MAX: usize = 4_294_967_295;
    /// What gRPC receives unless told otherwise.
    pub const MESSAGE_LEN_DEFAULT: usize = 4_194_304;
    /// Longest message that travels as a flat message; a longer one is encoded.
    pub const OBJECT_LEN_MAX: usize = 4_194_304;
    /// Concurrent calls of one session unless configured otherwise.
    pub const STREAM_COUNT_DEFAULT: u32 = 1024;
    /// Credit in bytes that a stream starts with unless configured otherwise.
    pub const STREAM_WINDOW_DEFAULT: u64 = 65_536;
    /// Credit up to which a receiver raises the window of a stream whose reader keeps up.
    pub const STREAM_WINDOW_MAX: u64 = 1_048_576;
    /// Credit up to which a receiver raises the window of a stream on which a longer message begins.
    pub const MESSAGE_WINDOW_MAX: u64 = 4_194_304;
    /// Credit a session keeps for raising windows, beside what every stream starts with.
    pub const WINDOW_RESERVE: u64 = 16_777_216;
    /// What every chunk costs in credit beside its bytes, so that empty messages are not free.
    pub const CHUNK_CHARGE: u64 = 64;
    /// Refs in one segmented message.
    pub const SEGMENTED_REF_COUNT_MAX: usize = 1024;
    /// Segmented messages that a sender keeps for a peer that has not taken them, unless it says so earlier; further messages go inline.
    pub const SEGMENTED_COUNT_MAX: usize = 1024;
    /// The longest that a gateway can ask a process to look before it sleeps, in microseconds.
    pub const ASKED_SPIN_US_MAX: u32 = 1_000_000;
    /// How long a process looks that is asked to, where it is not said for how long, in microseconds.
    pub const ASKED_LOOK_US: u32 = 10_000;
}

/// Offsets in the control page, and values in it.
pub mod control {
    /// Offset of `consumed` (u64).
    pub const CONSUMED_OFF: usize = 64;
    /// Offset of `waiting` (u32).
    pub const WAITING_OFF: usize = 128;
    /// Offset of `cpu` (u32).
    pub const CPU_OFF: usize = 132;
    /// Offset of `load` (u32).
    pub const LOAD_OFF: usize = 192;
    /// Offset of `asked` (u64).
    pub const ASKED_OFF: usize = 256;
    /// Offset of the ring.
    pub const RING_OFF: usize = 4096;
    /// `cpu` of a side that does not say where it runs.
    pub const CPU_UNKNOWN: u32 = 4_294_967_295;
}

/// Records of a ring.
pub mod record {
    /// Length of the head word.
    pub const HEAD_LEN: usize = 8;
    /// The head word of a line that holds no record yet.
    pub const HEAD_EMPTY: u64 = 0;
}

/// Bits of `events` in a frame.
pub mod events {
    /// Request or response headers. From a client, `code` is the method's index.
    pub const HEADERS: u8 = 0x01;
    /// A chunk of a message.
    pub const MESSAGE: u8 = 0x02;
    /// The client sends no more messages.
    pub const HALF_CLOSE: u8 = 0x04;
    /// The server's last word: `code` is the gRPC status.
    pub const TRAILERS: u8 = 0x08;
    /// The stream ends at once in both directions: `code` is the gRPC status that says why.
    pub const CANCEL: u8 = 0x10;
    /// The receiver grants `chunk_len` more bytes, to the stream or (stream 0) to the session.
    pub const CREDIT: u8 = 0x20;
    /// The server takes no stream above `stream` any more; those above it were not looked at.
    pub const DRAIN: u8 = 0x40;
    /// About the session's memory or end; `code` is one of `control`.
    pub const CONTROL: u8 = 0x80;
}

/// Bits of `flags` in a frame.
pub mod flags {
    /// The chunk begins a message; `message_len` is the length of the whole.
    pub const FIRST: u8 = 0x01;
    /// The chunk ends its message.
    pub const LAST: u8 = 0x02;
    /// The message is compressed as the `grpc-encoding` header says (on its first chunk).
    pub const COMPRESSED: u8 = 0x04;
    /// The chunk lies in a payload area; an `AreaRange` stands in its place.
    pub const IN_AREA: u8 = 0x08;
    /// The headers block begins with the method's path (u16 length, bytes), bound to the index `code` from now on.
    pub const NAMES_METHOD: u8 = 0x10;
    /// With MESSAGE, but for a client's HEADERS, where NAMES_METHOD has no meaning: the chunk is a batch, several whole messages, each behind gRPC's prefix, and `message_len` says how many.
    pub const BATCH: u8 = 0x10;
    /// The deadline follows the head: u64, nanoseconds on the sender's monotonic clock.
    pub const HAS_DEADLINE: u8 = 0x20;
    /// Cancelled before any part of the call was looked at: safe to send again elsewhere.
    pub const REFUSED: u8 = 0x40;
    /// With MESSAGE, where REFUSED has no meaning: the message is a flat message (`flat`), on its first chunk; with SEGMENTED, one that lies in the pool. For a server that takes such, and in its answer (`OBJECTS`).
    pub const OBJECT: u8 = 0x40;
    /// All bits that version 1 knows without features.
    pub const KNOWN_FLAGS: u8 = 0x7f;
    /// The message is a segmented message: parts of it lie in the pool that both sides are members of (on its first chunk). With the feature POOL.
    pub const SEGMENTED: u8 = 0x80;
}

/// Values of `code` in a CONTROL frame.
pub mod controls {
    /// A payload area was made: `chunk_len` its length, `stream` its index; its fd is the next on the socket.
    pub const AREA_OFFER: u16 = 1;
    /// The area `stream` is mapped and may be used.
    pub const AREA_ACCEPT: u16 = 2;
    /// The area `stream` could not be mapped: go on without.
    pub const AREA_REFUSE: u16 = 3;
    /// The area `stream` will not be referred to again.
    pub const AREA_DROP: u16 = 4;
    /// The session ends; the headers block holds the reason as UTF-8 text.
    pub const CLOSE: u16 = 5;
    /// With the feature POOL: `chunk_len` segmented messages from the number `stream` on need not be kept any longer.
    pub const SEGMENTED_TAKEN: u16 = 6;
    /// With the feature POOL: the bytes of all refs of the segmented message `stream` are wanted inline; `chunk_len` is how many.
    pub const SEGMENTED_WANTED: u16 = 7;
    /// With the feature POOL: the next `chunk_len` of the bytes wanted of the segmented message `stream` follow the head; 0: no more come.
    pub const SEGMENTED_BYTES: u16 = 8;
    /// From a server: messages of the method `chunk_len` are taken as flat messages, and calls with such are answered so, where `stream` is the fingerprint of the method's types.
    pub const OBJECTS: u16 = 9;
}

/// Lengths of what a frame is made of, in bytes.
pub mod frame {
    /// Length of a `FrameHead`.
    pub const FRAME_HEAD_LEN: usize = 24;
    /// Length of the deadline.
    pub const DEADLINE_LEN: usize = 8;
    /// Length of an `AreaRange`.
    pub const AREA_RANGE_LEN: usize = 16;
}

/// Bits of `features` in a handshake message.
pub mod feature {
    /// The server says in its control page how busy it is, and the client looks there.
    pub const LOAD: u64 = 0x01;
    /// Messages may have parts in the pool that `pool` names. In force only where both name the same one.
    pub const POOL: u64 = 0x02;
    /// The client presents a token that the server gave it over TCP, and the server answers it.
    pub const UPGRADE: u64 = 0x04;
    /// Each side gives the other a doorbell that is rung by reading, as its first word after the handshake.
    pub const DOORBELL: u64 = 0x08;
    /// The client, a gateway, may ask the server to join a pool of the gateway's; what it sends may be a segmented message of that one then.
    pub const LENDING: u64 = 0x10;
}

/// Values of `kind` in a handshake message.
pub mod kind {
    /// A client asks for a session.
    pub const HELLO: u32 = 1;
    /// The server agrees; `ver_min` and `ver_max` both hold the version chosen.
    pub const WELCOME: u32 = 2;
    /// The server declines; `reason` and `text` say why.
    pub const REFUSAL: u32 = 3;
    /// A process asks a gateway for a session in which the gateway is the client.
    pub const ATTACH: u32 = 4;
    /// A client asks a gateway for a session whose calls the gateway makes elsewhere.
    pub const VIA: u32 = 5;
}

/// Values of `reason` in a handshake message.
pub mod reason {
    /// No version in common.
    pub const VERSION: u32 = 1;
    /// A required feature is not known.
    pub const FEATURE: u32 = 2;
    /// The peer's user is not allowed.
    pub const USER: u32 = 3;
    /// The region or a size was not acceptable.
    pub const REGION: u32 = 4;
    /// The server is at its limit or out of a resource; try later.
    pub const BUSY: u32 = 5;
    /// The message was not a handshake.
    pub const MALFORMED: u32 = 6;
    /// The token is not one that the server has given out, or not any more.
    pub const TOKEN: u32 = 7;
    /// The server gave the token out over another connection than the client's.
    pub const ENDS: u32 = 8;
}

/// Versions, features and lengths of the handshake.
pub mod handshake {
    /// The oldest version this code speaks.
    pub const VERSION_MIN: u16 = 1;
    /// The newest version this code speaks.
    pub const VERSION_MAX: u16 = 1;
    /// Length of a token, and of the answer to one.
    pub const TOKEN_LEN: usize = 16;
    /// Length of an IP address in a message.
    pub const TCP_ADDRESS_LEN: usize = 16;
    /// Length of what the backend connections of one server have in common.
    pub const PROCESS_ID_LEN: usize = 16;
}

/// Lengths of names and values of metadata, in bytes.
pub mod metadata {
    /// Longest name that a pair can carry.
    pub const NAME_LEN_MAX: usize = 255;
    /// Longest value that a pair can carry.
    pub const VALUE_LEN_MAX: usize = 65_535;
}

/// Lengths of what a segmented message is made of, in bytes.
pub mod segmented {
    /// Length of a `SegmentedHead`.
    pub const SEGMENTED_HEAD_LEN: usize = 8;
    /// Length of a `SegmentEntry`.
    pub const SEGMENT_ENTRY_LEN: usize = 64;
}

/// Pools: extents, refs, messages.
pub mod pool {
    /// The version of all that is described here.
    pub const POOL_VERSION: u32 = 1;
    /// Length of a pool's name of random bytes.
    pub const POOL_ID_LEN: usize = 16;
    /// Where an extent's directory begins.
    pub const DIRECTORY_OFF: usize = 4096;
    /// Length of a directory entry.
    pub const ENTRY_LEN: usize = 16;
    /// Length of a word of a row.
    pub const HOLD_LEN: usize = 8;
    /// Length of a ref as it travels.
    pub const REF_LEN: usize = 56;
    /// Length of a message.
    pub const POOL_MESSAGE_LEN: usize = 80;
    /// Length of the secret with which a member comes back.
    pub const SECRET_LEN: usize = 16;
    /// Pages of the smallest extent.
    pub const EXTENT_PAGE_COUNT_MIN: usize = 16;
    /// Pages of the largest extent: 1 GiB of data.
    pub const EXTENT_PAGE_COUNT_MAX: usize = 262_144;
    /// Most holds that one reader has of one block.
    pub const HOLD_COUNT_MAX: u32 = 4_294_967_295;
    /// Bits of a generation; above them in the same word stand pages.
    pub const GENERATION_BITS: u32 = 45;
    /// The last generation that a block can have.
    pub const GENERATION_MAX: u64 = 35_184_372_088_831;
}

/// Values of `kind` in a message of a pool.
pub mod pool_kind {
    /// Member: I want in. `pool`, `member` and `secret` are zero, or those of before the connection was lost.
    pub const JOIN: u32 = 1;
    /// Coordinator: you are in, as `member` of `pool`, and come back with `secret`; `amount` is your quota, `len` the data bytes of an ordinary extent.
    pub const WELCOME: u32 = 2;
    /// Coordinator: you are not, for `reason`. The socket closes.
    pub const REFUSAL: u32 = 3;
    /// Member: I need `amount` bytes of capacity.
    pub const NEED: u32 = 4;
    /// Coordinator: here is the right to `amount` bytes.
    pub const GRANT: u32 = 5;
    /// Coordinator: there are not as many, for `reason`.
    pub const DENY: u32 = 6;
    /// Member: I have made `extent`, of `amount` data bytes, out of what was granted.
    pub const EXTENT: u32 = 7;
    /// Coordinator: others can map your `extent` now.
    pub const EXTENT_OK: u32 = 8;
    /// Member: I need `extent` of `member`.
    pub const MAP: u32 = 9;
    /// Coordinator: here it is, of `amount` data bytes; descriptors: the extent, its owner's life.
    pub const MAPPED: u32 = 10;
    /// Member, then coordinator to the owner: this descriptor is my row for `extent` of `member`, its number is `len`; `amount` is my process id. To the owner, `member` is the reader, and its life is a second descriptor.
    pub const ROW: u32 = 11;
    /// Owner: I look at row `len` that `member` keeps for my `extent`.
    pub const ROW_OK: u32 = 12;
    /// Owner: my `extent` can't be given to `member`, or its row not be looked at, for `reason`.
    pub const NOT_HAD: u32 = 13;
    /// Coordinator: the owner looks at your row `len` for `extent` of `member`.
    pub const WATCHED: u32 = 14;
    /// Coordinator: you can't have `extent` of `member`, for `reason`.
    pub const MAP_FAILED: u32 = 15;
    /// Member: I have more than I need, by `amount` bytes.
    pub const SURPLUS: u32 = 16;
    /// Coordinator: give back what you can spare, up to `amount` bytes.
    pub const TAKE_BACK: u32 = 17;
    /// Member: I gave up `extent` (0: a grant that I made none of), and with it `amount` bytes.
    pub const RETURNED: u32 = 18;
    /// Coordinator: the owner of `extent` of `member` has given it up.
    pub const DROP: u32 = 19;
    /// Member: I no longer map `extent` of `member`.
    pub const UNMAPPED: u32 = 20;
    /// Member that comes back, before RESUMED: I map `extent` of `member`, of `amount` data bytes.
    pub const PRESENT: u32 = 21;
    /// Member that comes back: EXTENT and PRESENT have told of all that I have and map.
    pub const RESUMED: u32 = 22;
    /// Coordinator to the owner: `member` wants to map your `extent`.
    pub const WANTED: u32 = 23;
    /// Owner: here is my `extent`, for `member`; descriptor: the extent.
    pub const GIVE: u32 = 24;
    /// Member: I leave. I hold nothing, and take hold of nothing any more.
    pub const LEAVE: u32 = 25;
    /// Coordinator: `member` has left, or its process has ended.
    pub const LEFT: u32 = 26;
    /// Anybody, in place of JOIN: who is there, and with how much?
    pub const SHOW: u32 = 27;
    /// Coordinator: the pool has `amount` bytes, of which `len` are granted or still mapped, and `extent` members.
    pub const SHOWN: u32 = 28;
    /// Coordinator: `member` was granted `amount` bytes, `len` of which are extents; `extent` is its process id or 0, `reason` one of `standing`.
    pub const SHOWN_MEMBER: u32 = 29;
}

/// How a member stands with the coordinator.
pub mod standing {
    /// It is connected.
    pub const ATTACHED: u32 = 0;
    /// It has come back, and has not told of all that it has.
    pub const RETURNING: u32 = 1;
    /// It lives, and its connection is lost: what it has and maps stays until it ends.
    pub const CUT_OFF: u32 = 2;
}

/// Why a request of a pool is refused.
pub mod pool_reason {
    /// No such member or extent: dead, given up, or never there.
    pub const GONE: u32 = 1;
    /// It would exceed the member's quota.
    pub const QUOTA: u32 = 2;
    /// The pool has no more.
    pub const CAPACITY: u32 = 3;
    /// The coordinator keeps another pool.
    pub const POOL: u32 = 4;
    /// Another version.
    pub const VERSION: u32 = 5;
    /// The other side reads too slowly, or there are too many; try later.
    pub const BUSY: u32 = 6;
    /// Another user.
    pub const USER: u32 = 7;
    /// The message makes no sense.
    pub const MALFORMED: u32 = 8;
    /// The kernel doesn't let the coordinator watch the member's process.
    pub const LIFE: u32 = 9;
    /// The pool is for those who were invited, and this one was not.
    pub const INVITATION: u32 = 10;
}

/// Numbers of errors; spec/errors.md says what to do.
pub mod errors {
    /// The text is no address of a session.
    pub const ADDRESS_SCHEME: u16 = 101;
    /// The address has no absolute path.
    pub const ADDRESS_NOT_ABSOLUTE: u16 = 102;
    /// The path or name is longer than a socket's can be.
    pub const ADDRESS_TOO_LONG: u16 = 103;
    /// The address names no socket, or has a NUL in its name.
    pub const ADDRESS_EMPTY: u16 = 104;
    /// The program was built for another system than Linux.
    pub const NEEDS_LINUX: u16 = 105;
    /// A server that lives has the address.
    pub const BIND_IN_USE: u16 = 111;
    /// Something that is no socket lies at the path.
    pub const BIND_NOT_A_SOCKET: u16 = 112;
    /// The socket's directory can't be used.
    pub const BIND_DIRECTORY: u16 = 113;
    /// The socket that was passed is none that can be served.
    pub const BIND_PASSED_SOCKET: u16 = 114;
    /// The process can't have, or may not share, memory.
    pub const BIND_NO_MEMORY: u16 = 115;
    /// The kernel refuses for another reason.
    pub const BIND_FAILED: u16 = 116;
    /// There is no socket at the path.
    pub const CONNECT_NO_SOCKET: u16 = 201;
    /// A socket is there, and its server has died.
    pub const CONNECT_NOBODY_LISTENS: u16 = 202;
    /// Something that is no socket lies at the path.
    pub const CONNECT_NOT_A_SOCKET: u16 = 203;
    /// The socket may not be opened by this user.
    pub const CONNECT_NO_PERMISSION: u16 = 204;
    /// The kernel refuses for another reason.
    pub const CONNECT_FAILED: u16 = 205;
    /// The socket failed in the handshake.
    pub const HANDSHAKE_SOCKET: u16 = 211;
    /// The peer has not answered in time.
    pub const HANDSHAKE_TIMEOUT: u16 = 212;
    /// The peer hung up in the handshake.
    pub const HANDSHAKE_HUNG_UP: u16 = 213;
    /// The peer's process has died, and one forked from it keeps its socket.
    pub const HANDSHAKE_PEER_DIED: u16 = 214;
    /// Many connect at once, and this one has said nothing yet.
    pub const HANDSHAKE_CROWDED: u16 = 215;
    /// The process or user has all that it may have of this server.
    pub const HANDSHAKE_QUOTA: u16 = 216;
    /// The server has no descriptors left.
    pub const HANDSHAKE_DESCRIPTORS: u16 = 217;
    /// The server is shutting down.
    pub const HANDSHAKE_CLOSING: u16 = 218;
    /// The peer speaks HTTP/2.
    pub const HANDSHAKE_HTTP2: u16 = 219;
    /// The peer speaks another protocol.
    pub const HANDSHAKE_OTHER_PROTOCOL: u16 = 220;
    /// The peer's message makes no sense.
    pub const HANDSHAKE_MALFORMED: u16 = 221;
    /// The sides have no version in common.
    pub const HANDSHAKE_VERSION: u16 = 222;
    /// The peer requires a feature that this side lacks.
    pub const HANDSHAKE_FEATURE: u16 = 223;
    /// The peer runs as a user that is not allowed.
    pub const HANDSHAKE_USER: u16 = 224;
    /// One side's memory can't be used.
    pub const HANDSHAKE_MEMORY: u16 = 225;
    /// The peer announces a size that the protocol does not allow.
    pub const HANDSHAKE_SIZE: u16 = 226;
    /// The client's token is not good.
    pub const HANDSHAKE_TOKEN: u16 = 227;
    /// TLS says that the peer is not what it should be.
    pub const HANDSHAKE_TLS: u16 = 228;
    /// A certificate's file of this process can't be used.
    pub const HANDSHAKE_CERTIFICATES: u16 = 229;
    /// The peer's certificate names nobody who may attach.
    pub const HANDSHAKE_NO_CERTIFICATE: u16 = 230;
    /// The server has not answered the client's token.
    pub const HANDSHAKE_NO_ANSWER: u16 = 231;
    /// A server listens where a gateway was wanted.
    pub const HANDSHAKE_NO_GATEWAY: u16 = 232;
    /// A gateway listens where a server was wanted.
    pub const HANDSHAKE_GATEWAY: u16 = 233;
    /// The server refused, in words of its own.
    pub const HANDSHAKE_REFUSED: u16 = 234;
    /// The peer has ended the session.
    pub const SESSION_CLOSED_BY_PEER: u16 = 301;
    /// The peer has died, or let go of the session.
    pub const SESSION_HUNG_UP: u16 = 302;
    /// This side has ended the session.
    pub const SESSION_CLOSED_HERE: u16 = 303;
    /// A frame's parts do not add up to its record.
    pub const VIOLATION_FRAME_LEN: u16 = 311;
    /// Events or flags that do not go together.
    pub const VIOLATION_FRAME_KIND: u16 = 312;
    /// A stream opened out of turn, or never.
    pub const VIOLATION_STREAM_ID: u16 = 313;
    /// More calls at once than were allowed.
    pub const VIOLATION_STREAM_COUNT: u16 = 314;
    /// A method's index that was not named, or out of turn.
    pub const VIOLATION_METHOD_INDEX: u16 = 315;
    /// A method's path that is none.
    pub const VIOLATION_METHOD_PATH: u16 = 316;
    /// An event that its stream's state does not allow.
    pub const VIOLATION_ORDER: u16 = 317;
    /// A chunk that does not fit its message.
    pub const VIOLATION_CHUNK: u16 = 318;
    /// More bytes than there was credit for.
    pub const VIOLATION_OVERDRAWN: u16 = 319;
    /// Credit that overflows.
    pub const VIOLATION_CREDIT_OVERFLOW: u16 = 320;
    /// Metadata longer than was announced.
    pub const VIOLATION_METADATA_LEN: u16 = 321;
    /// Metadata that can't be parsed.
    pub const VIOLATION_METADATA: u16 = 322;
    /// A chunk outside of every payload area.
    pub const VIOLATION_AREA_RANGE: u16 = 323;
    /// A control code that is not known, or out of turn.
    pub const VIOLATION_CONTROL: u16 = 324;
    /// A forged sequence, length or cursor in the ring.
    pub const VIOLATION_RING: u16 = 325;
    /// Doorbells or descriptors that no peer sends.
    pub const VIOLATION_SOCKET: u16 = 326;
    /// The call has ended, or this end has said all that it may.
    pub const CALL_ENDED: u16 = 401;
    /// The server takes no new calls in this session.
    pub const CALL_DRAINING: u16 = 402;
    /// As many calls are under way as the server takes at once.
    pub const CALL_STREAM_COUNT: u16 = 403;
    /// The metadata are longer than the peer takes.
    pub const CALL_METADATA_LEN: u16 = 404;
    /// The method's path is empty or too long.
    pub const CALL_METHOD_PATH: u16 = 405;
    /// The message is longer than the protocol carries.
    pub const CALL_MESSAGE_LEN: u16 = 406;
    /// The message can't be encoded.
    pub const CALL_MISENCODED: u16 = 407;
    /// This part of a call may not be said now.
    pub const CALL_OUT_OF_ORDER: u16 = 408;
    /// The answer's headers were said before.
    pub const CALL_HEADERS_SAID: u16 = 409;
    /// No call can begin in the session: it is over, draining or not there yet.
    pub const CALL_NO_SESSION: u16 = 410;
    /// A server's session begins no calls.
    pub const CALL_NOT_A_CLIENT: u16 = 411;
    /// A client's session answers no calls.
    pub const CALL_NOT_A_SERVER: u16 = 412;
    /// The loop was freed, or never was.
    pub const USE_LOOP: u16 = 501;
    /// The loop belongs to another thread.
    pub const USE_THREAD: u16 = 502;
    /// The loop is at work: a release function has called it.
    pub const USE_BUSY: u16 = 503;
    /// The loop is that of the process from which this one was forked.
    pub const USE_FORKED: u16 = 504;
    /// A pointer that has to point somewhere is null.
    pub const USE_NULL: u16 = 505;
    /// A length is longer than memory can be, or reaches beyond its buffer.
    pub const USE_LENGTH: u16 = 506;
    /// The first member of a structure is not a size that this library knows.
    pub const USE_SIZE: u16 = 507;
    /// The buffer was released, or never was.
    pub const USE_BUFFER: u16 = 508;
    /// A value is none of those that the header lists.
    pub const USE_VALUE: u16 = 509;
    /// The session or listener is over, or is another loop's.
    pub const USE_SESSION: u16 = 510;
    /// A name or value of metadata is none that gRPC carries.
    pub const METADATA_PAIR: u16 = 511;
    /// A block of metadata ends in the middle of a pair.
    pub const METADATA_BLOCK: u16 = 512;
    /// The kernel refuses; the text has its words.
    pub const SYSTEM_REFUSED: u16 = 513;
    /// The library has failed within itself; the loop is of no more use.
    pub const LIBRARY_FAULT: u16 = 514;
    /// The blob is no table of message types.
    pub const TABLE_BLOB: u16 = 521;
    /// The table or object was released, or never was.
    pub const TABLE_HANDLE: u16 = 522;
    /// The table has no message type of that name.
    pub const TABLE_TYPE: u16 = 523;
    /// The bytes are no flat message of that type, or lack a required field.
    pub const OBJECT_UNSOUND: u16 = 524;
    /// The path leads to no field, or to a field of another type.
    pub const OBJECT_FIELD: u16 = 525;
    /// The pool was released, or never was.
    pub const POOL_HANDLE: u16 = 531;
    /// The pool can't be made or joined.
    pub const POOL_JOIN: u16 = 532;
    /// The pool has no room for the bytes.
    pub const POOL_FULL: u16 = 533;
    /// All of them with their names, in order.
    pub const ALL: &[(u16, &str)] = &[
        (ADDRESS_SCHEME, "ADDRESS_SCHEME"),
        (ADDRESS_NOT_ABSOLUTE, "ADDRESS_NOT_ABSOLUTE"),
        (ADDRESS_TOO_LONG, "ADDRESS_TOO_LONG"),
        (ADDRESS_EMPTY, "ADDRESS_EMPTY"),
        (NEEDS_LINUX, "NEEDS_LINUX"),
        (BIND_IN_USE, "BIND_IN_USE"),
        (BIND_NOT_A_SOCKET, "BIND_NOT_A_SOCKET"),
        (BIND_DIRECTORY, "BIND_DIRECTORY"),
        (BIND_PASSED_SOCKET, "BIND_PASSED_SOCKET"),
        (BIND_NO_MEMORY, "BIND_NO_MEMORY"),
        (BIND_FAILED, "BIND_FAILED"),
        (CONNECT_NO_SOCKET, "CONNECT_NO_SOCKET"),
        (CONNECT_NOBODY_LISTENS, "CONNECT_NOBODY_LISTENS"),
        (CONNECT_NOT_A_SOCKET, "CONNECT_NOT_A_SOCKET"),
        (CONNECT_NO_PERMISSION, "CONNECT_NO_PERMISSION"),
        (CONNECT_FAILED, "CONNECT_FAILED"),
        (HANDSHAKE_SOCKET, "HANDSHAKE_SOCKET"),
        (HANDSHAKE_TIMEOUT, "HANDSHAKE_TIMEOUT"),
        (HANDSHAKE_HUNG_UP, "HANDSHAKE_HUNG_UP"),
        (HANDSHAKE_PEER_DIED, "HANDSHAKE_PEER_DIED"),
        (HANDSHAKE_CROWDED, "HANDSHAKE_CROWDED"),
        (HANDSHAKE_QUOTA, "HANDSHAKE_QUOTA"),
        (HANDSHAKE_DESCRIPTORS, "HANDSHAKE_DESCRIPTORS"),
        (HANDSHAKE_CLOSING, "HANDSHAKE_CLOSING"),
        (HANDSHAKE_HTTP2, "HANDSHAKE_HTTP2"),
        (HANDSHAKE_OTHER_PROTOCOL, "HANDSHAKE_OTHER_PROTOCOL"),
        (HANDSHAKE_MALFORMED, "HANDSHAKE_MALFORMED"),
        (HANDSHAKE_VERSION, "HANDSHAKE_VERSION"),
        (HANDSHAKE_FEATURE, "HANDSHAKE_FEATURE"),
        (HANDSHAKE_USER, "HANDSHAKE_USER"),
        (HANDSHAKE_MEMORY, "HANDSHAKE_MEMORY"),
        (HANDSHAKE_SIZE, "HANDSHAKE_SIZE"),
        (HANDSHAKE_TOKEN, "HANDSHAKE_TOKEN"),
        (HANDSHAKE_TLS, "HANDSHAKE_TLS"),
        (HANDSHAKE_CERTIFICATES, "HANDSHAKE_CERTIFICATES"),
        (HANDSHAKE_NO_CERTIFICATE, "HANDSHAKE_NO_CERTIFICATE"),
        (HANDSHAKE_NO_ANSWER, "HANDSHAKE_NO_ANSWER"),
        (HANDSHAKE_NO_GATEWAY, "HANDSHAKE_NO_GATEWAY"),
        (HANDSHAKE_GATEWAY, "HANDSHAKE_GATEWAY"),
        (HANDSHAKE_REFUSED, "HANDSHAKE_REFUSED"),
        (SESSION_CLOSED_BY_PEER, "SESSION_CLOSED_BY_PEER"),
        (SESSION_HUNG_UP, "SESSION_HUNG_UP"),
        (SESSION_CLOSED_HERE, "SESSION_CLOSED_HERE"),
        (VIOLATION_FRAME_LEN, "VIOLATION_FRAME_LEN"),
        (VIOLATION_FRAME_KIND, "VIOLATION_FRAME_KIND"),
        (VIOLATION_STREAM_ID, "VIOLATION_STREAM_ID"),
        (VIOLATION_STREAM_COUNT, "VIOLATION_STREAM_COUNT"),
        (VIOLATION_METHOD_INDEX, "VIOLATION_METHOD_INDEX"),
        (VIOLATION_METHOD_PATH, "VIOLATION_METHOD_PATH"),
        (VIOLATION_ORDER, "VIOLATION_ORDER"),
        (VIOLATION_CHUNK, "VIOLATION_CHUNK"),
        (VIOLATION_OVERDRAWN, "VIOLATION_OVERDRAWN"),
        (VIOLATION_CREDIT_OVERFLOW, "VIOLATION_CREDIT_OVERFLOW"),
        (VIOLATION_METADATA_LEN, "VIOLATION_METADATA_LEN"),
        (VIOLATION_METADATA, "VIOLATION_METADATA"),
        (VIOLATION_AREA_RANGE, "VIOLATION_AREA_RANGE"),
        (VIOLATION_CONTROL, "VIOLATION_CONTROL"),
        (VIOLATION_RING, "VIOLATION_RING"),
        (VIOLATION_SOCKET, "VIOLATION_SOCKET"),
        (CALL_ENDED, "CALL_ENDED"),
        (CALL_DRAINING, "CALL_DRAINING"),
        (CALL_STREAM_COUNT, "CALL_STREAM_COUNT"),
        (CALL_METADATA_LEN, "CALL_METADATA_LEN"),
        (CALL_METHOD_PATH, "CALL_METHOD_PATH"),
        (CALL_MESSAGE_LEN, "CALL_MESSAGE_LEN"),
        (CALL_MISENCODED, "CALL_MISENCODED"),
        (CALL_OUT_OF_ORDER, "CALL_OUT_OF_ORDER"),
        (CALL_HEADERS_SAID, "CALL_HEADERS_SAID"),
        (CALL_NO_SESSION, "CALL_NO_SESSION"),
        (CALL_NOT_A_CLIENT, "CALL_NOT_A_CLIENT"),
        (CALL_NOT_A_SERVER, "CALL_NOT_A_SERVER"),
        (USE_LOOP, "USE_LOOP"),
        (USE_THREAD, "USE_THREAD"),
        (USE_BUSY, "USE_BUSY"),
        (USE_FORKED, "USE_FORKED"),
        (USE_NULL, "USE_NULL"),
        (USE_LENGTH, "USE_LENGTH"),
        (USE_SIZE, "USE_SIZE"),
        (USE_BUFFER, "USE_BUFFER"),
        (USE_VALUE, "USE_VALUE"),
        (USE_SESSION, "USE_SESSION"),
        (METADATA_PAIR, "METADATA_PAIR"),
        (METADATA_BLOCK, "METADATA_BLOCK"),
        (SYSTEM_REFUSED, "SYSTEM_REFUSED"),
        (LIBRARY_FAULT, "LIBRARY_FAULT"),
        (TABLE_BLOB, "TABLE_BLOB"),
        (TABLE_HANDLE, "TABLE_HANDLE"),
        (TABLE_TYPE, "TABLE_TYPE"),
        (OBJECT_UNSOUND, "OBJECT_UNSOUND"),
        (OBJECT_FIELD, "OBJECT_FIELD"),
        (POOL_HANDLE, "POOL_HANDLE"),
        (POOL_JOIN, "POOL_JOIN"),
        (POOL_FULL, "POOL_FULL"),
    ];
}
