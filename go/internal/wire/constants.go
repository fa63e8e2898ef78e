// Code generated from spec/constants.toml. DO NOT EDIT.

package wire

// Sizes and counts; lengths are in bytes.
const (
	// LineLen: A cache line: the unit in which rings are laid out.
	LineLen = 64
	// PageLen: The unit in which regions are sized, and the length of the control page.
	PageLen = 4096
	// RingLenDefault: Length of the ring a side creates unless it has reason to differ.
	RingLenDefault = 32_768
	// RingLenMin: The shortest ring a peer may announce.
	RingLenMin = 4096
	// RingLenMax: The longest ring a peer may announce: a session starts with at most 64 KiB a side.
	RingLenMax = 32_768
	// RegionLenMax: A session starts with at most this much memory a side.
	RegionLenMax = 65_536
	// AreaLenDefault: Length of a payload area when the first large message asks for one.
	AreaLenDefault = 524_288
	// AreaLenMin: The shortest payload area a peer may offer.
	AreaLenMin = 65_536
	// AreaLenMax: The longest payload area a peer may offer.
	AreaLenMax = 16_777_216
	// AreaChunkShare: The share of an area that one chunk may take: 1 / `AREA_CHUNK_SHARE`.
	AreaChunkShare = 4
	// HelloLen: Both handshake messages have this length.
	HelloLen = 288
	// HelloTextMax: Longest text (agent, refusal) inside a handshake message.
	HelloTextMax = 120
	// RegistrationLenMax: Longest registration at a gateway.
	RegistrationLenMax = 8192
	// GroupLenMax: Longest name of a group.
	GroupLenMax = 64
	// ServiceLenMax: Longest name of a service that attaches.
	ServiceLenMax = 255
	// ServiceCountMax: Services of one process that attaches.
	ServiceCountMax = 256
	// TargetLenMax: Longest target of calls via a gateway.
	TargetLenMax = 1024
	// MetadataLenMax: Longest block of metadata (headers or trailers, as packed) unless configured lower.
	MetadataLenMax = 15_360
	// MethodPathLenMax: Longest path of a method, as in `/package.Service/Method`.
	MethodPathLenMax = 1024
	// MethodCountMax: Methods that one session may intern.
	MethodCountMax = 4096
	// MethodPathsLenMax: Bytes of the paths of all methods that one session interns, together.
	MethodPathsLenMax = 262_144
	// MessageLenMax: Longest message the protocol can carry.
	MessageLenMax = 4_294_967_295
	// MessageLenDefault: What gRPC receives unless told otherwise.
	MessageLenDefault = 4_194_304
	// ObjectLenMax: Longest message that travels as a flat message; a longer one is encoded.
	ObjectLenMax = 4_194_304
	// StreamCountDefault: Concurrent calls of one session unless configured otherwise.
	StreamCountDefault = 1024
	// StreamWindowDefault: Credit in bytes that a stream starts with unless configured otherwise.
	StreamWindowDefault = 65_536
	// StreamWindowMax: Credit up to which a receiver raises the window of a stream whose reader keeps up.
	StreamWindowMax = 1_048_576
	// MessageWindowMax: Credit up to which a receiver raises the window of a stream on which a longer message begins.
	MessageWindowMax = 4_194_304
	// WindowReserve: Credit a session keeps for raising windows, beside what every stream starts with.
	WindowReserve = 16_777_216
	// ChunkCharge: What every chunk costs in credit beside its bytes, so that empty messages are not free.
	ChunkCharge = 64
	// SegmentedRefCountMax: Refs in one segmented message.
	SegmentedRefCountMax = 1024
	// SegmentedCountMax: Segmented messages that a sender keeps for a peer that has not taken them, unless it says so earlier; further messages go inline.
	SegmentedCountMax = 1024
	// AskedSpinUsMax: The longest that a gateway can ask a process to look before it sleeps, in microseconds.
	AskedSpinUsMax = 1_000_000
	// AskedLookUs: How long a process looks that is asked to, where it is not said for how long, in microseconds.
	AskedLookUs = 10_000
)

