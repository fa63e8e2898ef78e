package tollfree

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/transport"
)

// The service by which a gateway leads processes to one another, and its header: spec/wire.md, section 24.
const (
	directService   = "/tollfree.DirectConnection/"
	directAskMethod = directService + "Ask"
	admitMethod     = directService + "Admit"

	headerProcess = "tollfree-process"
)

// admittedMax is how many processes may come by direct connections, or have come, at once.
const admittedMax = 256

// admit answers a gateway that names a process: it has a socket for that one alone, as long as the answer stands.
func (s *Server) admit(from call.ServerCall) {
	if err := s.admitUntil(from); err != nil {
		from.Finish(nil, nil, status.Convert(err), nil)
	}
}

func (s *Server) admitUntil(from call.ServerCall) error {
	if from.Peer().Secret != nil {
		return status.Error(codes.FailedPrecondition, "tollfree: a gateway of another host can't name processes of this one")
	}
	process, ok := transport.ParseProcess(first(from.Header(), headerProcess))
	if !ok {
		return status.Errorf(codes.InvalidArgument, "tollfree: %s names no process", headerProcess)
	}
	defer s.admitted.Add(-1)
	if s.admitted.Add(1) > admittedMax {
		return status.Errorf(codes.ResourceExhausted, "tollfree: %d processes have direct connections to this one already", admittedMax)
	}
	l, err := s.bind(func() (call.Listener, error) { return transport.Admit(process, serverConfig(s.options)) })
	if err != nil {
		return status.Errorf(codes.Unavailable, "tollfree: no socket for a direct connection: %v", err)
	}
	// Whatever ends the answer, the process finds no socket then, and its session takes no more calls.
	defer l.Close()
	defer l.listener.Drain(s.abort)
	if err := from.SendHeader(metadata.MD{headerOffer: {l.Address()}}); err != nil {
		return err
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		// An error says that the process can't come any more.
		_ = l.listener.Serve(s.asService())
	}()
	select {
	case <-from.Context().Done():
	case <-s.stopping:
	case <-served:
	}
	from.Finish(nil, nil, statusOK, nil)
	return nil
}

// neighborCaller is what handlers of a direct connection's calls are told of their caller.
func neighborCaller(p call.Peer) *Caller {
	return &Caller{Address: "shm:" + transport.Process{PID: p.PID, UID: p.UID}.String()}
}
