package tollfree

import (
	"context"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tollfree/tollfree/go/flat"
	"github.com/tollfree/tollfree/go/internal/buffers"
	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/wire"
)

// An ObjectMethod is a method whose messages may travel as flat messages, as generated code has it.
type ObjectMethod struct {
	path           string
	request, reply flat.Type
	print          uint64
}

// NewObjectMethod is of the method at path, "/package.Service/Method".
func NewObjectMethod(path string, request, reply flat.Type) *ObjectMethod {
	return &ObjectMethod{path, request, reply, flat.MethodFingerprint(request, reply)}
}

// encodedOf fills a message of protoc-gen-go's with an object's fields, objectOf makes an object of one.
func encodedOf(o flat.Object, into proto.Message) error {
	encoded, err := o.Protobuf()
	if err == nil {
		err = proto.Unmarshal(encoded, into)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "tollfree: an object can't be encoded as %T: %v", into, err)
	}
	return nil
}

func objectOf(y flat.Type, message proto.Message) (flat.Object, error) {
	encoded, err := proto.Marshal(message)
	if err != nil {
		return flat.Object{}, status.Errorf(codes.Internal, "tollfree: the message %T can't be encoded: %v", message, err)
	}
	return decodedOf(y, encoded)
}

func decodedOf(y flat.Type, encoded []byte) (flat.Object, error) {
	o, err := y.Decode(encoded, math.MaxInt32)
	if err != nil {
		return o, status.Errorf(codes.Internal, "tollfree: %v", err)
	}
	return o, nil
}

// InvokeObject makes a unary call with objects, for clients that protoc-gen-go-tollfree generates. Where the server takes no objects of the method,
// or has another schema, or the call needs more than a session, it goes with messages of protoc-gen-go's: in is for the request then, out for the
// reply, and both are new. An error is a status.
func (d DirectConn) InvokeObject(ctx context.Context, m *ObjectMethod, request flat.Object, in, out proto.Message, options ...grpc.CallOption) (flat.Object, error) {
	if d.own != nil && !d.own.intercepted() {
		if inPlace, alone := onlyInPlace(options); alone {
			if reply, done, err := d.own.invokeObject(ctx, m, request, inPlace); done {
				return reply, err
			}
		}
	}
	if err := encodedOf(request, in); err != nil {
		return flat.Object{}, err
	}
	if err := d.Invoke(ctx, m.path, in, out, options...); err != nil {
		return flat.Object{}, err
	}
	return objectOf(m.reply, out)
}

// invokeObject makes a call as invokePlain does: as an object where the server takes such, else encoded. inPlace keeps a reply that is read in the
// pool; nil: it is copied.
func (cc *ClientConn) invokeObject(ctx context.Context, m *ObjectMethod, request flat.Object, inPlace *Payloads) (reply flat.Object, done bool, err error) {
	limits := cc.plain
	if limits == nil || cc.context.Err() != nil {
		return reply, false, nil
	}
	if _, has := metadata.FromOutgoingContext(ctx); has {
		return reply, false, nil
	}
	s := cc.balancer.ready()
	if s == nil || s.unary == nil {
		return reply, false, nil
	}
	object := true
	bytes := request.Bytes()
	if print, takes := s.unary.TakesObjects(m.path); !takes || print != m.print || len(bytes) > min(limits.sendMax, wire.ObjectLenMax) {
		object = false
		if bytes, err = request.Protobuf(); err != nil {
			return reply, true, status.Errorf(codes.Internal, "tollfree: %v", err)
		}
		if len(bytes) > limits.sendMax {
			return reply, true, tooLongToSend(len(bytes), limits.sendMax)
		}
	}
	q := plainCalls.Get().(*plainCall)
	defer q.release()
	q.start = call.Start{Method: m.path, Header: cc.header, MessageLenMax: messageLenMax(limits.receiveMax), TakesObjects: object, Object: object}
	q.start.Deadline, _ = ctx.Deadline()
	var message *call.Message
	short := bytes
	if len(bytes) > buffers.SmallMax {
		message, short = &call.Message{Data: bytesOf(request, bytes, cc.options.pool), Object: object}, nil
	}
	if done, err = cc.finishPlain(ctx, s, q, message, short); !done || err != nil {
		return reply, done, err
	}
	if q.reply.Message.Compressed {
		return reply, true, status.Error(codes.Internal, "tollfree: the server has compressed what answers a request that is not compressed")
	}
	if q.reply.Message.Object {
		cc.objects.Add(1)
	}
	reply, err = received(&q.reply, m.reply, limits.receiveMax, inPlace)
	return reply, true, err
}

