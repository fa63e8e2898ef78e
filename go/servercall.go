package tollfree

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tollfree/tollfree/go/flat"
	"github.com/tollfree/tollfree/go/internal/buffers"
	"github.com/tollfree/tollfree/go/internal/call"
)

var (
	_ grpc.ServerStream          = (*serverCall)(nil)
	_ grpc.ServerTransportStream = (*transportStream)(nil)
)

// A serverCall is one call as services see it. One goroutine sends, another receives, and any sets headers and trailers.
type serverCall struct {
	server     *Server
	call       call.ServerCall
	method     *method
	context    context.Context
	decoder    decoder
	subtype    string
	compressor encoding.Compressor // of answers; nil: none
	received   bool                // a message
	objects    atomic.Bool         // a message has come as an object: so may answers
	reply      call.Message        // of a unary call
	room       [1]mem.Buffer       // for reply
	begun      time.Time           // where there are stats handlers
	answer     answer
	// sessionOnly says that nothing but the session has a part in messages. short and next, if not nil, send and receive such messages; incoming
	// is next's.
	sessionOnly bool
	short       call.ShortSender
	next        call.ReplyReceiver
	incoming    call.Reply
}

// newCall has the error, a status, of a call that can't be served. m is nil where nobody has registered the method.
func (s *Server) newCall(from call.ServerCall, m *method) (*serverCall, error) {
	header := from.Header()
	c := &serverCall{server: s, call: from, method: m}
	var ok bool
	if c.subtype, ok = subtypeOf(first(header, headerContentType)); !ok {
		return nil, status.Errorf(codes.Internal, "tollfree: the content type %q is not gRPC's", first(header, headerContentType))
	}
	ctx := from.Context()
	of, known := ctx.Value(clientKey{}).(*client)
	if !known { // The carrier does not tell of sessions.
		p := from.Peer()
		ctx, of = peer.NewContext(ctx, peerOf(p)), &client{agent: []string{p.Agent}}
	}
	c.decoder = decoder{codec: s.options.codec, limit: s.options.receiveMax, encoding: first(header, headerEncoding), missing: codes.Unimplemented, pool: s.options.pool}
	c.context = of.withHeader(ctx, from, header)
	if s.handler != nil {
		c.tag()
	}
	if m == nil {
		return c, nil
	}
	if m.inPlace {
		c.decoder.inPlace = new(Payloads)
	}
	c.context = grpc.NewContextWithServerTransportStream(c.context, (*transportStream)(c))
	if c.decoder.codec == nil {
		if c.decoder.codec = registeredCodec(c.subtype); c.decoder.codec == nil {
			return nil, status.Errorf(codes.Unimplemented, "tollfree: nobody has registered a codec for the content subtype %q", c.subtype)
		}
		if protobufIsOurs && c.decoder.codec == protobufCodec {
			c.sessionOnly = s.handler == nil
			if c.sessionOnly && !m.inPlace {
				c.short, _ = from.(call.ShortSender)
				c.next, _ = from.(call.ReplyReceiver)
			}
			if m.vt {
				c.decoder.codec = directCodec{}
			}
		}
	}
	if name := c.decoder.encoding; name != "" && name != encoding.Identity {
		// Answers are compressed as requests are, as in grpc-go.
		if c.compressor = encoding.GetCompressor(name); c.compressor == nil {
			return nil, status.Errorf(codes.Unimplemented, "tollfree: nobody has registered a compressor %q in the server", name)
		}
	}
	return c, nil
}

// tag tells stats handlers of the call.
func (c *serverCall) tag() {
	h, path := c.server.handler, c.call.Method()
	c.context = h.TagRPC(c.context, &stats.RPCTagInfo{FullMethodName: path})
	seen, _ := metadata.FromIncomingContext(c.context)
	in := &stats.InHeader{FullMethod: path, Compression: c.decoder.encoding, Header: seen}
	if from, ok := peer.FromContext(c.context); ok {
		in.RemoteAddr, in.LocalAddr = from.Addr, from.LocalAddr
	}
	h.HandleRPC(c.context, in)
}

func (c *serverCall) begin(clientStreams, serverStreams bool) {
	if h := c.server.handler; h != nil {
		c.begun = time.Now()
		h.HandleRPC(c.context, &stats.Begin{BeginTime: c.begun, IsClientStream: clientStreams, IsServerStream: serverStreams})
	}
}

