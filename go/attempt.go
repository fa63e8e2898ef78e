package tollfree

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
)

// A request is what all attempts of a call have in common.
type request struct {
	cc       *ClientConn
	context  context.Context
	deadline time.Time // zero: none
	method   string
	desc     *grpc.StreamDesc
	info     callInfo
	options  []grpc.CallOption
	retrier  retrier
	objects  *ObjectMethod // nil: no objects are sent, nor taken
}

var unaryDesc = &grpc.StreamDesc{}

// newRequest has the error, a status, of a call that can't be made.
func (cc *ClientConn) newRequest(ctx context.Context, method string, desc *grpc.StreamDesc, options []grpc.CallOption) (request, error) {
	r := request{cc: cc, context: ctx, method: method, desc: desc, options: options}
	config := cc.options.config.method(method)
	var err error
	if r.info, err = newCallInfo(config, options); err != nil {
		return r, err
	}
	if cc.context.Err() != nil {
		return r, errClosing
	}
	r.deadline, _ = ctx.Deadline()
	if config.hasTimeout {
		if own := time.Now().Add(config.timeout); r.deadline.IsZero() || own.Before(r.deadline) {
			r.deadline = own
		}
	}
	r.retrier = retrier{
		policy: config.retry, throttle: cc.throttle, deadline: !r.deadline.IsZero(), movesMax: movesMax + len(cc.balancer.endpoints),
	}
	return r, nil
}

// An attempt is one call to one server.
type attempt struct {
	request *request
	context context.Context // what stats handlers made of the request's
	begun   time.Time       // where there are stats handlers
	session *session
	opening call.Start
	call    call.ClientCall
	decoder decoder
	header  metadata.MD
	headed  bool // header has been waited for
	ok      bool // there was one
	ended   bool
	// unprocessed says that the server has not looked at the call.
	unprocessed bool
}

// begin picks a session and begins the call there. With an error, moved says that no server has looked at the call and another
// may; otherwise the call fails with the error, a status. It frees first's data.
func (r *request) begin(a *attempt, transparent bool, first sendOp) (moved bool, err error) {
	*a = attempt{request: r, context: r.context}
	if h := r.cc.handler; h != nil {
		a.begun = time.Now()
		a.context = h.TagRPC(a.context, &stats.RPCTagInfo{FullMethodName: r.method, FailFast: r.info.failFast})
		h.HandleRPC(a.context, &stats.Begin{
			Client: true, BeginTime: a.begun, FailFast: r.info.failFast, IsClientStream: r.desc.ClientStreams,
			IsServerStream: r.desc.ServerStreams, IsTransparentRetryAttempt: transparent,
		})
	}
	if moved, err = a.start(first); err != nil {
		a.end(err)
	}
	return moved, err
}

func (a *attempt) start(first sendOp) (moved bool, err error) {
	r := a.request
	fail := func(err error) (bool, error) {
		first.free()
		return false, err
	}
	if !r.deadline.IsZero() && !time.Now().Before(r.deadline) {
		return fail(status.Error(codes.DeadlineExceeded, "tollfree: the call's deadline had passed before it was sent"))
	}
	if a.session, err = r.cc.pick(r.context, r.deadline, r.info.failFast); err != nil {
		if err == errClosing || status.Code(err) == codes.Unavailable {
			noteUnserved(r.context)
		}
		return fail(err)
	}
	header, err := a.outgoingHeader()
	if err != nil {
		return fail(err)
	}
	message, err := first.to(a)
	if err != nil {
		return fail(err)
	}
	a.opening = call.Start{
		Method: r.method, Header: header, Deadline: r.deadline, MessageLenMax: messageLenMax(r.info.receiveMax),
		Message: message, Last: first.last, TakesObjects: r.objects != nil,
	}
	a.session.outstanding.Add(1)
	if a.call, err = a.session.client.Start(a.context, &a.opening); err != nil {
		a.session.outstanding.Add(-1)
		a.call = nil
		if r.cc.context.Err() != nil {
			return false, errClosing
		}
		return status.Code(err) == codes.Unavailable, asStatus(err)
	}
	if h := r.cc.handler; h != nil {
		h.HandleRPC(a.context, &stats.OutHeader{
			Client: true, Compression: r.info.encoding, Header: header, Authority: authority, FullMethod: r.method,
			RemoteAddr: a.session.peer.Addr, LocalAddr: a.session.peer.LocalAddr,
		})
	}
	a.decoder = decoder{
		codec: r.info.codec, limit: r.info.receiveMax, missing: codes.Internal, pool: r.cc.options.pool, inPlace: r.info.inPlace,
	}
	return false, nil
}