// received makes an object of a message that has come. inPlace keeps what the message lies in, if that is a pool; nil: the object is a copy.
func received(from *call.Reply, y flat.Type, limit int, inPlace *Payloads) (flat.Object, error) {
	if from.IsShort {
		return decodedOf(y, from.Bytes())
	}
	if inPlace.mayKeep(&from.Message) {
		kept := from.Message.Data[0]
		from.Message.Data = nil
		return inPlace.object(y, kept, limit)
	}
	// A copy: others may write where it lies, and use the room again.
	bytes := from.Message.Data.Materialize()
	if from.Message.Object {
		return verifiedOf(y, bytes, limit)
	}
	if len(bytes) > limit {
		return flat.Object{}, tooLongReceived(len(bytes), limit)
	}
	return decodedOf(y, bytes)
}

// verifiedOf makes an object of bytes that nobody else writes.
func verifiedOf(y flat.Type, bytes []byte, limit int) (flat.Object, error) {
	o, err := y.Verify(bytes)
	return withinLimit(o, err, limit)
}

// withinLimit is what verifying has given, if the message is not too long.
func withinLimit(o flat.Object, err error, limit int) (flat.Object, error) {
	if err != nil {
		return o, status.Errorf(codes.Internal, "tollfree: %v", err)
	}
	if len(o.Bytes()) <= limit {
		return o, nil
	}
	// The limit is on messages as they are encoded.
	encoded, err := o.Protobuf()
	if err == nil && len(encoded) > limit {
		return flat.Object{}, tooLongReceived(len(encoded), limit)
	}
	return o, nil
}

func tooLongReceived(n, limit int) error {
	return status.Errorf(codes.ResourceExhausted, "tollfree: a message of %d bytes came, where %d is the most", n, limit)
}

// objectsOf says to the transport of which methods objects are taken.
func (s *Server) objectsOf(path string) (fingerprint uint64, ok bool) {
	m := s.method(path)
	if m == nil || m.objects == nil || !s.plain {
		return 0, false
	}
	if intercepted := m.unary != nil && s.unary != nil || m.stream != nil && s.stream != nil; intercepted {
		return 0, false
	}
	return m.objects.print, true
}

// DirectObjects makes a DirectMethod of a service's method that takes and gives objects.
func DirectObjects(m *ObjectMethod, handler func(context.Context, flat.Object) (flat.Object, error)) DirectMethod {
	return DirectMethod{path: m.path, objects: m, serve: func(s *Server, from call.UnaryCall, path string, show *shownHeader) {
		w := servedCalls.Get().(*servedCall)
		defer w.release()
		c := new(unaryServerCall)
		err := c.receive(from, path, show, &w.request)
		var request flat.Object
		var requests *Payloads
		if w.request.Message.InPool && s.options.inPlace[m.path] {
			requests = new(Payloads)
			defer requests.Free()
		}
		if err == nil {
			request, err = received(&w.request, m.request, s.options.receiveMax, requests)
		}
		var reply flat.Object
		// Others do not know the method's objects.
		objects := w.request.Message.Object
		if objects {
			s.objects.Add(1)
		}
		if err == nil {
			reply, err = handler(c, request)
		}
		if err == nil {
			err = w.replyWith(reply, objects, s)
		}
		c.finish(w, outcomeOf(err))
	}}
}

// replyWith has the reply be an object, encoded unless the client takes objects.
func (w *servedCall) replyWith(reply flat.Object, objects bool, s *Server) error {
	message, err := objectMessage(reply, objects, s.options.sendMax, s.options.pool)
	if err != nil {
		return err
	}
	w.out.whole = message
	return nil
}

// ObjectHandler makes of a handler of objects one of messages of protoc-gen-go's, for calls that come otherwise. reply is new.
func ObjectHandler(ctx context.Context, m *ObjectMethod, request, reply proto.Message, handler func(context.Context, flat.Object) (flat.Object, error)) error {
	in, err := objectOf(m.request, request)
	if err != nil {
		return err
	}
	out, err := handler(ctx, in)
	if err != nil {
		return err
	}
	return encodedOf(out, reply)
}
