// Package wire holds what the protocol's bytes look like: constants, frames, metadata and handshake messages of spec/wire.md.
// Nothing in it keeps state or touches memory that a peer can write to.
package wire

// Limits of spec/wire.md, section 18.
const (
	MetadataLenMin = 256
	WindowMin      = 4 * ChunkCharge
)

// Defaults of spec/wire.md, section 18, which this implementation shares with the reference.
const (
	// SessionWindowDefault covers all streams' first windows: a stream that nobody reads can't hold up another.
	SessionWindowDefault = StreamWindowDefault*StreamCountDefault + WindowReserve
)

// Versions and features, spec/wire.md, section 20.
const (
	Version = 1
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
