package tollfree

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tollfree/tollfree/go/internal/call"
)

// A DirectConn makes calls for clients that protoc-gen-go-tollfree generates; programs have no use for it. Over a connection of
// this package, a call that needs nothing but a session passes over grpc's call options and codec. Any other connection gets the calls
// as those of protoc-gen-go-grpc.
type DirectConn struct {
	conn grpc.ClientConnInterface
	own  *ClientConn // nil: conn is another package's
}

// Direct makes a DirectConn of a connection.
func Direct(conn grpc.ClientConnInterface) DirectConn {
	own, _ := conn.(*ClientConn)
	return DirectConn{conn, own}
}

// Invoke makes a unary call. reply is new, and nobody else knows it. An error is a status.
func (d DirectConn) Invoke(ctx context.Context, method string, request, reply proto.Message, options ...grpc.CallOption) error {
	if d.own != nil {
		if len(options) == 0 && !d.own.intercepted() {
			if done, err := d.own.invokePlain(ctx, method, request, reply, true, true); done {
				return err
			}
		}
		return d.own.Invoke(ctx, method, request, reply, append([]grpc.CallOption{directOption{}}, options...)...)
	}
	return d.conn.Invoke(ctx, method, request, reply, append([]grpc.CallOption{grpc.StaticMethod()}, options...)...)
}

// NewStream begins a call with streams. An error is a status.
func (d DirectConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption) (grpc.ClientStream, error) {
	if d.own != nil {
		return d.own.NewStream(ctx, desc, method, append([]grpc.CallOption{directOption{}}, options...)...)
	}
	return d.conn.NewStream(ctx, desc, method, append([]grpc.CallOption{grpc.StaticMethod()}, options...)...)
}

// A directOption has a call's messages be encoded by vtprotobuf's methods where they have them.
type directOption struct{ grpc.EmptyCallOption }

// A DirectMethod is a method as generated code registers it: a unary one, or one with streams of objects.
type DirectMethod struct {
	path  string
	serve directHandler
	// objects is not nil of a method that takes and gives objects, stream of one with streams of them.
	objects *ObjectMethod
	stream  objectHandler
}

// directMessage is a pointer to a message.
type directMessage[M any] interface {
	*M
	proto.Message
}

// DirectUnary makes a DirectMethod of a service's method at path, "/package.Service/Method".
func DirectUnary[Q, R any, PQ directMessage[Q], PR directMessage[R]](path string, handler func(context.Context, PQ) (PR, error)) DirectMethod {
	// A call is in one piece with its request: both live as long, mostly.
	type room struct {
		call    unaryServerCall
		request Q
	}
	return DirectMethod{path: path, serve: func(s *Server, from call.UnaryCall, path string, show *shownHeader) {
		w := servedCalls.Get().(*servedCall)
		defer w.release()
		r := new(room)
		err := r.call.receive(from, path, show, &w.request)
		if err == nil {
			err = decodeProto(&w.request, PQ(&r.request), true, true, s.options.receiveMax)
		}
		if err != nil {
			r.call.finish(w, status.Convert(err))
			return
		}
		reply, err := handler(&r.call, &r.request)
		r.call.reply(s, w, reply, true, err)
	}}
}

// RegisterDirect registers a service that protoc-gen-go-tollfree has generated: with a server of this package so that calls which need
// nothing but their session pass over grpc's codec; with others as RegisterService does. It panics where that does.
func RegisterDirect(registrar grpc.ServiceRegistrar, desc *grpc.ServiceDesc, impl any, methods ...DirectMethod) {
	registrar.RegisterService(desc, impl)
	if s, is := registrar.(*Server); is {
		s.direct(desc, methods)
	}
}

// direct has methods of a service be served by what generated code gives.
func (s *Server) direct(desc *grpc.ServiceDesc, methods []DirectMethod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range desc.Streams {
		s.methods["/"+desc.ServiceName+"/"+desc.Streams[i].StreamName].vt = true
	}
	for _, direct := range methods {
		m := s.methods[direct.path]
		m.vt, m.direct, m.objects, m.objectStream = true, direct.serve, direct.objects, direct.stream
	}
}