func (c *serverCall) serveUnary() {
	c.begin(false, false)
	reply, err := c.method.unary(c.method.impl, c.context, c.RecvMsg, c.server.unary)
	if err != nil {
		c.finish(nil, err)
		return
	}
	out, err := encodeMessage(c.decoder.codec, c.compressor, c.server.options.sendMax, reply, &c.room, c.server.options.pool)
	if err != nil {
		c.finish(nil, err)
		return
	}
	size := out.Data.Len()
	c.outHeader()
	if h := c.server.handler; h != nil {
		h.HandleRPC(c.context, outPayload(false, reply, out, size))
	}
	c.reply = out.Message
	c.finish(&c.reply, nil)
}

func (c *serverCall) serveStream() {
	desc := c.method.stream
	c.begin(desc.ClientStreams, desc.ServerStreams)
	var err error
	if interceptor := c.server.stream; interceptor != nil {
		info := &grpc.StreamServerInfo{FullMethod: c.method.path, IsClientStream: desc.ClientStreams, IsServerStream: desc.ServerStreams}
		err = interceptor(c.method.impl, c, info, desc.Handler)
	} else if c.method.objectStream != nil && c.sessionOnly && c.compressor == nil {
		err = c.method.objectStream(ObjectStream{c})
	} else {
		err = desc.Handler(c.method.impl, c)
	}
	c.finish(nil, err)
}

// finish ends the call with a service's error, or nil. Where the call has ended before, by its client or its deadline, nobody
// reads that, and stats handlers are told why.
func (c *serverCall) finish(message *call.Message, err error) {
	outcome := statusOK
	if err != nil {
		var ok bool
		if outcome, ok = status.FromError(err); !ok {
			outcome = status.FromContextError(err)
		}
	}
	if message == nil && c.answer.hasHeader() {
		c.outHeader()
	}
	header, trailer, headed, wrong := c.answer.end()
	if wrong != nil && outcome.Code() == codes.OK {
		outcome = status.Convert(wrong)
		if message != nil {
			message.Data.Free()
			message = nil
		}
	}
	if message != nil && !headed {
		header = c.ownHeader(header)
	}
	lost := c.call.Finish(header, message, outcome, trailer)
	c.decoder.inPlace.Free()
	h := c.server.handler
	if h == nil {
		return
	}
	h.HandleRPC(c.context, &stats.OutTrailer{Trailer: trailer})
	end := &stats.End{BeginTime: c.begun, EndTime: time.Now(), Error: outcome.Err()}
	if end.Error == nil && lost != nil {
		end.Error = asStatus(lost)
	}
	h.HandleRPC(c.context, end)
}

// ownHeader adds gRPC's own to what the service has set.
func (c *serverCall) ownHeader(header metadata.MD) metadata.MD {
	if c.compressor == nil && c.subtype == "" {
		return header
	}
	if header == nil {
		header = make(metadata.MD, 2)
	}
	if c.compressor != nil {
		header[headerEncoding] = []string{c.compressor.Name()}
	}
	if c.subtype != "" {
		header[headerContentType] = []string{contentType + "+" + c.subtype}
	}
	return header
}

// outHeader tells stats handlers of a header that is about to be sent.
func (c *serverCall) outHeader() {
	h := c.server.handler
	if h == nil {
		return
	}
	if header, headed := c.answer.shownHeader(); !headed {
		out := &stats.OutHeader{Header: header}
		if c.compressor != nil {
			out.Compression = c.compressor.Name()
		}
		h.HandleRPC(c.context, out)
	}
}

// sendHeader sends the header, unless that was done.
func (c *serverCall) sendHeader() error {
	c.outHeader()
	return c.answer.sendHeader(func(header metadata.MD) error { return c.call.SendHeader(c.ownHeader(header)) })
}

func (c *serverCall) Context() context.Context { return c.context }

func (c *serverCall) SetHeader(md metadata.MD) error { return c.answer.setHeader(md) }

func (c *serverCall) SendHeader(md metadata.MD) error {
	if err := c.SetHeader(md); err != nil {
		return err
	}
	return c.sendHeader()
}

// SetTrailer can't return an error: the call ends with it.
func (c *serverCall) SetTrailer(md metadata.MD) {
	if err := c.answer.addTrailer(md); err != nil {
		c.answer.fail(err)
	}
}

