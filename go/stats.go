package tollfree

import (
	"context"
	"time"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
)

// handlers is several stats handlers as one.
type handlers []stats.Handler

// oneHandler is nil where there is none.
func oneHandler(all []stats.Handler) stats.Handler {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return handlers(all)
}

func (hs handlers) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	for _, h := range hs {
		ctx = h.TagRPC(ctx, info)
	}
	return ctx
}

func (hs handlers) HandleRPC(ctx context.Context, s stats.RPCStats) {
	for _, h := range hs {
		h.HandleRPC(ctx, s)
	}
}

func (hs handlers) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	for _, h := range hs {
		ctx = h.TagConn(ctx, info)
	}
	return ctx
}

func (hs handlers) HandleConn(ctx context.Context, s stats.ConnStats) {
	for _, h := range hs {
		h.HandleConn(ctx, s)
	}
}

// beginSession tells h, which may be nil, of a session; end tells it of the end.
func beginSession(ctx context.Context, h stats.Handler, p *peer.Peer, client bool) (sessionContext context.Context, end func()) {
	if h == nil {
		return ctx, func() {}
	}
	ctx = h.TagConn(ctx, &stats.ConnTagInfo{RemoteAddr: p.Addr, LocalAddr: p.LocalAddr})
	h.HandleConn(ctx, &stats.ConnBegin{Client: client})
	return ctx, func() { h.HandleConn(ctx, &stats.ConnEnd{Client: client}) }
}

func outPayload(client bool, m any, out outgoingMessage, size int) *stats.OutPayload {
	return &stats.OutPayload{
		Client: client, Payload: m, Length: out.length, CompressedLength: size, WireLength: size + prefixLen, SentTime: time.Now(),
	}
}

func inPayload(client bool, m any, lengths incomingLengths) *stats.InPayload {
	return &stats.InPayload{
		Client: client, Payload: m, Length: lengths.decoded, CompressedLength: lengths.received,
		WireLength: lengths.received + prefixLen, RecvTime: time.Now(),
	}
}
