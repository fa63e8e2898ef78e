/* Every number of the protocol: written from spec/constants.toml, and not to be changed here. */
#ifndef TOLLFREE_CONSTANTS_H
#define TOLLFREE_CONSTANTS_H

#include "tollfree_errors.h"

/* Sizes and counts; lengths are in bytes. */
#define TOLLFREE_LINE_LEN 64u /* A cache line: the unit in which rings are laid out. */
#define TOLLFREE_PAGE_LEN 4096u /* The unit in which regions are sized, and the length of the control page. */
#define TOLLFREE_RING_LEN_DEFAULT 32768u /* Length of the ring a side creates unless it has reason to differ. */
#define TOLLFREE_RING_LEN_MIN 4096u /* The shortest ring a peer may announce. */
#define TOLLFREE_RING_LEN_MAX 32768u /* The longest ring a peer may announce: a session starts with at most 64 KiB a side. */
#define TOLLFREE_REGION_LEN_MAX 65536u /* A session starts with at most this much memory a side. */
#define TOLLFREE_AREA_LEN_DEFAULT 524288u /* Length of a payload area when the first large message asks for one. */
#define TOLLFREE_AREA_LEN_MIN 65536u /* The shortest payload area a peer may offer. */
#define TOLLFREE_AREA_LEN_MAX 16777216u /* The longest payload area a peer may offer. */
#define TOLLFREE_AREA_CHUNK_SHARE 4u /* The share of an area that one chunk may take: 1 / `AREA_CHUNK_SHARE`. */
#define TOLLFREE_HELLO_LEN 288u /* Both handshake messages have this length. */
#define TOLLFREE_HELLO_TEXT_MAX 120u /* Longest text (agent, refusal) inside a handshake message. */
#define TOLLFREE_REGISTRATION_LEN_MAX 8192u /* Longest registration at a gateway. */
#define TOLLFREE_GROUP_LEN_MAX 64u /* Longest name of a group. */
#define TOLLFREE_SERVICE_LEN_MAX 255u /* Longest name of a service that attaches. */
#define TOLLFREE_SERVICE_COUNT_MAX 256u /* Services of one process that attaches. */
#define TOLLFREE_TARGET_LEN_MAX 1024u /* Longest target of calls via a gateway. */
#define TOLLFREE_METADATA_LEN_MAX 15360u /* Longest block of metadata (headers or trailers, as packed) unless configured lower. */
#define TOLLFREE_METHOD_PATH_LEN_MAX 1024u /* Longest path of a method, as in `/package.Service/Method`. */
#define TOLLFREE_METHOD_COUNT_MAX 4096u /* Methods that one session may intern. */
#define TOLLFREE_METHOD_PATHS_LEN_MAX 262144u /* Bytes of the paths of all methods that one session interns, together. */
#define TOLLFREE_MESSAGE_LEN_MAX 4294967295u /* Longest message the protocol can carry. */
#define TOLLFREE_MESSAGE_LEN_DEFAULT 4194304u /* What gRPC receives unless told otherwise. */
#define TOLLFREE_OBJECT_LEN_MAX 4194304u /* Longest message that travels as a flat message; a longer one is encoded. */
#define TOLLFREE_STREAM_COUNT_DEFAULT 1024u /* Concurrent calls of one session unless configured otherwise. */
#define TOLLFREE_STREAM_WINDOW_DEFAULT 65536u /* Credit in bytes that a stream starts with unless configured otherwise. */
#define TOLLFREE_STREAM_WINDOW_MAX 1048576u /* Credit up to which a receiver raises the window of a stream whose reader keeps up. */
#define TOLLFREE_MESSAGE_WINDOW_MAX 4194304u /* Credit up to which a receiver raises the window of a stream on which a longer message begins. */
#define TOLLFREE_WINDOW_RESERVE 16777216u /* Credit a session keeps for raising windows, beside what every stream starts with. */
#define TOLLFREE_CHUNK_CHARGE 64u /* What every chunk costs in credit beside its bytes, so that empty messages are not free. */
#define TOLLFREE_SEGMENTED_REF_COUNT_MAX 1024u /* Refs in one segmented message. */
#define TOLLFREE_SEGMENTED_COUNT_MAX 1024u /* Segmented messages that a sender keeps for a peer that has not taken them, unless it says so earlier; further messages go inline. */
#define TOLLFREE_ASKED_SPIN_US_MAX 1000000u /* The longest that a gateway can ask a process to look before it sleeps, in microseconds. */
#define TOLLFREE_ASKED_LOOK_US 10000u /* How long a process looks that is asked to, where it is not said for how long, in microseconds. */

