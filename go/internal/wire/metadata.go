package wire

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/metadata"
)

// StaticNames are the names that have an index, from 1 on; spec/wire.md, section 11.
var StaticNames = [...]string{
	"",
	"grpc-message", "grpc-status-details-bin", "grpc-encoding", "grpc-accept-encoding", "content-type", "user-agent", "te",
	"authorization", "traceparent", "tracestate", "baggage", "grpc-trace-bin", "grpc-tags-bin", "x-request-id",
	"x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid", "x-b3-sampled", "x-b3-flags", "b3", "x-forwarded-for",
	"x-forwarded-proto", "forwarded", "x-real-ip", "x-correlation-id", "x-user-id", "x-tenant-id",
	"grpc-previous-rpc-attempts", "grpc-retry-pushback-ms", "date", "server", "host",
}

var staticIndex = func() map[string]uint8 {
	indices := make(map[string]uint8, len(StaticNames))
	for i, name := range StaticNames[1:] {
		indices[name] = uint8(i + 1)
	}
	return indices
}()

// ErrTooLong is what can't be sent for its length.
var ErrTooLong = errors.New("it is too long to be sent")

// unsent are the names that never stand in a block; spec/wire.md, section 19.
var unsent = map[string]bool{
	"connection": true, "keep-alive": true, "proxy-connection": true, "transfer-encoding": true, "upgrade": true,
	"te": true, "grpc-timeout": true, "grpc-status": true,
}

// AppendPair appends one pair as it travels.
//
// Errors: a name or a value that is longer than a pair can say.
func AppendPair(block []byte, name, value string) ([]byte, error) {
	if len(name) == 0 || len(name) > NameLenMax || len(value) > ValueLenMax {
		return block, fmt.Errorf("metadata %q: a name of %d bytes and a value of %d, where %d and %d are the most: %w",
			CutText(name, 64), len(name), len(value), NameLenMax, ValueLenMax, ErrTooLong)
	}
	index := staticIndex[name]
	block = append(block, index)
	if index == 0 {
		block = append(block, uint8(len(name)))
		block = append(block, name...)
	}
	block = binary.LittleEndian.AppendUint16(block, uint16(len(value)))
	return append(block, value...), nil
}

// AppendMetadata appends what can travel of md: values of names that end in "-bin" as base64, and nothing that HTTP/2 or the
// protocol says elsewhere.
func AppendMetadata(block []byte, md metadata.MD) ([]byte, error) {
	var err error
	for name, values := range md {
		if name == "" || name[0] == ':' || unsent[name] {
			continue
		}
		if !ValidName(name) {
			return block, fmt.Errorf("metadata: the name %q has a character that no header may have, or is not lower-case", CutText(name, 64))
		}
		binary := strings.HasSuffix(name, "-bin")
		for _, value := range values {
			switch {
			case binary:
				value = base64.RawStdEncoding.EncodeToString([]byte(value))
			case name == "content-type" && value == "application/grpc":
				continue
			case !ValidValue(value):
				return block, fmt.Errorf("metadata %q: its value has a character that no header may have", name)
			}
			if block, err = AppendPair(block, name, value); err != nil {
				return block, err
			}
		}
	}
	return block, nil
}

// EachPair gives the pairs of a block in order, as they travel. value is part of the block.
//
// Errors: what makes the block a violation; pairs before that have been given.
func EachPair(block []byte, each func(name string, value []byte)) error {
	cut := func(n int) (part []byte, ok bool) {
		if len(block) < n {
			return nil, false
		}
		part, block = block[:n], block[n:]
		return part, true
	}
	for len(block) > 0 {
		index := block[0]
		block = block[1:]
		var ownName []byte
		if index == 0 {
			nameLen, ok := cut(1)
			if !ok || nameLen[0] == 0 {
				return fmt.Errorf("a block of metadata with a name of no length")
			}
			if ownName, ok = cut(int(nameLen[0])); !ok {
				return fmt.Errorf("a block of metadata that ends within a name")
			}
		} else if int(index) >= len(StaticNames) {
			return fmt.Errorf("a block of metadata with the index %d, which no name has", index)
		}
		valueLen, ok := cut(2)
		if !ok {
			return fmt.Errorf("a block of metadata that ends within a pair")
		}
		value, ok := cut(int(binary.LittleEndian.Uint16(valueLen)))
		if !ok {
			return fmt.Errorf("a block of metadata that ends within a value")
		}
		if each == nil {
			continue
		}
		if index != 0 {
			each(StaticNames[index], value)
		} else {
			each(string(ownName), value)
		}
	}
	return nil
}

// CheckBlock says what makes a block a violation.
func CheckBlock(block []byte) error {
	return EachPair(block, nil)
}

// DecodeMetadata gives what a checked block says, without pairs that HTTP would not allow and those of skip.
func DecodeMetadata(block []byte, skip func(name string) bool) metadata.MD {
	md := metadata.MD{}
	// The block was checked when it came.
	_ = EachPair(block, func(name string, raw []byte) {
		value := string(raw)
		if !ValidName(name) || unsent[name] || skip != nil && skip(name) {
			return
		}
		if strings.HasSuffix(name, "-bin") {
			bytes, err := DecodeBase64(value)
			if err != nil {
				return
			}
			value = string(bytes)
		} else if !ValidValue(value) {
			return
		}
		md[name] = append(md[name], value)
	})
	return md
}

// DecodeBase64 takes base64 with padding and without.
func DecodeBase64(value string) ([]byte, error) {
	return base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
}

// ValidName says whether a header may have this name: a token of RFC 9110, section 5.6.2, in lower case.
func ValidName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return len(name) > 0
}

// ValidValue says whether a header may have this value: RFC 9110, section 5.5.
func ValidValue(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// EncodeMessage percent-encodes the words of a status, as gRPC over HTTP/2 does. Bytes that are no UTF-8 are replaced.
func EncodeMessage(message string) string {
	plain := true
	for i := range len(message) {
		plain = plain && message[i] >= ' ' && message[i] <= '~' && message[i] != '%'
	}
	if plain {
		return message
	}
	if !utf8.ValidString(message) {
		message = string([]rune(message))
	}
	var b strings.Builder
	for i := range len(message) {
		if c := message[i]; c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// DecodeMessage undoes EncodeMessage; what is no encoding stays as it is.
func DecodeMessage(message string) string {
	if !strings.Contains(message, "%") {
		return message
	}
	hex := func(c byte) (byte, bool) {
		switch {
		case c >= '0' && c <= '9':
			return c - '0', true
		case c >= 'a' && c <= 'f':
			return c - 'a' + 10, true
		case c >= 'A' && c <= 'F':
			return c - 'A' + 10, true
		}
		return 0, false
	}
	var b strings.Builder
	for i := 0; i < len(message); i++ {
		if message[i] == '%' && i+2 < len(message) {
			high, ok1 := hex(message[i+1])
			low, ok2 := hex(message[i+2])
			if ok1 && ok2 {
				b.WriteByte(high<<4 | low)
				i += 2
				continue
			}
		}
		b.WriteByte(message[i])
	}
	return b.String()
}
