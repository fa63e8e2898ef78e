package tollfree_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	tollfree "github.com/tollfree/tollfree/go"
	"github.com/tollfree/tollfree/go/internal/call"
	pb "github.com/tollfree/tollfree/go/internal/objectproto"
	"github.com/tollfree/tollfree/go/internal/transport"
)

// Down sends the object back, as often as its number says.
func (flatEcho) Down(in pb.CargoObject, stream tollfree.ObjectServerStreamingServer[pb.CargoObject]) error {
	for range in.Read().GetNumber() {
		if err := stream.Send(in); err != nil {
			return err
		}
	}
	if text := in.Read().GetText(); strings.HasPrefix(text, "fail") {
		return status.Error(codes.Aborted, text)
	}
	return nil
}

// Up sends back an object with all bodies as parts.
func (flatEcho) Up(stream tollfree.ObjectClientStreamingServer[pb.CargoObject, pb.CargoObject]) error {
	var bodies [][]byte
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		bodies = append(bodies, in.Read().GetBody())
	}
	out, err := pb.BuildCargo(func(b pb.CargoBuilder) { b.SetParts(bodies) })
	if err != nil {
		return err
	}
	return stream.SendAndClose(out)
}

// Both sends back each.
func (flatEcho) Both(stream tollfree.ObjectBidiStreamingServer[pb.CargoObject, pb.CargoObject]) error {
	if err := stream.SetHeader(metadata.Pairs("x-kind", "objects")); err != nil {
		return err
	}
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(in); err != nil {
			return err
		}
	}
}

// streamFlat makes calls of all kinds of streams.
func streamFlat(t *testing.T, conn grpc.ClientConnInterface, options ...grpc.CallOption) {
	t.Helper()
	client := pb.NewFreightObjectsClient(conn)
	down, err := client.Down(tollfree.TestContext(t), cargo(t, 64, "down"), options...)
	tollfree.WantNoError(t, err)
	for range 9 {
		reply, err := down.Recv()
		tollfree.WantNoError(t, err)
		tollfree.WantNoError(t, checkCargo(reply.Read(), 64, "down"))
	}
	if _, err := down.Recv(); err != io.EOF {
		t.Fatal(err)
	}
	up, err := client.Up(tollfree.TestContext(t), options...)
	tollfree.WantNoError(t, err)
	for i := range 20 {
		tollfree.WantNoError(t, up.Send(cargo(t, 100*i, "up")))
	}
	reply, err := up.CloseAndRecv()
	tollfree.WantNoError(t, err)
	if parts := reply.Read().GetParts(); parts.Len() != 20 || len(parts.At(19)) != 1900 {
		t.Fatalf("%d parts", parts.Len())
	}
	both, err := client.Both(tollfree.TestContext(t), options...)
	tollfree.WantNoError(t, err)
	for i := range 40 {
		size, text := []int{0, 1, 64, 5_000, 300_000}[i%5], fmt.Sprint("cargo ", i)
		tollfree.WantNoError(t, both.Send(cargo(t, size, text)))
		reply, err := both.Recv()
		tollfree.WantNoError(t, err)
		tollfree.WantNoError(t, checkCargo(reply.Read(), size, text))
	}
	// Many at once travel together.
	for i := range 200 {
		tollfree.WantNoError(t, both.Send(cargo(t, 10, fmt.Sprint(i))))
	}
	tollfree.WantNoError(t, both.CloseSend())
	for i := range 200 {
		reply, err := both.Recv()
		tollfree.WantNoError(t, err)
		tollfree.WantNoError(t, checkCargo(reply.Read(), 10, fmt.Sprint(i)))
	}
	if _, err := both.Recv(); err != io.EOF {
		t.Fatal(err)
	}
	header, err := both.Header()
	tollfree.WantNoError(t, err)
	tollfree.WantValues(t, header, "x-kind", "objects")
}

