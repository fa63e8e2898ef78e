package tollfree

import (
	"reflect"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
)

// defaultRetryBuffer is how many bytes of a stream are kept to make the call again, as in grpc.
const defaultRetryBuffer = 256 << 10

// callInfo is what call options and the service config say of a call.
type callInfo struct {
	codec       codec
	subtype     string // of the content type; "" is protobuf
	compressor  encoding.Compressor
	encoding    string // grpc-encoding; "" is none
	failFast    bool
	receiveMax  int
	sendMax     int
	retryBuffer int
	credentials credentials.PerRPCCredentials
	inPlace     *Payloads
}

// newCallInfo has the error, a status, of an option that can't be served.
func newCallInfo(config *methodConfig, options []grpc.CallOption) (callInfo, error) {
	info := callInfo{failFast: true, retryBuffer: defaultRetryBuffer, receiveMax: -1, sendMax: -1}
	if config.waitForReady != nil {
		info.failFast = !*config.waitForReady
	}
	vt := false
	for _, option := range options {
		if _, is := option.(directOption); is {
			vt = true
			continue
		}
		if err := info.apply(option); err != nil {
			return info, err
		}
	}
	info.receiveMax = limit(info.receiveMax, config.responseMax, defaultReceiveMax)
	info.sendMax = limit(info.sendMax, config.requestMax, defaultSendMax)
	if info.codec == nil {
		if info.codec = registeredCodec(info.subtype); info.codec == nil {
			return info, status.Errorf(codes.Internal, "tollfree: nobody has registered a codec for the content subtype %q", info.subtype)
		}
		if vt && protobufIsOurs && info.codec == protobufCodec {
			info.codec = directCodec{}
		}
	}
	return info, nil
}

// limit is the lower one of an option (below 0: none) and the service config's, else otherwise.
func limit(option int, config *int, otherwise int) int {
	switch {
	case option < 0 && config == nil:
		return otherwise
	case option < 0:
		return *config
	case config == nil:
		return option
	}
	return min(option, *config)
}

func (info *callInfo) apply(option grpc.CallOption) error {
	switch o := option.(type) {
	case grpc.StaticMethodCallOption, grpc.EmptyCallOption, grpc.HeaderCallOption, grpc.TrailerCallOption, grpc.PeerCallOption,
		grpc.OnFinishCallOption:
		// They say nothing of how the call is made; see callEnd.
	case grpc.FailFastCallOption:
		info.failFast = o.FailFast
	case grpc.MaxRecvMsgSizeCallOption:
		info.receiveMax = max(o.MaxRecvMsgSize, 0)
	case grpc.MaxSendMsgSizeCallOption:
		info.sendMax = max(o.MaxSendMsgSize, 0)
	case grpc.MaxRetryRPCBufferSizeCallOption:
		info.retryBuffer = o.MaxRetryRPCBufferSize
	case grpc.PerRPCCredsCallOption:
		info.credentials = o.Creds
	case grpc.CompressorCallOption:
		return info.compressBy(o.CompressorType)
	case grpc.ContentSubtypeCallOption:
		info.subtype = strings.ToLower(o.ContentSubtype)
	case grpc.ForceCodecCallOption:
		info.force(bridgedCodec{o.Codec}, o.Codec.Name())
	case grpc.ForceCodecV2CallOption:
		info.force(o.CodecV2, o.CodecV2.Name())
	case grpc.CustomCodecCallOption:
		info.force(bridgedCodec{o.Codec}, o.Codec.String())
	case repliesInPlaceOption:
		info.inPlace = o.into
	case grpc.AuthorityOverrideCallOption:
		return status.Error(codes.Unimplemented, "tollfree: call option grpc.CallAuthority can't be served: :authority does not travel over shared memory; leave the option out")
	default:
		return foreign(option)
	}
	return nil
}

func (info *callInfo) compressBy(name string) error {
	info.encoding, info.compressor = name, nil
	if name == "" || name == encoding.Identity {
		return nil
	}
	if info.compressor = encoding.GetCompressor(name); info.compressor == nil {
		return status.Errorf(codes.Internal, "tollfree: nobody has registered a compressor %q: import the package that does, such as google.golang.org/grpc/encoding/gzip", name)
	}
	return nil
}

func (info *callInfo) force(c codec, name string) {
	info.codec = c
	if info.subtype == "" {
		info.subtype = strings.ToLower(name)
	}
}

var emptyOption = reflect.TypeFor[grpc.EmptyCallOption]()

// foreign has no error for options of others that carry something for interceptors: they embed grpc.EmptyCallOption.
func foreign(option grpc.CallOption) error {
	t := reflect.TypeOf(option)
	if t == nil {
		return status.Error(codes.Internal, "tollfree: a call option is nil")
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.PkgPath() != emptyOption.PkgPath() && t.Kind() == reflect.Struct {
		for i := range t.NumField() {
			if field := t.Field(i); field.Anonymous && field.Type == emptyOption {
				return nil
			}
		}
	}
	return status.Errorf(codes.Unimplemented, "tollfree: call option %T can't be served: docs/guide/go.md lists what can", option)
}
