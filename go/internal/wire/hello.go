package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Magic begins every handshake message.
const Magic = "TOLLFREE"

// Hello is a handshake message of any kind.
type Hello struct {
	Kind                         uint32
	VersionMin, VersionMax       uint16
	Features, Required           uint64
	RegionLen, RingLen           uint32
	StreamWindow, SessionWindow  uint64
	ClockNS                      uint64
	StreamCount                  uint32
	AreaLenMax, MetadataLenMax   uint32
	Reason                       uint32
	BodyLen                      uint32
	Text                         string
	Pool, Token                  [16]byte
	TCPClient, TCPServer         [16]byte
	TCPClientPort, TCPServerPort uint16
}

// Encode gives the message's bytes. A longer text than fits is cut.
func (h *Hello) Encode() (b [HelloLen]byte) {
	le := binary.LittleEndian
	copy(b[:], Magic)
	le.PutUint32(b[8:], h.Kind)
	le.PutUint16(b[12:], h.VersionMin)
	le.PutUint16(b[14:], h.VersionMax)
	le.PutUint64(b[16:], h.Features)
	le.PutUint64(b[24:], h.Required)
	le.PutUint32(b[32:], h.RegionLen)
	le.PutUint32(b[36:], h.RingLen)
	le.PutUint64(b[40:], h.StreamWindow)
	le.PutUint64(b[48:], h.SessionWindow)
	le.PutUint64(b[56:], h.ClockNS)
	le.PutUint32(b[64:], h.StreamCount)
	le.PutUint32(b[68:], h.AreaLenMax)
	le.PutUint32(b[72:], h.MetadataLenMax)
	le.PutUint32(b[76:], h.Reason)
	text := CutText(h.Text, HelloTextMax)
	le.PutUint32(b[80:], uint32(len(text)))
	le.PutUint32(b[84:], h.BodyLen)
	copy(b[88:208], text)
	copy(b[208:], h.Pool[:])
	copy(b[224:], h.Token[:])
	copy(b[240:], h.TCPClient[:])
	copy(b[256:], h.TCPServer[:])
	le.PutUint16(b[272:], h.TCPClientPort)
	le.PutUint16(b[274:], h.TCPServerPort)
	return b
}

// DecodeHello takes the fields out of a private copy of a message. The text is fit to be shown.
func DecodeHello(b *[HelloLen]byte) Hello {
	le := binary.LittleEndian
	h := Hello{
		Kind:           le.Uint32(b[8:]),
		VersionMin:     le.Uint16(b[12:]),
		VersionMax:     le.Uint16(b[14:]),
		Features:       le.Uint64(b[16:]),
		Required:       le.Uint64(b[24:]),
		RegionLen:      le.Uint32(b[32:]),
		RingLen:        le.Uint32(b[36:]),
		StreamWindow:   le.Uint64(b[40:]),
		SessionWindow:  le.Uint64(b[48:]),
		ClockNS:        le.Uint64(b[56:]),
		StreamCount:    le.Uint32(b[64:]),
		AreaLenMax:     le.Uint32(b[68:]),
		MetadataLenMax: le.Uint32(b[72:]),
		Reason:         le.Uint32(b[76:]),
		BodyLen:        le.Uint32(b[84:]),
		TCPClientPort:  le.Uint16(b[272:]),
		TCPServerPort:  le.Uint16(b[274:]),
	}
	h.Text = ShownText(b[88 : 88+min(le.Uint32(b[80:]), HelloTextMax)])
	copy(h.Pool[:], b[208:])
	copy(h.Token[:], b[224:])
	copy(h.TCPClient[:], b[240:])
	copy(h.TCPServer[:], b[256:])
	return h
}

// MagicFits says whether what has come of a message begins as one does.
func MagicFits(piece []byte) bool {
	n := min(len(piece), len(Magic))
	return string(piece[:n]) == Magic[:n]
}

// IsHTTP2 says whether a peer speaks HTTP/2 instead: a client's preface, or the SETTINGS frame with which a server begins.
func IsHTTP2(piece []byte) bool {
	return bytes.HasPrefix(piece, []byte("PRI * HT")) || len(piece) >= 4 && piece[0] == 0 && piece[3] == 4
}

// A Refusal is why a handshake fails: a reason of spec/wire.md, section 3, and words for people.
type Refusal struct {
	Reason uint32
	Text   string
}

func (r *Refusal) Error() string { return r.Text }

// knownFeatures are those that a peer may require.
const knownFeatures = FeatureLoad | FeaturePool | FeatureUpgrade

// CheckFirst makes the checks 3 to 5 of spec/wire.md, section 3, of a message that should be of this kind.
func (h *Hello) CheckFirst(kind uint32) *Refusal {
	switch {
	case h.VersionMin > h.VersionMax || h.VersionMin > Version || h.VersionMax < Version:
		return &Refusal{ReasonVersion, fmt.Sprintf("version %d is spoken here, versions %d to %d there", Version, h.VersionMin, h.VersionMax)}
	case h.Kind != kind:
		return &Refusal{ReasonMalformed, fmt.Sprintf("a handshake message of kind %d instead of %d", h.Kind, kind)}
	case h.Required&^knownFeatures != 0:
		return &Refusal{ReasonFeature, fmt.Sprintf("required features %#x are not known here", h.Required&^knownFeatures)}
	}
	return nil
}

// CheckSizes makes the checks 9 to 14.
func (h *Hello) CheckSizes(hasDescriptor bool) *Refusal {
	refuse := func(format string, args ...any) *Refusal { return &Refusal{ReasonRegion, fmt.Sprintf(format, args...)} }
	switch {
	case !hasDescriptor:
		return &Refusal{ReasonMalformed, "no descriptor of a region came with the handshake message"}
	case h.RingLen < RingLenMin || h.RingLen > RingLenMax:
		return refuse("a ring of %d bytes is not within %d to %d", h.RingLen, RingLenMin, RingLenMax)
	case uint64(h.RegionLen) < RingOff+uint64(h.RingLen) || h.RegionLen > RegionLenMax:
		return refuse("a region of %d bytes does not hold a ring of %d, or is longer than %d", h.RegionLen, h.RingLen, RegionLenMax)
	case h.MetadataLenMax < MetadataLenMin:
		return refuse("blocks of metadata of %d bytes at most are too short", h.MetadataLenMax)
	case h.StreamWindow < WindowMin || h.SessionWindow < WindowMin:
		return refuse("windows of %d and %d bytes are too small: %d is the least", h.StreamWindow, h.SessionWindow, WindowMin)
	case h.RingLen&(h.RingLen-1) != 0:
		return refuse("a ring of %d bytes is no power of two", h.RingLen)
	}
	return nil
}

// CutText cuts a text to at most n bytes of whole characters.
func CutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// ShownText makes a peer's text fit to be shown: what is no UTF-8, and control characters, are replaced.
func ShownText(text []byte) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(string(text), "\ufffd"))
}