/* Offsets in the control page, and values in it. */
#define TOLLFREE_CONSUMED_OFF 64u /* Offset of `consumed` (u64). */
#define TOLLFREE_WAITING_OFF 128u /* Offset of `waiting` (u32). */
#define TOLLFREE_CPU_OFF 132u /* Offset of `cpu` (u32). */
#define TOLLFREE_LOAD_OFF 192u /* Offset of `load` (u32). */
#define TOLLFREE_ASKED_OFF 256u /* Offset of `asked` (u64). */
#define TOLLFREE_RING_OFF 4096u /* Offset of the ring. */
#define TOLLFREE_CPU_UNKNOWN 4294967295u /* `cpu` of a side that does not say where it runs. */

/* Records of a ring. */
#define TOLLFREE_RECORD_HEAD_LEN 8u /* Length of the head word. */
#define TOLLFREE_RECORD_HEAD_EMPTY 0u /* The head word of a line that holds no record yet. */

/* Bits of `events` in a frame. */
#define TOLLFREE_HEADERS 1u /* Request or response headers. From a client, `code` is the method's index. */
#define TOLLFREE_MESSAGE 2u /* A chunk of a message. */
#define TOLLFREE_HALF_CLOSE 4u /* The client sends no more messages. */
#define TOLLFREE_TRAILERS 8u /* The server's last word: `code` is the gRPC status. */
#define TOLLFREE_CANCEL 16u /* The stream ends at once in both directions: `code` is the gRPC status that says why. */
#define TOLLFREE_CREDIT 32u /* The receiver grants `chunk_len` more bytes, to the stream or (stream 0) to the session. */
#define TOLLFREE_DRAIN 64u /* The server takes no stream above `stream` any more; those above it were not looked at. */
#define TOLLFREE_CONTROL 128u /* About the session's memory or end; `code` is one of `control`. */

/* Bits of `flags` in a frame. */
#define TOLLFREE_FIRST 1u /* The chunk begins a message; `message_len` is the length of the whole. */
#define TOLLFREE_LAST 2u /* The chunk ends its message. */
#define TOLLFREE_COMPRESSED 4u /* The message is compressed as the `grpc-encoding` header says (on its first chunk). */
#define TOLLFREE_IN_AREA 8u /* The chunk lies in a payload area; an `AreaRange` stands in its place. */
#define TOLLFREE_NAMES_METHOD 16u /* The headers block begins with the method's path (u16 length, bytes), bound to the index `code` from now on. */
#define TOLLFREE_BATCH 16u /* With MESSAGE, but for a client's HEADERS, where NAMES_METHOD has no meaning: the chunk is a batch, several whole messages, each behind gRPC's prefix, and `message_len` says how many. */
#define TOLLFREE_HAS_DEADLINE 32u /* The deadline follows the head: u64, nanoseconds on the sender's monotonic clock. */
#define TOLLFREE_REFUSED 64u /* Cancelled before any part of the call was looked at: safe to send again elsewhere. */
#define TOLLFREE_OBJECT 64u /* With MESSAGE, where REFUSED has no meaning: the message is a flat message (`flat`), on its first chunk; with SEGMENTED, one that lies in the pool. For a server that takes such, and in its answer (`OBJECTS`). */
#define TOLLFREE_KNOWN_FLAGS 127u /* All bits that version 1 knows without features. */
#define TOLLFREE_SEGMENTED 128u /* The message is a segmented message: parts of it lie in the pool that both sides are members of (on its first chunk). With the feature POOL. */

