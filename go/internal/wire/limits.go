// Package wire holds what the protocol's bytes look like: constants, frames, metadata and handshake messages of spec/wire.md.
// Nothing in it keeps state or touches memory that a peer can write to.
package wire

// Limits of spec/wire.md, section 18.
const (
	LineLen           = 64
	PageLen           = 4096
	RingLenMin        = 4096
	RingLenMax        = 32768
	RegionLenMax      = 65536
	AreaLenMin        = 65536
	AreaLenMax        = 16777216
	HelloLen          = 288
	HelloTextMax      = 120
	MetadataLenMin    = 256
	MetadataLenMax    = 15360
	MethodPathLenMax  = 1024
	MethodCountMax    = 4096
	MethodPathsLenMax = 262144
	MessageLenMax     = 1<<32 - 1
	NameLenMax        = 255
	ValueLenMax       = 65535
	ChunkCharge       = 64
	WindowMin         = 4 * ChunkCharge
	TokenLen          = 16
)

// Defaults of spec/wire.md, section 18, which this implementation shares with the reference.
const (
	RingLenDefault      = 32768
	AreaLenDefault      = 524288
	AreaChunkShare      = 4
	MessageLenDefault   = 4194304
	StreamCountDefault  = 1024
	StreamWindowDefault = 65536
	StreamWindowMax     = 1048576
	MessageWindowMax    = 4194304
	WindowReserve       = 16777216
	// SessionWindowDefault covers all streams' first windows: a stream that nobody reads can't hold up another.
	SessionWindowDefault = StreamWindowDefault*StreamCountDefault + WindowReserve
)

// The control page, spec/wire.md, section 4.
const (
	ConsumedOff = 64
	WaitingOff  = 128
	CPUOff      = 132
	LoadOff     = 192
	RingOff     = 4096
	CPUUnknown  = 0xffffffff
)

// Versions and features, spec/wire.md, section 20.
const (
	Version = 1
	// FeatureLoad says that the server tells how busy it is.
	FeatureLoad = 0x1
	// FeaturePool says that the sender is a member of a pool.
	FeaturePool = 0x2
	// FeatureUpgrade says that the client presents a token, and that the server answers it.
	FeatureUpgrade = 0x4
)

// LoadWord is what a server stores that has so many calls under way.
func LoadWord(calls uint32) uint32 {
	if calls == 1<<32-1 {
		return calls
	}
	return calls + 1
}

// LoadOfWord is how many calls the word of a server means; ok is false where it doesn't say.
func LoadOfWord(word uint32) (calls uint32, ok bool) {
	if word == 0 {
		return 0, false
	}
	return word - 1, true
}