// Offsets in the control page, and values in it.
const (
	// ConsumedOff: Offset of `consumed` (u64).
	ConsumedOff = 64
	// WaitingOff: Offset of `waiting` (u32).
	WaitingOff = 128
	// CPUOff: Offset of `cpu` (u32).
	CPUOff = 132
	// LoadOff: Offset of `load` (u32).
	LoadOff = 192
	// AskedOff: Offset of `asked` (u64).
	AskedOff = 256
	// RingOff: Offset of the ring.
	RingOff = 4096
	// CPUUnknown: `cpu` of a side that does not say where it runs.
	CPUUnknown = 4_294_967_295
)

// Records of a ring.
const (
	// RecordHeadLen: Length of the head word.
	RecordHeadLen = 8
	// RecordHeadEmpty: The head word of a line that holds no record yet.
	RecordHeadEmpty = 0
)

// Bits of `events` in a frame.
const (
	// Headers: Request or response headers. From a client, `code` is the method's index.
	Headers = 0x01
	// Message: A chunk of a message.
	Message = 0x02
	// HalfClose: The client sends no more messages.
	HalfClose = 0x04
	// Trailers: The server's last word: `code` is the gRPC status.
	Trailers = 0x08
	// Cancel: The stream ends at once in both directions: `code` is the gRPC status that says why.
	Cancel = 0x10
	// Credit: The receiver grants `chunk_len` more bytes, to the stream or (stream 0) to the session.
	Credit = 0x20
	// Drain: The server takes no stream above `stream` any more; those above it were not looked at.
	Drain = 0x40
	// Control: About the session's memory or end; `code` is one of `control`.
	Control = 0x80
)

// Bits of `flags` in a frame.
const (
	// First: The chunk begins a message; `message_len` is the length of the whole.
	First = 0x01
	// Last: The chunk ends its message.
	Last = 0x02
	// Compressed: The message is compressed as the `grpc-encoding` header says (on its first chunk).
	Compressed = 0x04
	// InArea: The chunk lies in a payload area; an `AreaRange` stands in its place.
	InArea = 0x08
	// NamesMethod: The headers block begins with the method's path (u16 length, bytes), bound to the index `code` from now on.
	NamesMethod = 0x10
	// Batch: With MESSAGE, but for a client's HEADERS, where NAMES_METHOD has no meaning: the chunk is a batch, several whole messages, each behind gRPC's prefix, and `message_len` says how many.
	Batch = 0x10
	// HasDeadline: The deadline follows the head: u64, nanoseconds on the sender's monotonic clock.
	HasDeadline = 0x20
	// Refused: Cancelled before any part of the call was looked at: safe to send again elsewhere.
	Refused = 0x40
	// Object: With MESSAGE, where REFUSED has no meaning: the message is a flat message (`flat`), on its first chunk; with SEGMENTED, one that lies in the pool. For a server that takes such, and in its answer (`OBJECTS`).
	Object = 0x40
	// KnownFlags: All bits that version 1 knows without features.
	KnownFlags = 0x7f
	// Segmented: The message is a segmented message: parts of it lie in the pool that both sides are members of (on its first chunk). With the feature POOL.
	Segmented = 0x80
)

// Values of `code` in a CONTROL frame.
const (
	// AreaOffer: A payload area was made: `chunk_len` its length, `stream` its index; its fd is the next on the socket.
	AreaOffer = 1
	// AreaAccept: The area `stream` is mapped and may be used.
	AreaAccept = 2
	// AreaRefuse: The area `stream` could not be mapped: go on without.
	AreaRefuse = 3
	// AreaDrop: The area `stream` will not be referred to again.
	AreaDrop = 4
	// Close: The session ends; the headers block holds the reason as UTF-8 text.
	Close = 5
	// SegmentedTaken: With the feature POOL: `chunk_len` segmented messages from the number `stream` on need not be kept any longer.
	SegmentedTaken = 6
	// SegmentedWanted: With the feature POOL: the bytes of all refs of the segmented message `stream` are wanted inline; `chunk_len` is how many.
	SegmentedWanted = 7
	// SegmentedBytes: With the feature POOL: the next `chunk_len` of the bytes wanted of the segmented message `stream` follow the head; 0: no more come.
	SegmentedBytes = 8
	// Objects: From a server: messages of the method `chunk_len` are taken as flat messages, and calls with such are answered so, where `stream` is the fingerprint of the method's types.
	Objects = 9
)