/* Values of `code` in a CONTROL frame. */
#define TOLLFREE_AREA_OFFER 1u /* A payload area was made: `chunk_len` its length, `stream` its index; its fd is the next on the socket. */
#define TOLLFREE_AREA_ACCEPT 2u /* The area `stream` is mapped and may be used. */
#define TOLLFREE_AREA_REFUSE 3u /* The area `stream` could not be mapped: go on without. */
#define TOLLFREE_AREA_DROP 4u /* The area `stream` will not be referred to again. */
#define TOLLFREE_CLOSE 5u /* The session ends; the headers block holds the reason as UTF-8 text. */
#define TOLLFREE_SEGMENTED_TAKEN 6u /* With the feature POOL: `chunk_len` segmented messages from the number `stream` on need not be kept any longer. */
#define TOLLFREE_SEGMENTED_WANTED 7u /* With the feature POOL: the bytes of all refs of the segmented message `stream` are wanted inline; `chunk_len` is how many. */
#define TOLLFREE_SEGMENTED_BYTES 8u /* With the feature POOL: the next `chunk_len` of the bytes wanted of the segmented message `stream` follow the head; 0: no more come. */
#define TOLLFREE_OBJECTS 9u /* From a server: messages of the method `chunk_len` are taken as flat messages, and calls with such are answered so, where `stream` is the fingerprint of the method's types. */

/* Lengths of what a frame is made of, in bytes. */
#define TOLLFREE_FRAME_HEAD_LEN 24u /* Length of a `FrameHead`. */
#define TOLLFREE_DEADLINE_LEN 8u /* Length of the deadline. */
#define TOLLFREE_AREA_RANGE_LEN 16u /* Length of an `AreaRange`. */

/* Bits of `features` in a handshake message. */
#define TOLLFREE_FEATURE_LOAD 1u /* The server says in its control page how busy it is, and the client looks there. */
#define TOLLFREE_FEATURE_POOL 2u /* Messages may have parts in the pool that `pool` names. In force only where both name the same one. */
#define TOLLFREE_FEATURE_UPGRADE 4u /* The client presents a token that the server gave it over TCP, and the server answers it. */
#define TOLLFREE_FEATURE_DOORBELL 8u /* Each side gives the other a doorbell that is rung by reading, as its first word after the handshake. */
#define TOLLFREE_FEATURE_LENDING 16u /* The client, a gateway, may ask the server to join a pool of the gateway's; what it sends may be a segmented message of that one then. */

/* Values of `kind` in a handshake message. */
#define TOLLFREE_KIND_HELLO 1u /* A client asks for a session. */
#define TOLLFREE_KIND_WELCOME 2u /* The server agrees; `ver_min` and `ver_max` both hold the version chosen. */
#define TOLLFREE_KIND_REFUSAL 3u /* The server declines; `reason` and `text` say why. */
#define TOLLFREE_KIND_ATTACH 4u /* A process asks a gateway for a session in which the gateway is the client. */
#define TOLLFREE_KIND_VIA 5u /* A client asks a gateway for a session whose calls the gateway makes elsewhere. */

/* Values of `reason` in a handshake message. */
#define TOLLFREE_REASON_VERSION 1u /* No version in common. */
#define TOLLFREE_REASON_FEATURE 2u /* A required feature is not known. */
#define TOLLFREE_REASON_USER 3u /* The peer's user is not allowed. */
#define TOLLFREE_REASON_REGION 4u /* The region or a size was not acceptable. */
#define TOLLFREE_REASON_BUSY 5u /* The server is at its limit or out of a resource; try later. */
#define TOLLFREE_REASON_MALFORMED 6u /* The message was not a handshake. */
#define TOLLFREE_REASON_TOKEN 7u /* The token is not one that the server has given out, or not any more. */
#define TOLLFREE_REASON_ENDS 8u /* The server gave the token out over another connection than the client's. */