// transportStream is a call for grpc.SetHeader, SendHeader, SetTrailer and Method.
type transportStream serverCall

func (t *transportStream) Method() string                  { return t.call.Method() }
func (t *transportStream) SetHeader(md metadata.MD) error  { return (*serverCall)(t).SetHeader(md) }
func (t *transportStream) SendHeader(md metadata.MD) error { return (*serverCall)(t).SendHeader(md) }
func (t *transportStream) SetTrailer(md metadata.MD) error { return t.answer.addTrailer(md) }

// sendNext sends a message in which nothing but the session has a part.
func (c *serverCall) sendNext(m proto.Message) error {
	room := buffers.Small(buffers.SmallMax)
	defer buffers.GiveBack(room)
	e, err := encodeProto(m, c.method.vt, c.server.options.sendMax, *room, c.server.options.pool)
	if err != nil {
		return err
	}
	if err := c.sendHeader(); err != nil {
		e.whole.Data.Free()
		return asStatus(err)
	}
	if e.short != nil {
		err = c.short.SendShort(e.short)
	} else {
		err = c.call.Send(e.whole)
	}
	if err != nil {
		return asStatus(err)
	}
	return nil
}

// receiveNext is RecvMsg for a stream of messages in which nothing but the session has a part.
func (c *serverCall) receiveNext(m proto.Message) error {
	if err := c.next.ReceiveNext(&c.incoming); err == io.EOF {
		return err
	} else if err != nil {
		return asStatus(err)
	}
	if c.incoming.Message.Compressed {
		message := c.incoming.Message
		c.incoming.Message = call.Message{}
		_, err := c.decoder.decode(message, m)
		return err
	}
	defer c.incoming.Clear()
	return decodeProto(&c.incoming, m, c.method.vt, false, c.server.options.receiveMax)
}

func (c *serverCall) SendMsg(m any) error {
	if message, is := m.(proto.Message); is && c.short != nil && c.compressor == nil {
		return c.sendNext(message)
	}
	out, err := encodeMessage(c.decoder.codec, c.compressor, c.server.options.sendMax, m, new([1]mem.Buffer), c.server.options.pool)
	if err != nil {
		return err
	}
	if err := c.sendHeader(); err != nil {
		out.Data.Free()
		return asStatus(err)
	}
	size := out.Data.Len()
	if err := c.call.Send(out.Message); err != nil {
		return asStatus(err)
	}
	if h := c.server.handler; h != nil {
		h.HandleRPC(c.context, outPayload(false, m, out, size))
	}
	return nil
}

// RecvMsg returns io.EOF only where the client has finished its stream.
func (c *serverCall) RecvMsg(m any) error {
	one := c.method.unary != nil || !c.method.stream.ClientStreams
	if into, is := m.(proto.Message); is && !one && c.next != nil {
		return c.receiveNext(into)
	}
	// What was read of the message before.
	c.decoder.inPlace.Free()
	message, err := c.call.Recv()
	if err == io.EOF && one && !c.received {
		return status.Error(codes.Internal, "tollfree: the client has sent no message where the method has one")
	}
	if err == io.EOF {
		return err
	}
	if err != nil {
		return asStatus(err)
	}
	if message.Object {
		c.objects.Store(true)
		c.server.objects.Add(1)
	}
	lengths, err := c.decoder.decode(message, m)
	if err != nil {
		return err
	}
	c.received = true
	if h := c.server.handler; h != nil {
		h.HandleRPC(c.context, inPayload(false, m, lengths))
	}
	if !one {
		return nil
	}
	extra, err := c.call.Recv()
	if err == nil {
		extra.Data.Free()
		return status.Error(codes.Internal, "tollfree: the client has sent more than one message where the method has one")
	}
	if err != io.EOF {
		return asStatus(err)
	}
	return nil
}

func (c *serverCall) sendObject(o flat.Object) error {
	message, err := objectMessage(o, c.objects.Load(), c.server.options.sendMax, c.server.options.pool)
	if err != nil {
		return err
	}
	if err := c.sendHeader(); err != nil {
		return asStatus(err)
	}
	if err := c.call.Send(message); err != nil {
		return asStatus(err)
	}
	return nil
}

func (c *serverCall) recvObject(y flat.Type) (flat.Object, error) {
	into := incomingObject{kind: y}
	err := c.RecvMsg(&into)
	return into.object, err
}
