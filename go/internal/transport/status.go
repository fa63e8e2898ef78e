package transport

import (
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	gstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/session"
	"github.com/tollfree/tollfree/go/internal/wire"
)

const (
	messageName = "grpc-message"
	detailsName = "grpc-status-details-bin"
)

// codeOf is what a code of the peer's means: spec/wire.md, section 15.
func codeOf(code uint16, cancelled bool) codes.Code {
	if code > uint16(codes.Unauthenticated) || cancelled && code == 0 {
		return codes.Unknown
	}
	return codes.Code(code)
}

// ofGateways begins names that only a gateway may say something by.
const ofGateways = "tollfree-"

// answered is what of an answer's metadata the client gets: by a direct connection as little of a gateway's as through the gateway.
func (l *link) answered(md metadata.MD) metadata.MD {
	if !l.peer.Neighbor {
		return md
	}
	kept := metadata.MD{}
	for name, values := range md {
		if !strings.HasPrefix(name, ofGateways) {
			kept[name] = values
		}
	}
	return kept
}

// headersBlock is metadata as they travel.
func headersBlock(md metadata.MD) ([]byte, error) {
	if len(md) == 0 {
		return nil, nil
	}
	block, err := wire.AppendMetadata(nil, md)
	switch {
	case errors.Is(err, wire.ErrTooLong):
		return nil, gstatus.Error(codes.ResourceExhausted, err.Error())
	case err != nil:
		return nil, gstatus.Error(codes.Internal, err.Error())
	}
	return block, nil
}

// isStatus says of a name that it speaks of the status, which the application gets otherwise.
func isStatus(name string) bool { return name == messageName || name == detailsName }

// trailersBlock is a status and metadata as they travel.
func trailersBlock(outcome *gstatus.Status, md metadata.MD) (block []byte, err error) {
	if outcome.Code() == codes.OK && outcome.Message() == "" && len(md) == 0 {
		return nil, nil
	}
	if words := outcome.Message(); words != "" {
		if block, err = wire.AppendPair(nil, messageName, wire.EncodeMessage(words)); err != nil {
			return nil, err
		}
	}
	// Its protobuf message is a copy, which few calls need.
	if outcome.Code() != codes.OK {
		if said := outcome.Proto(); len(said.GetDetails()) > 0 {
			// Details that can't be encoded, with text that is no UTF-8, are left out, as in grpc-go.
			if bytes, err := proto.Marshal(said); err == nil {
				if block, err = wire.AppendMetadata(block, metadata.MD{detailsName: {string(bytes)}}); err != nil {
					return nil, err
				}
			}
		}
	}
	if len(md) == 0 {
		return block, nil
	}
	own := make(metadata.MD, len(md))
	for name, values := range md {
		if !isStatus(name) {
			own[name] = values
		}
	}
	return wire.AppendMetadata(block, own)
}

// statusOf is what TRAILERS say.
func statusOf(code codes.Code, block []byte) *gstatus.Status {
	if code == codes.OK && len(block) == 0 {
		return okStatus
	}
	words, details := "", ""
	// The block was checked when it came.
	_ = wire.EachPair(block, func(name string, value []byte) {
		switch name {
		case messageName:
			words = wire.DecodeMessage(string(value))
		case detailsName:
			details = string(value)
		}
	})
	if details != "" {
		said := new(status.Status)
		bytes, err := wire.DecodeBase64(details)
		if err == nil && proto.Unmarshal(bytes, said) == nil && said.GetCode() == int32(code) {
			return gstatus.FromProto(said)
		}
	}
	return gstatus.New(code, words)
}

var okStatus = gstatus.New(codes.OK, "")

// outcomeOf is how a call has ended for a client.
func outcomeOf(end *session.End, over error) call.Outcome {
	switch end.Kind {
	case session.EndTrailers:
		outcome := call.Outcome{Status: statusOf(codeOf(end.Code, false), end.Block)}
		if len(end.Block) > 0 {
			outcome.Trailer = wire.DecodeMetadata(end.Block, isStatus)
		}
		return outcome
	case session.EndCancelled:
		if end.Refused {
			return call.Outcome{Status: gstatus.New(codes.Unavailable, "the server takes no more calls, and has not looked at this one"), Unprocessed: true}
		}
		return call.Outcome{Status: gstatus.New(codeOf(end.Code, true), "the server has cancelled the call")}
	case session.EndDropped:
		return call.Outcome{Status: gstatus.New(codeOf(end.Code, true), "the call was cancelled")}
	}
	return call.Outcome{Status: gstatus.New(codes.Unavailable, overText(over))}
}

// overText says why calls of a session have ended with it.
func overText(over error) string {
	if over == nil {
		return "the session is over"
	}
	return "the session is over: " + over.Error()
}

// statusOfContext is the status of a call whose context is done.
func statusOfContext(deadline bool) *gstatus.Status {
	if deadline {
		return gstatus.New(codes.DeadlineExceeded, "the call's deadline has passed")
	}
	return gstatus.New(codes.Canceled, "the call was cancelled")
}