/* Versions, features and lengths of the handshake. */
#define TOLLFREE_VERSION_MIN 1u /* The oldest version this code speaks. */
#define TOLLFREE_VERSION_MAX 1u /* The newest version this code speaks. */
#define TOLLFREE_TOKEN_LEN 16u /* Length of a token, and of the answer to one. */
#define TOLLFREE_TCP_ADDRESS_LEN 16u /* Length of an IP address in a message. */
#define TOLLFREE_PROCESS_ID_LEN 16u /* Length of what the backend connections of one server have in common. */

/* Lengths of names and values of metadata, in bytes. */
#define TOLLFREE_NAME_LEN_MAX 255u /* Longest name that a pair can carry. */
#define TOLLFREE_VALUE_LEN_MAX 65535u /* Longest value that a pair can carry. */

/* Lengths of what a segmented message is made of, in bytes. */
#define TOLLFREE_SEGMENTED_HEAD_LEN 8u /* Length of a `SegmentedHead`. */
#define TOLLFREE_SEGMENT_ENTRY_LEN 64u /* Length of a `SegmentEntry`. */

/* Pools: extents, refs, messages. */
#define TOLLFREE_POOL_VERSION 1u /* The version of all that is described here. */
#define TOLLFREE_POOL_ID_LEN 16u /* Length of a pool's name of random bytes. */
#define TOLLFREE_DIRECTORY_OFF 4096u /* Where an extent's directory begins. */
#define TOLLFREE_ENTRY_LEN 16u /* Length of a directory entry. */
#define TOLLFREE_HOLD_LEN 8u /* Length of a word of a row. */
#define TOLLFREE_REF_LEN 56u /* Length of a ref as it travels. */
#define TOLLFREE_POOL_MESSAGE_LEN 80u /* Length of a message. */
#define TOLLFREE_SECRET_LEN 16u /* Length of the secret with which a member comes back. */
#define TOLLFREE_EXTENT_PAGE_COUNT_MIN 16u /* Pages of the smallest extent. */
#define TOLLFREE_EXTENT_PAGE_COUNT_MAX 262144u /* Pages of the largest extent: 1 GiB of data. */
#define TOLLFREE_HOLD_COUNT_MAX 4294967295u /* Most holds that one reader has of one block. */
#define TOLLFREE_GENERATION_BITS 45u /* Bits of a generation; above them in the same word stand pages. */
#define TOLLFREE_GENERATION_MAX 35184372088831ull /* The last generation that a block can have. */