// outgoingHeader is the client's own header, which nobody may change, where the call adds nothing.
func (a *attempt) outgoingHeader() (metadata.MD, error) {
	r := a.request
	md, err := outgoingMetadata(a.context)
	if err != nil {
		return nil, err
	}
	for _, creds := range r.cc.options.credentials {
		if md, err = joinCredentials(a.context, r.method, a.session.peer, md, creds); err != nil {
			return nil, err
		}
	}
	if r.info.credentials != nil {
		if md, err = joinCredentials(a.context, r.method, a.session.peer, md, r.info.credentials); err != nil {
			return nil, err
		}
	}
	encoded := r.info.encoding != "" && r.info.encoding != encoding.Identity
	if md == nil && !encoded && r.info.subtype == "" && r.retrier.retries == 0 {
		return r.cc.header, nil
	}
	if md == nil {
		md = make(metadata.MD, 4)
	}
	for name, values := range r.cc.header {
		md[name] = values
	}
	if encoded {
		md[headerEncoding] = []string{r.info.encoding}
		md[headerAccept] = []string{acceptedEncodings(r.info.encoding)}
	}
	if r.info.subtype != "" {
		md[headerContentType] = []string{contentType + "+" + r.info.subtype}
	}
	if r.retrier.retries > 0 {
		md[headerAttempts] = []string{strconv.Itoa(r.retrier.retries)}
	}
	return md, nil
}

// belongsToServers says that a status is an application's, which nothing else may give: gRFC A54.
func belongsToServers(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.DataLoss:
		return true
	}
	return false
}

// joinCredentials adds to md what creds say of a call of method at a server. An error is a status.
func joinCredentials(ctx context.Context, method string, server *peer.Peer, md metadata.MD, creds credentials.PerRPCCredentials) (metadata.MD, error) {
	ctx = credentials.NewContextWithRequestInfo(ctx, credentials.RequestInfo{Method: method, AuthInfo: server.AuthInfo})
	audience := "https://" + authority + strings.TrimSuffix(method[:strings.LastIndexByte(method, '/')+1], "/")
	more, err := creds.GetRequestMetadata(ctx, audience)
	if err != nil {
		if s, ok := status.FromError(err); ok {
			if belongsToServers(s.Code()) {
				return nil, status.Errorf(codes.Internal, "tollfree: the call's credentials give a status that only servers may: %v", err)
			}
			return nil, s.Err()
		}
		return nil, status.Errorf(codes.Unauthenticated, "tollfree: the call's credentials give no metadata: %v", err)
	}
	joined := make(metadata.MD, len(more))
	for name, value := range more {
		joined[strings.ToLower(name)] = []string{value}
	}
	if err := checkMetadata(joined); err != nil {
		return nil, err
	}
	return joinMetadata(md, joined), nil
}

// awaitHeader waits for the answer's header; false where the call ended without one.
func (a *attempt) awaitHeader() bool {
	if a.headed {
		return a.ok
	}
	header, ok := a.call.Header()
	a.header, a.ok, a.headed = header, ok, true
	if ok {
		a.decoder.encoding = first(header, headerEncoding)
		if h := a.request.cc.handler; h != nil {
			h.HandleRPC(a.context, &stats.InHeader{Client: true, Compression: a.decoder.encoding, Header: visibleHeader(header)})
		}
	}
	return ok
}

// sent tells stats handlers of a message that the call has taken.
func (a *attempt) sent(m any, out outgoingMessage, size int) {
	if h := a.request.cc.handler; h != nil {
		h.HandleRPC(a.context, outPayload(true, m, out, size))
	}
}

