package tollfree

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tollfree/tollfree/go/flat"
	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/pool"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// A FlatObject is a message's object, as generated code has it.
type FlatObject interface{ Flat() flat.Object }

// Streams of objects, as grpc has them of messages. An object that Recv returns is the program's.
type (
	// ObjectServerStreamingClient receives a stream of objects.
	ObjectServerStreamingClient[R FlatObject] interface {
		Recv() (R, error)
		grpc.ClientStream
	}
	// ObjectClientStreamingClient sends a stream of objects, and receives one.
	ObjectClientStreamingClient[Q, R FlatObject] interface {
		Send(Q) error
		CloseAndRecv() (R, error)
		grpc.ClientStream
	}
	// ObjectBidiStreamingClient sends and receives streams of objects.
	ObjectBidiStreamingClient[Q, R FlatObject] interface {
		Send(Q) error
		Recv() (R, error)
		grpc.ClientStream
	}
	// ObjectServerStreamingServer sends a stream of objects.
	ObjectServerStreamingServer[R FlatObject] interface {
		Send(R) error
		grpc.ServerStream
	}
	// ObjectClientStreamingServer receives a stream of objects, and sends one.
	ObjectClientStreamingServer[Q, R FlatObject] interface {
		Recv() (Q, error)
		SendAndClose(R) error
		grpc.ServerStream
	}
	// ObjectBidiStreamingServer receives and sends streams of objects.
	ObjectBidiStreamingServer[Q, R FlatObject] interface {
		Recv() (Q, error)
		Send(R) error
		grpc.ServerStream
	}
)

// objectSender and objectReceiver are what a stream of objects is made of.
type objectSender interface {
	sendObject(flat.Object) error
}

type objectReceiver interface {
	recvObject(flat.Type) (flat.Object, error)
}

// An ObjectClientStream is a call with streams of objects as generated clients have it.
type ObjectClientStream[Q, R FlatObject] struct {
	grpc.ClientStream
	method *ObjectMethod
	of     func(flat.Object) R
}

// NewObjectStream begins a call with streams of objects, for clients that protoc-gen-go-tollfree generates. request and reply are the messages of
// protoc-gen-go's, in which objects travel where the server takes none; they may be nil pointers. An error is a status.
func NewObjectStream[Q, R FlatObject](ctx context.Context, conn DirectConn, desc *grpc.StreamDesc, m *ObjectMethod, request, reply proto.Message, of func(flat.Object) R, options ...grpc.CallOption) (*ObjectClientStream[Q, R], error) {
	if own := conn.own; own != nil && !own.intercepted() {
		stream, err := own.newStream(ctx, desc, m.path, m, own.withDefaults(append([]grpc.CallOption{directOption{}}, options...)))
		if err != nil {
			return nil, err
		}
		if stream.request.objects != nil {
			return &ObjectClientStream[Q, R]{stream, m, of}, nil
		}
		return &ObjectClientStream[Q, R]{convertedClientStream{stream, request, reply}, m, of}, nil
	}
	stream, err := conn.NewStream(ctx, desc, m.path, options...)
	if err != nil {
		return nil, err
	}
	return &ObjectClientStream[Q, R]{convertedClientStream{stream, request, reply}, m, of}, nil
}

// Send sends an object. An error is io.EOF where the call has ended: Recv has its status.
func (s *ObjectClientStream[Q, R]) Send(object Q) error {
	return s.ClientStream.(objectSender).sendObject(object.Flat())
}

// SendOnly sends the one object of a method that has one.
func (s *ObjectClientStream[Q, R]) SendOnly(object Q) error {
	if err := s.Send(object); err != nil {
		return err
	}
	return s.CloseSend()
}

// Recv waits for an object. It returns io.EOF at the end of a call that is OK, else a status.
func (s *ObjectClientStream[Q, R]) Recv() (object R, err error) {
	o, err := s.ClientStream.(objectReceiver).recvObject(s.method.reply)
	if err != nil {
		return object, err
	}
	return s.of(o), nil
}

// CloseAndRecv says that no object follows, and waits for the answer.
func (s *ObjectClientStream[Q, R]) CloseAndRecv() (object R, err error) {
	if err := s.CloseSend(); err != nil {
		return object, err
	}
	return s.Recv()
}

// An ObjectStream is a call with streams of objects as generated servers get it.
type ObjectStream struct{ stream grpc.ServerStream }

type objectHandler func(ObjectStream) error

// DirectObjectStream makes a DirectMethod of a service's method with streams of objects.
func DirectObjectStream(m *ObjectMethod, handler func(ObjectStream) error) DirectMethod {
	return DirectMethod{path: m.path, objects: m, stream: handler}
}

// ConvertedStream makes a stream of objects of one of messages of protoc-gen-go's, for calls that come otherwise. request and reply may be nil pointers.
func ConvertedStream(stream grpc.ServerStream, request, reply proto.Message) ObjectStream {
	return ObjectStream{convertedServerStream{stream, request, reply}}
}

// An ObjectServerStream is a call with streams of objects as services see it.
type ObjectServerStream[Q, R FlatObject] struct {
	grpc.ServerStream
	method *ObjectMethod
	of     func(flat.Object) Q
}

// NewObjectServerStream makes what a service gets of what its generated code got.
func NewObjectServerStream[Q, R FlatObject](s ObjectStream, m *ObjectMethod, of func(flat.Object) Q) *ObjectServerStream[Q, R] {
	return &ObjectServerStream[Q, R]{s.stream, m, of}
}

