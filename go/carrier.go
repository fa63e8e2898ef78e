package tollfree

import (
	"context"
	"math"
	"strings"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/transport"
)

// agentName is what peers see of this program, after what WithUserAgent says.
const agentName = "tollfree-go"

// transportConfig is what the options say of sessions.
func transportConfig(o *dialOptions) transport.Config {
	config := transport.Config{Agent: agentName, Admits: o.admits, MessageLenMax: messageLenMax(o.receiveMax()), Pool: o.pool}
	if o.agent != "" {
		config.Agent = o.agent + " " + agentName
	}
	return config
}

// transportDialer begins sessions over shared memory.
func transportDialer(o *dialOptions) dialer {
	config := transportConfig(o)
	return func(ctx context.Context, address string) (call.Client, error) {
		if strings.HasPrefix(address, transport.StreamScheme) {
			return transport.DialStream(ctx, address, o.via, o.certificates, config)
		}
		if o.via != "" {
			return transport.DialVia(ctx, address, o.via, config)
		}
		return transport.Dial(ctx, address, config)
	}
}

// serverConfig is what the options say of sessions.
func serverConfig(o *serverOptions) transport.Config {
	return transport.Config{
		Agent: agentName, Admits: o.admits, MessageLenMax: messageLenMax(o.receiveMax), StreamCount: o.concurrent, Pool: o.pool,
		Objects: func(path string) (uint64, bool) { return o.objectsOf(path) },
	}
}

// transportListener binds addresses for sessions over shared memory.
func transportListener(o *serverOptions) listenFunc {
	config := serverConfig(o)
	return func(address string) (call.Listener, error) { return transport.Listen(address, config) }
}

func messageLenMax(limit int) uint32 { return uint32(max(min(int64(limit), math.MaxUint32), 1)) }