// decode fills m. Where it can't, it ends the call and returns a status.
func (a *attempt) decode(message call.Message, m any) error {
	if message.Compressed {
		a.awaitHeader()
	}
	if message.Object {
		a.request.cc.objects.Add(1)
	}
	lengths, err := a.decoder.decode(message, m)
	if err != nil {
		a.call.Cancel(status.Code(err))
		return err
	}
	if h := a.request.cc.handler; h != nil {
		h.HandleRPC(a.context, inPayload(true, m, lengths))
	}
	return nil
}

// discard frees what has come of a call that has ended, and nobody reads.
func (a *attempt) discard() {
	if a.call == nil {
		return
	}
	for message, err := a.call.Recv(); err == nil; message, err = a.call.Recv() {
		message.Data.Free()
	}
}

// trailer is what came at the end; nil before.
func (a *attempt) trailer() metadata.MD {
	if a.call == nil {
		return nil
	}
	return a.call.Outcome().Trailer
}

// end is called once, when the attempt is over, with its error, a status or nil.
func (a *attempt) end(err error) {
	if a.ended {
		return
	}
	a.ended = true
	if a.call != nil {
		a.session.outstanding.Add(-1)
		if !a.unprocessed {
			a.session.ended(err)
		}
	}
	h := a.request.cc.handler
	if h == nil {
		return
	}
	var trailer metadata.MD
	if a.call != nil {
		trailer = a.trailer()
		h.HandleRPC(a.context, &stats.InTrailer{Client: true, Trailer: trailer})
	}
	h.HandleRPC(a.context, &stats.End{Client: true, BeginTime: a.begun, EndTime: time.Now(), Trailer: trailer, Error: err})
}

// again says whether the call is made again after an attempt whose outcome is given, and waits as long as it has to.
func (r *request) again(a *attempt, outcome call.Outcome) (transparent, ok bool) {
	if outcome.Status.Code() == codes.OK {
		return false, false
	}
	if outcome.Unprocessed {
		return true, r.moveOn()
	}
	if a.headed && a.ok {
		return false, false
	}
	pause, ok := r.retrier.retry(outcome.Status, outcome.Trailer)
	return false, ok && r.sleep(pause)
}

// moveOn is again for a call that no server has looked at.
func (r *request) moveOn() bool {
	pause, ok := r.retrier.move()
	return ok && r.sleep(pause)
}

// sleep is false where the call has no time for it.
func (r *request) sleep(d time.Duration) bool {
	if r.context.Err() != nil || r.cc.context.Err() != nil || !r.deadline.IsZero() && time.Until(r.deadline) <= d {
		return false
	}
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.context.Done():
	case <-r.cc.context.Done():
	}
	return false
}

// outcomeError is the error of a call that has ended, a status; nil where it is OK.
func (r *request) outcomeError(outcome call.Outcome) error {
	if outcome.Status.Code() == codes.OK {
		return nil
	}
	if r.cc.context.Err() != nil && outcome.Status.Code() == codes.Unavailable {
		return errClosing
	}
	return outcome.Status.Err()
}

// callEnd fills what options ask for, and calls those that want to know. a is nil where there was no attempt.
func (r *request) callEnd(a *attempt, err error) {
	if err == nil {
		r.cc.throttle.succeeded()
	}
	endOptions(r.options, a, err)
}

func endOptions(options []grpc.CallOption, a *attempt, err error) {
	for _, option := range options {
		switch o := option.(type) {
		case grpc.HeaderCallOption:
			if a != nil && a.call != nil && a.awaitHeader() {
				*o.HeaderAddr = visibleHeader(a.header)
			}
		case grpc.TrailerCallOption:
			if a != nil && a.call != nil {
				*o.TrailerAddr = a.trailer()
			}
		case grpc.PeerCallOption:
			if a != nil && a.session != nil {
				*o.PeerAddr = *a.session.peer
			}
		case grpc.OnFinishCallOption:
			o.OnFinish(err)
		}
	}
}

func asStatus(err error) error {
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.FromContextError(err).Err()
}
