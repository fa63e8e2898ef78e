package tollfree

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	// authority is what gRPC code sees as :authority; it does not travel (spec/wire.md, section 19).
	authority   = "localhost"
	contentType = "application/grpc"

	headerAuthority   = ":authority"
	headerContentType = "content-type"
	headerUserAgent   = "user-agent"
	headerEncoding    = "grpc-encoding"
	headerAccept      = "grpc-accept-encoding"
	headerAttempts    = "grpc-previous-rpc-attempts"
	headerPushback    = "grpc-retry-pushback-ms"
	binarySuffix      = "-bin"
)

// Values that many calls share; nobody changes them.
var (
	authorityValue   = []string{authority}
	contentTypeValue = []string{contentType}
)

// wellKnownEncodings are asked for by name, since package encoding does not list what is registered.
var wellKnownEncodings = []string{"gzip", "deflate", "zstd", "snappy", "br", "lz4"}

// acceptedEncodings is the value of grpc-accept-encoding; also, if not empty, is another name that is registered.
func acceptedEncodings(also string) string {
	var names []string
	for _, name := range wellKnownEncodings {
		if name != also && encoding.GetCompressor(name) != nil {
			names = append(names, name)
		}
	}
	if also != "" && also != encoding.Identity {
		names = append(names, also)
	}
	return strings.Join(names, ",")
}

// reservedHeader is true of what is gRPC's own: an application's value is not sent, as in grpc-go.
func reservedHeader(name string) bool {
	switch name {
	case headerContentType, headerUserAgent, headerEncoding, headerAccept, "grpc-message-type", "grpc-message", "grpc-status",
		"grpc-status-details-bin", "grpc-timeout", "te":
		return true
	}
	return strings.HasPrefix(name, ":")
}

// checkMetadata has the error, a status, of a name or value that gRPC does not allow.
func checkMetadata(md metadata.MD) error {
	for name, values := range md {
		if name == "" {
			return status.Error(codes.Internal, "tollfree: a metadata entry has no name")
		}
		if name[0] == ':' {
			continue
		}
		for i := range len(name) {
			if c := name[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
				return status.Errorf(codes.Internal, "tollfree: metadata name %q has a character other than a to z, 0 to 9, '-', '_', '.'", name)
			}
		}
		if strings.HasSuffix(name, binarySuffix) {
			continue
		}
		for _, value := range values {
			for i := range len(value) {
				if value[i] < 0x20 || value[i] > 0x7e {
					return status.Errorf(codes.Internal, "tollfree: a value of metadata %q has a byte other than printable ASCII: names that end in -bin take any", name)
				}
			}
		}
	}
	return nil
}

// outgoingMetadata is the application's, checked, without what is gRPC's own; nil where there is none. An error is a status.
func outgoingMetadata(ctx context.Context) (metadata.MD, error) {
	md, ok := metadata.FromOutgoingContext(ctx)
	if !ok || len(md) == 0 {
		return nil, nil
	}
	if err := checkMetadata(md); err != nil {
		return nil, err
	}
	for name := range md {
		if reservedHeader(name) {
			delete(md, name)
		}
	}
	return md, nil
}

// joinMetadata adds more to md, which may be nil, without what is gRPC's own.
func joinMetadata(md, more metadata.MD) metadata.MD {
	if md == nil {
		md = make(metadata.MD, len(more))
	}
	for name, values := range more {
		name = strings.ToLower(name)
		if !reservedHeader(name) {
			md[name] = append(md[name], values...)
		}
	}
	return md
}

// first is the first value of name, or "".
func first(md metadata.MD, name string) string {
	if values := md[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// visibleHeader is an answer's header as grpc-go shows it: with the content type that does not travel.
func visibleHeader(header metadata.MD) metadata.MD {
	md := make(metadata.MD, len(header)+1)
	md[headerContentType] = contentTypeValue
	for name, values := range header {
		if name != headerEncoding {
			md[name] = values
		}
	}
	return md.Copy()
}

// subtypeOf is the content subtype of a content type; ok is false where that is not gRPC's.
func subtypeOf(value string) (subtype string, ok bool) {
	if value == "" {
		return "", true
	}
	rest, ok := strings.CutPrefix(strings.ToLower(value), contentType)
	if !ok || rest == "" {
		return "", ok
	}
	if rest[0] != '+' && rest[0] != ';' {
		return "", false
	}
	return rest[1:], true
}