// streamsBack are the objects that streamFlat receives, and sends.
const streamsBack, streamsSent = 9 + 1 + 240, 1 + 20 + 240

func TestObjectsOfStreamsTravel(t *testing.T) {
	tollfree.OverCarriers(t, func(t *testing.T, h *tollfree.Harness) {
		server := h.Prepare()
		registerFreight(server)
		h.Start(server)
		conn := h.Connect(tollfree.WithDefaultCallOptions(grpc.WaitForReady(true)))
		if h.IsFake() {
			// What was sent goes again to another session.
			h.RefuseCalls(2)
		}
		// The server says that it takes objects when it hears of a method: from the second call on all of them travel as such.
		streamFlat(t, conn)
		back, sent := conn.ObjectsCame(), server.ObjectsCame()
		streamFlat(t, conn)
		back, sent = conn.ObjectsCame()-back, server.ObjectsCame()-sent
		if !h.IsFake() && (back != streamsBack || sent != streamsSent) {
			t.Errorf("%d objects have come back, where %d were sent back, and %d to the server, where %d were sent", back, streamsBack, sent, streamsSent)
		}
		// The status comes behind what came before it.
		failing, err := pb.BuildCargo(func(b pb.CargoBuilder) {
			b.SetText("fail: text")
			b.SetNumber(2)
		})
		tollfree.WantNoError(t, err)
		down, err := clientOf(conn).Down(tollfree.TestContext(t), failing)
		tollfree.WantNoError(t, err)
		for range 2 {
			_, err := down.Recv()
			tollfree.WantNoError(t, err)
		}
		_, err = down.Recv()
		tollfree.WantCode(t, err, codes.Aborted, "fail: text")
		// Clients that know no objects call the same methods.
		plain, err := pb.NewFreightClient(conn).Both(tollfree.TestContext(t))
		tollfree.WantNoError(t, err)
		for i := range uint32(3) {
			tollfree.WantNoError(t, plain.Send(&pb.Cargo{Number: i, Inner: &pb.Cargo{Text: "inner"}}))
			reply, err := plain.Recv()
			tollfree.WantNoError(t, err)
			if reply.Number != i || reply.Inner.Text != "inner" {
				t.Errorf("%v came back", reply)
			}
		}
		tollfree.WantNoError(t, plain.CloseSend())
		if _, err := plain.Recv(); err != io.EOF {
			t.Error(err)
		}
		// Compressed messages are no objects.
		before := server.ObjectsCame()
		streamFlat(t, conn, grpc.UseCompressor("gzip"))
		if server.ObjectsCame() != before {
			t.Error("an object came from a client that compresses")
		}
	})
}

func TestObjectsOfStreamsGoEncodedElsewhere(t *testing.T) {
	t.Run("an interceptor of the server's", func(t *testing.T) {
		tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
			server := h.Prepare(tollfree.StreamInterceptor(func(impl any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
				return handler(impl, watchedStream{stream, t})
			}))
			registerFreight(server)
			h.Start(server)
			conn := h.Connect()
			streamFlat(t, conn)
			streamFlat(t, conn)
			if conn.ObjectsCame() != 0 || server.ObjectsCame() != 0 {
				t.Error("objects of streams have passed an interceptor")
			}
		})
	})
	t.Run("an interceptor of the client's", func(t *testing.T) {
		tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
			server := h.Prepare()
			registerFreight(server)
			h.Start(server)
			seen := new(noted[string])
			conn := h.Connect(tollfree.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
				seen.note(method)
				return streamer(ctx, desc, cc, method, options...)
			}))
			streamFlat(t, conn)
			if len(seen.all()) != 3 || server.ObjectsCame() != 0 {
				t.Errorf("the interceptor saw %v, and %d objects came", seen.all(), server.ObjectsCame())
			}
		})
	})
	t.Run("grpc", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		tollfree.WantNoError(t, err)
		server := grpc.NewServer()
		registerFreight(server)
		go server.Serve(l)
		defer server.Stop()
		conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		tollfree.WantNoError(t, err)
		defer conn.Close()
		streamFlat(t, conn)
	})
}