/* Values of `kind` in a message of a pool. */
#define TOLLFREE_POOL_KIND_JOIN 1u /* Member: I want in. `pool`, `member` and `secret` are zero, or those of before the connection was lost. */
#define TOLLFREE_POOL_KIND_WELCOME 2u /* Coordinator: you are in, as `member` of `pool`, and come back with `secret`; `amount` is your quota, `len` the data bytes of an ordinary extent. */
#define TOLLFREE_POOL_KIND_REFUSAL 3u /* Coordinator: you are not, for `reason`. The socket closes. */
#define TOLLFREE_POOL_KIND_NEED 4u /* Member: I need `amount` bytes of capacity. */
#define TOLLFREE_POOL_KIND_GRANT 5u /* Coordinator: here is the right to `amount` bytes. */
#define TOLLFREE_POOL_KIND_DENY 6u /* Coordinator: there are not as many, for `reason`. */
#define TOLLFREE_POOL_KIND_EXTENT 7u /* Member: I have made `extent`, of `amount` data bytes, out of what was granted. */
#define TOLLFREE_POOL_KIND_EXTENT_OK 8u /* Coordinator: others can map your `extent` now. */
#define TOLLFREE_POOL_KIND_MAP 9u /* Member: I need `extent` of `member`. */
#define TOLLFREE_POOL_KIND_MAPPED 10u /* Coordinator: here it is, of `amount` data bytes; descriptors: the extent, its owner's life. */
#define TOLLFREE_POOL_KIND_ROW 11u /* Member, then coordinator to the owner: this descriptor is my row for `extent` of `member`, its number is `len`; `amount` is my process id. To the owner, `member` is the reader, and its life is a second descriptor. */
#define TOLLFREE_POOL_KIND_ROW_OK 12u /* Owner: I look at row `len` that `member` keeps for my `extent`. */
#define TOLLFREE_POOL_KIND_NOT_HAD 13u /* Owner: my `extent` can't be given to `member`, or its row not be looked at, for `reason`. */
#define TOLLFREE_POOL_KIND_WATCHED 14u /* Coordinator: the owner looks at your row `len` for `extent` of `member`. */
#define TOLLFREE_POOL_KIND_MAP_FAILED 15u /* Coordinator: you can't have `extent` of `member`, for `reason`. */
#define TOLLFREE_POOL_KIND_SURPLUS 16u /* Member: I have more than I need, by `amount` bytes. */
#define TOLLFREE_POOL_KIND_TAKE_BACK 17u /* Coordinator: give back what you can spare, up to `amount` bytes. */
#define TOLLFREE_POOL_KIND_RETURNED 18u /* Member: I gave up `extent` (0: a grant that I made none of), and with it `amount` bytes. */
#define TOLLFREE_POOL_KIND_DROP 19u /* Coordinator: the owner of `extent` of `member` has given it up. */
#define TOLLFREE_POOL_KIND_UNMAPPED 20u /* Member: I no longer map `extent` of `member`. */
#define TOLLFREE_POOL_KIND_PRESENT 21u /* Member that comes back, before RESUMED: I map `extent` of `member`, of `amount` data bytes. */
#define TOLLFREE_POOL_KIND_RESUMED 22u /* Member that comes back: EXTENT and PRESENT have told of all that I have and map. */
#define TOLLFREE_POOL_KIND_WANTED 23u /* Coordinator to the owner: `member` wants to map your `extent`. */
#define TOLLFREE_POOL_KIND_GIVE 24u /* Owner: here is my `extent`, for `member`; descriptor: the extent. */
#define TOLLFREE_POOL_KIND_LEAVE 25u /* Member: I leave. I hold nothing, and take hold of nothing any more. */
#define TOLLFREE_POOL_KIND_LEFT 26u /* Coordinator: `member` has left, or its process has ended. */
#define TOLLFREE_POOL_KIND_SHOW 27u /* Anybody, in place of JOIN: who is there, and with how much? */
#define TOLLFREE_POOL_KIND_SHOWN 28u /* Coordinator: the pool has `amount` bytes, of which `len` are granted or still mapped, and `extent` members. */
#define TOLLFREE_POOL_KIND_SHOWN_MEMBER 29u /* Coordinator: `member` was granted `amount` bytes, `len` of which are extents; `extent` is its process id or 0, `reason` one of `standing`. */

/* How a member stands with the coordinator. */
#define TOLLFREE_POOL_STANDING_ATTACHED 0u /* It is connected. */
#define TOLLFREE_POOL_STANDING_RETURNING 1u /* It has come back, and has not told of all that it has. */
#define TOLLFREE_POOL_STANDING_CUT_OFF 2u /* It lives, and its connection is lost: what it has and maps stays until it ends. */

/* Why a request of a pool is refused. */
#define TOLLFREE_POOL_REASON_GONE 1u /* No such member or extent: dead, given up, or never there. */
#define TOLLFREE_POOL_REASON_QUOTA 2u /* It would exceed the member's quota. */
#define TOLLFREE_POOL_REASON_CAPACITY 3u /* The pool has no more. */
#define TOLLFREE_POOL_REASON_POOL 4u /* The coordinator keeps another pool. */
#define TOLLFREE_POOL_REASON_VERSION 5u /* Another version. */
#define TOLLFREE_POOL_REASON_BUSY 6u /* The other side reads too slowly, or there are too many; try later. */
#define TOLLFREE_POOL_REASON_USER 7u /* Another user. */
#define TOLLFREE_POOL_REASON_MALFORMED 8u /* The message makes no sense. */
#define TOLLFREE_POOL_REASON_LIFE 9u /* The kernel doesn't let the coordinator watch the member's process. */
#define TOLLFREE_POOL_REASON_INVITATION 10u /* The pool is for those who were invited, and this one was not. */

#endif