// Lengths of what a frame is made of, in bytes.
const (
	// FrameHeadLen: Length of a `FrameHead`.
	FrameHeadLen = 24
	// DeadlineLen: Length of the deadline.
	DeadlineLen = 8
	// AreaRangeLen: Length of an `AreaRange`.
	AreaRangeLen = 16
)

// Bits of `features` in a handshake message.
const (
	// FeatureLoad: The server says in its control page how busy it is, and the client looks there.
	FeatureLoad = 0x01
	// FeaturePool: Messages may have parts in the pool that `pool` names. In force only where both name the same one.
	FeaturePool = 0x02
	// FeatureUpgrade: The client presents a token that the server gave it over TCP, and the server answers it.
	FeatureUpgrade = 0x04
	// FeatureDoorbell: Each side gives the other a doorbell that is rung by reading, as its first word after the handshake.
	FeatureDoorbell = 0x08
	// FeatureLending: The client, a gateway, may ask the server to join a pool of the gateway's; what it sends may be a segmented message of that one then.
	FeatureLending = 0x10
)

// Values of `kind` in a handshake message.
const (
	// KindHello: A client asks for a session.
	KindHello = 1
	// KindWelcome: The server agrees; `ver_min` and `ver_max` both hold the version chosen.
	KindWelcome = 2
	// KindRefusal: The server declines; `reason` and `text` say why.
	KindRefusal = 3
	// KindAttach: A process asks a gateway for a session in which the gateway is the client.
	KindAttach = 4
	// KindVia: A client asks a gateway for a session whose calls the gateway makes elsewhere.
	KindVia = 5
)

// Values of `reason` in a handshake message.
const (
	// ReasonVersion: No version in common.
	ReasonVersion = 1
	// ReasonFeature: A required feature is not known.
	ReasonFeature = 2
	// ReasonUser: The peer's user is not allowed.
	ReasonUser = 3
	// ReasonRegion: The region or a size was not acceptable.
	ReasonRegion = 4
	// ReasonBusy: The server is at its limit or out of a resource; try later.
	ReasonBusy = 5
	// ReasonMalformed: The message was not a handshake.
	ReasonMalformed = 6
	// ReasonToken: The token is not one that the server has given out, or not any more.
	ReasonToken = 7
	// ReasonEnds: The server gave the token out over another connection than the client's.
	ReasonEnds = 8
)

// Versions, features and lengths of the handshake.
const (
	// VersionMin: The oldest version this code speaks.
	VersionMin = 1
	// VersionMax: The newest version this code speaks.
	VersionMax = 1
	// TokenLen: Length of a token, and of the answer to one.
	TokenLen = 16
	// TCPAddressLen: Length of an IP address in a message.
	TCPAddressLen = 16
	// ProcessIDLen: Length of what the backend connections of one server have in common.
	ProcessIDLen = 16
)

// Lengths of names and values of metadata, in bytes.
const (
	// NameLenMax: Longest name that a pair can carry.
	NameLenMax = 255
	// ValueLenMax: Longest value that a pair can carry.
	ValueLenMax = 65_535
)

// Lengths of what a segmented message is made of, in bytes.
const (
	// SegmentedHeadLen: Length of a `SegmentedHead`.
	SegmentedHeadLen = 8
	// SegmentEntryLen: Length of a `SegmentEntry`.
	SegmentEntryLen = 64
)