// Recv waits for an object. It returns io.EOF only where the client has finished its stream.
func (s *ObjectServerStream[Q, R]) Recv() (object Q, err error) {
	o, err := s.ServerStream.(objectReceiver).recvObject(s.method.request)
	if err != nil {
		return object, err
	}
	return s.of(o), nil
}

// Send sends an object. An error is a status.
func (s *ObjectServerStream[Q, R]) Send(object R) error {
	return s.ServerStream.(objectSender).sendObject(object.Flat())
}

// SendAndClose sends the one object of a method that has one. An error is a status.
func (s *ObjectServerStream[Q, R]) SendAndClose(object R) error { return s.Send(object) }

// convertedClientStream and convertedServerStream have objects travel as messages of protoc-gen-go's.
type (
	convertedClientStream struct {
		grpc.ClientStream
		request, reply proto.Message
	}
	convertedServerStream struct {
		grpc.ServerStream
		request, reply proto.Message
	}
)

func emptyLike(m proto.Message) proto.Message { return m.ProtoReflect().New().Interface() }

func (s convertedClientStream) sendObject(o flat.Object) error {
	message := emptyLike(s.request)
	if err := encodedOf(o, message); err != nil {
		return err
	}
	return s.SendMsg(message)
}

func (s convertedClientStream) recvObject(y flat.Type) (flat.Object, error) {
	message := emptyLike(s.reply)
	if err := s.RecvMsg(message); err != nil {
		return flat.Object{}, err
	}
	return objectOf(y, message)
}

func (s convertedServerStream) sendObject(o flat.Object) error {
	message := emptyLike(s.reply)
	if err := encodedOf(o, message); err != nil {
		return err
	}
	return s.SendMsg(message)
}

func (s convertedServerStream) recvObject(y flat.Type) (flat.Object, error) {
	message := emptyLike(s.request)
	if err := s.RecvMsg(message); err != nil {
		return flat.Object{}, err
	}
	return objectOf(y, message)
}

// An outgoingObject is an object that a client sends.
type outgoingObject struct {
	object  flat.Object
	method  *ObjectMethod
	sendMax int
	pool    *pool.Pool // nil: none
	// held keeps a shared object where it lies, for each sendOp that has it; nil: the object is this process's own.
	held mem.Buffer
}

// newOutgoingObject holds a shared object in p, or copies it: the program may release it before it is sent. The caller has the reference. An error is a status.
func newOutgoingObject(o flat.Object, m *ObjectMethod, sendMax int, p *pool.Pool) (*outgoingObject, error) {
	out := &outgoingObject{object: o, method: m, sendMax: sendMax, pool: p}
	if !o.IsShared() {
		return out, nil
	}
	if p != nil {
		if held, ok := p.Hold(o.Bytes()); ok {
			out.held = held
			return out, nil
		}
	}
	copied, err := o.Clone()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "tollfree: an object has changed in its pool since it came: %v", err)
	}
	out.object = copied
	return out, nil
}

// to is the message as the server of a session takes it: an object where it has said so, else encoded. An error is a status.
func (o *outgoingObject) to(s *session) (*call.Message, error) {
	takes := false
	if s.unary != nil {
		print, said := s.unary.TakesObjects(o.method.path)
		takes = said && print == o.method.print
	}
	message, err := objectMessage(o.object, takes, o.sendMax, o.pool)
	if err != nil {
		return nil, err
	}
	return &message, nil
}

// objectMessage is an object as it is sent: encoded unless the other end takes objects, and where it is too long for one. p, which may be nil, is the
// pool in which the object may lie. An error is a status.
func objectMessage(o flat.Object, takes bool, sendMax int, p *pool.Pool) (message call.Message, err error) {
	bytes := o.Bytes()
	if bytes == nil {
		return message, status.Error(codes.Internal, "tollfree: no object is to be sent: build one")
	}
	if takes = takes && len(bytes) <= min(sendMax, wire.ObjectLenMax); !takes {
		if bytes, err = o.Protobuf(); err != nil {
			return message, status.Errorf(codes.Internal, "tollfree: %v", err)
		}
		if len(bytes) > sendMax {
			return message, tooLongToSend(len(bytes), sendMax)
		}
	}
	return call.Message{Data: bytesOf(o, bytes, p), Object: takes}, nil
}

// bytesOf is an object's bytes, or those of its encoding, as they are sent. A shared object may be released before they have gone out: they are held
// in the pool, or copied.
func bytesOf(o flat.Object, bytes []byte, p *pool.Pool) mem.BufferSlice {
	if o.IsShared() && &bytes[0] == &o.Bytes()[0] {
		if p != nil {
			if held, ok := p.Hold(bytes); ok {
				return mem.BufferSlice{held}
			}
		}
		bytes = slices.Clone(bytes)
	}
	return mem.BufferSlice{mem.SliceBuffer(bytes)}
}

// An incomingObject is what RecvMsg fills where an object is to come.
type incomingObject struct {
	kind   flat.Type
	object flat.Object
}

func (o *incomingObject) verify(bytes []byte, limit int) (err error) {
	o.object, err = verifiedOf(o.kind, bytes, limit)
	return err
}

func (o *incomingObject) decode(bytes []byte) (err error) {
	o.object, err = decodedOf(o.kind, bytes)
	return err
}

// ObjectOf makes an object of a method's request, for servers that protoc-gen-go-tollfree generates. An error is a status.
func ObjectOf(m *ObjectMethod, request proto.Message) (flat.Object, error) {
	return objectOf(m.request, request)
}