// watchedStream sees messages alone.
type watchedStream struct {
	grpc.ServerStream
	t *testing.T
}

func (s watchedStream) RecvMsg(m any) error {
	if _, is := m.(*pb.Cargo); !is {
		s.t.Errorf("the interceptor gets %T", m)
	}
	return s.ServerStream.RecvMsg(m)
}

// An object that is not sound ends its stream, after those before it, and nothing else.
func TestForgedObjectsOfStreams(t *testing.T) {
	tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
		server := h.Prepare()
		registerFreight(server)
		h.Start(server)
		client, err := transport.Dial(tollfree.TestContext(t), h.Address(), transport.Config{})
		tollfree.WantNoError(t, err)
		defer client.Close()
		good := cargo(t, 100, "text").Flat().Bytes()
		for at := range good {
			bad := bytes.Clone(good)
			bad[at] ^= 0xff
			c, err := client.Start(tollfree.TestContext(t), &call.Start{Method: pb.Freight_Both_FullMethodName, TakesObjects: true})
			tollfree.WantNoError(t, err)
			for i, object := range [][]byte{good, bad} {
				// The call may have ended.
				_ = c.Send(call.Message{Data: mem.BufferSlice{mem.SliceBuffer(object)}, Object: true}, i == 1)
			}
			came := 0
			for {
				message, err := c.Recv()
				if err != nil {
					break
				}
				if !message.Object {
					t.Error("what was sent as an object came back as something else")
				}
				message.Data.Free()
				came++
			}
			switch outcome := c.Outcome().Status; {
			case outcome.Code() == codes.OK && came == 2, outcome.Code() == codes.Internal && came == 1:
			default:
				t.Errorf("byte %d: %d came back, and %v", at, came, outcome)
			}
		}
		streamFlat(t, h.Connect())
	})
}

// After a server that took objects comes one that takes none: what is sent goes by the server that gets it.
func TestStreamsOfObjectsAfterAnotherServer(t *testing.T) {
	tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
		first := h.Prepare()
		registerFreight(first)
		h.Start(first)
		conn := h.Connect(tollfree.WithDefaultCallOptions(grpc.WaitForReady(true)))
		streamFlat(t, conn)
		before := first.ObjectsCame()
		if before == 0 {
			t.Fatal("no objects came")
		}
		first.Stop()
		second := h.Prepare(tollfree.StreamInterceptor(func(impl any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			return handler(impl, stream)
		}))
		registerFreight(second)
		h.Start(second)
		tollfree.Eventually(t, "the client has heard of the end", func() bool { return conn.GetState() != connectivity.Ready })
		streamFlat(t, conn)
		if second.ObjectsCame() != 0 {
			t.Error("a server that takes no objects got some")
		}
	})
}

// An object that lies where others write goes out as it was when it was sent, also when the call moves to another session after that.
func TestSharedObjectsAreSentAsTheyWere(t *testing.T) {
	tollfree.OverFake(t, func(t *testing.T, h *tollfree.Harness) {
		server := h.Prepare()
		registerFreight(server)
		h.Start(server)
		client := clientOf(h.Connect())
		own := cargo(t, 1000, "as it was").Flat()
		memory := bytes.Clone(own.Bytes())
		shared, err := own.Type().VerifyShared(memory)
		tollfree.WantNoError(t, err)
		h.RefuseCalls(1)
		down, err := client.Down(tollfree.TestContext(t), pb.CargoObjectOf(shared))
		tollfree.WantNoError(t, err)
		clear(memory)
		reply, err := down.Recv()
		tollfree.WantNoError(t, err)
		tollfree.WantNoError(t, checkCargo(reply.Read(), 1000, "as it was"))
	})
}
