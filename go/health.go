package tollfree

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	rules "github.com/tollfree/tollfree/go/internal/balancer"
	"github.com/tollfree/tollfree/go/internal/call"
)

// healthPauseMin and healthPauseMax are the pauses before a watch that has ended is begun again.
const healthPauseMin, healthPauseMax = 50 * time.Millisecond, time.Second

// A healthCheck configures how the servers of a client are asked whether they serve.
type healthCheck struct {
	service     string
	credentials []credentials.PerRPCCredentials
}

// healthCheck is nil where health is not checked: the service config must ask for it, and pick_first never does, as in grpc-go.
func (o *dialOptions) healthCheck() *healthCheck {
	if o.config.healthService == nil || o.config.balance == rules.PickFirst {
		return nil
	}
	return &healthCheck{service: *o.config.healthService, credentials: o.credentials}
}

// A healthWatch calls grpc.health.v1.Health/Watch in a session (gRFC A17), again and again until that takes no more calls. The call is made
// below interceptors, stats handlers and all that counts calls.
type healthWatch struct {
	endpoint *endpoint
	session  *session
	check    *healthCheck
	context  context.Context
	stop     context.CancelFunc // at the latest when the session takes no more calls
	// verdict is nil while the server's health is not known.
	verdict atomic.Pointer[healthVerdict]
	// counted says that a watch is under way, which the server counts among its calls.
	counted atomic.Bool
}

// A healthVerdict says whether a server may get calls: err is why not, a status.
type healthVerdict struct{ err error }

// ready is the session that takes calls and whose server serves, or nil.
func (e *endpoint) ready() *session {
	s := e.connected()
	if s == nil || s.health == nil {
		return s
	}
	if verdict := s.health.verdict.Load(); verdict != nil && verdict.err == nil {
		return s
	}
	return nil
}

// unhealthy is true where there is a session whose server does not serve, as far as is known. err is why; nil: the answer is awaited.
func (e *endpoint) unhealthy() (err error, unhealthy bool) {
	s := e.connected()
	if s == nil || s.health == nil {
		return nil, false
	}
	verdict := s.health.verdict.Load()
	if verdict == nil {
		return nil, true
	}
	return verdict.err, verdict.err != nil
}

// newHealthWatch is a watch that has not begun, or nil where health is not checked.
func (e *endpoint) newHealthWatch(s *session) *healthWatch {
	if e.health == nil {
		return nil
	}
	w := &healthWatch{endpoint: e, session: s, check: e.health}
	w.context, w.stop = context.WithCancel(e.context)
	return w
}

// end has the watch end. w may be nil.
func (w *healthWatch) end() {
	if w != nil {
		w.stop()
	}
}

// discount takes the client's own watch out of the number of calls that a server reports. w may be nil.
func (w *healthWatch) discount(load uint32) uint32 {
	if w != nil && load > 0 && w.counted.Load() {
		load--
	}
	return load
}

// keep watches until the session takes no more calls, or the server turns out to have no health service: it counts as healthy then.
//
// A watch that breaks off once leaves the server's health unknown, so calls wait. If the next one brings no answer either, calls fail with
// the reason: nobody is to wait for a server whose health service is broken.
func (w *healthWatch) keep() {
	defer w.endpoint.watchers.Done()
	defer w.stop()
	for failures := 1; ; failures++ {
		answered, err := w.watch()
		if w.context.Err() != nil {
			return
		}
		if status.Code(err) == codes.Unimplemented {
			w.settle(&healthVerdict{})
			return
		}
		if answered {
			failures = 1
		}
		if failures == 1 {
			w.settle(nil)
		} else {
			w.settle(&healthVerdict{w.failure("is unknown: %s fails with %v", healthpb.Health_Watch_FullMethodName, err)})
		}
		timer := time.NewTimer(backoff(healthPauseMin, healthPauseMax, failures))
		select {
		case <-timer.C:
		case <-w.context.Done():
			timer.Stop()
			return
		}
	}
}

// watch makes the call, and settles what the server answers until the call ends. answered says that it has answered at all.
func (w *healthWatch) watch() (answered bool, err error) {
	watch, err := w.begin()
	if err != nil {
		return false, err
	}
	defer w.counted.Store(false)
	defer watch.Cancel(codes.Canceled)
	decoder := decoder{codec: protobufCodec, limit: defaultReceiveMax, missing: codes.Internal}
	for last := healthpb.HealthCheckResponse_UNKNOWN; ; {
		message, err := watch.Recv()
		if err != nil {
			if err = watch.Outcome().Status.Err(); err == nil {
				err = errors.New("OK, though the client still watches")
			}
			return answered, err
		}
		w.counted.Store(true)
		var answer healthpb.HealthCheckResponse
		if _, err := decoder.decode(message, &answer); err != nil {
			return answered, err
		}
		if answered && answer.Status == last {
			continue
		}
		answered, last = true, answer.Status
		verdict := &healthVerdict{}
		if answer.Status != healthpb.HealthCheckResponse_SERVING {
			verdict.err = w.failure("is %v by %s", answer.Status, healthpb.Health_Watch_FullMethodName)
		}
		w.settle(verdict)
	}
}

func (w *healthWatch) begin() (call.ClientCall, error) {
	var header metadata.MD
	var err error
	for _, creds := range w.check.credentials {
		if header, err = joinCredentials(w.context, healthpb.Health_Watch_FullMethodName, w.session.peer, header, creds); err != nil {
			return nil, err
		}
	}
	request, err := proto.Marshal(&healthpb.HealthCheckRequest{Service: w.check.service})
	if err != nil {
		return nil, err
	}
	return w.session.client.Start(w.context, &call.Start{
		Method: healthpb.Health_Watch_FullMethodName, Header: header, MessageLenMax: defaultReceiveMax,
		Message: &call.Message{Data: mem.BufferSlice{mem.SliceBuffer(request)}}, Last: true,
	})
}

// failure is the status of calls that find no other server.
func (w *healthWatch) failure(format string, values ...any) error {
	return status.Errorf(codes.Unavailable, "tollfree: no calls go to %s: the health of its service %q %s", w.endpoint.address, w.check.service, fmt.Sprintf(format, values...))
}

// settle notes a verdict, and has calls that wait look again. nil: the server's health is not known.
func (w *healthWatch) settle(verdict *healthVerdict) {
	w.verdict.Store(verdict)
	w.endpoint.changed()
}
