package tollfree_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	tollfree "github.com/tollfree/tollfree/go"
	"github.com/tollfree/tollfree/go/flat"
	"github.com/tollfree/tollfree/go/internal/call"
	direct "github.com/tollfree/tollfree/go/internal/directproto"
	pb "github.com/tollfree/tollfree/go/internal/objectproto"
	"github.com/tollfree/tollfree/go/internal/schema"
	"github.com/tollfree/tollfree/go/internal/transport"
)

// flatEcho sends back what comes, and fails where the text says so.
type flatEcho struct {
	pb.UnimplementedFreightObjectsServer
}

func (flatEcho) Unary(_ context.Context, in pb.CargoObject) (pb.CargoObject, error) {
	if text := in.Read().GetText(); strings.HasPrefix(text, "fail") {
		return pb.CargoObject{}, status.Error(codes.Aborted, text)
	}
	return in, nil
}

func registerFreight(s grpc.ServiceRegistrar) { pb.RegisterFreightObjectsServer(s, flatEcho{}) }

// cargo has a value in each field.
func cargo(t testing.TB, size int, text string) pb.CargoObject {
	t.Helper()
	o, err := pb.BuildCargo(func(b pb.CargoBuilder) {
		b.SetBody(bytes.Repeat([]byte{7}, size))
		b.SetParts([][]byte{{1}, nil, {2, 3}})
		b.SetRaw([]byte("raw"))
		b.SetText(text)
		b.SetNumbers([]uint64{1, 1 << 40, 3})
		inner := b.MakeInner()
		inner.SetText("käse")
		inner.SetAct(pb.Act_GIVE)
		b.SetNumber(9)
		b.SetAct(pb.Act_MAKE)
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func checkCargo(r pb.CargoReader, size int, text string) error {
	switch inner := r.GetInner(); {
	case !bytes.Equal(r.GetBody(), bytes.Repeat([]byte{7}, size)), r.GetText() != text, string(r.GetRaw()) != "raw", r.GetNumber() != 9, r.GetAct() != pb.Act_MAKE:
		return fmt.Errorf("other fields: a body of %d bytes, %q, %d, %v", len(r.GetBody()), r.GetText(), r.GetNumber(), r.GetAct())
	case r.GetParts().Len() != 3, len(r.GetParts().At(1)) != 0, string(r.GetParts().At(2)) != "\x02\x03":
		return fmt.Errorf("other parts: %d", r.GetParts().Len())
	case r.GetNumbers().Len() != 3, r.GetNumbers().At(1) != 1<<40:
		return fmt.Errorf("other numbers: %d", r.GetNumbers().Len())
	case !r.HasInner(), inner.GetText() != "käse", inner.GetAct() != pb.Act_GIVE, inner.HasInner(), !inner.GetInner().IsZero(), inner.GetNumber() != 0:
		return fmt.Errorf("another inner one: %q, %v", inner.GetText(), inner.GetAct())
	}
	return nil
}

func clientOf(conn grpc.ClientConnInterface) pb.FreightObjectsClient {
	return pb.NewFreightObjectsClient(conn)
}

// callFlat makes calls of several lengths.
func callFlat(t *testing.T, conn grpc.ClientConnInterface, options ...grpc.CallOption) {
	t.Helper()
	client := pb.NewFreightObjectsClient(conn)
	for i := range 40 {
		size, text := []int{0, 1, 64, 5_000, 300_000}[i%5], fmt.Sprint("cargo ", i)
		reply, err := client.Unary(tollfree.TestContext(t), cargo(t, size, text), options...)
		tollfree.WantNoError(t, err)
		tollfree.WantNoError(t, checkCargo(reply.Read(), size, text))
	}
}

// failFlat makes a call that fails.
func failFlat(t *testing.T, conn grpc.ClientConnInterface) {
	t.Helper()
	_, err := clientOf(conn).Unary(tollfree.TestContext(t), cargo(t, 1, "fail: text"))
	tollfree.WantCode(t, err, codes.Aborted, "fail: text")
}

func TestObjectsTravel(t *testing.T) {
	tollfree.OverCarriers(t, func(t *testing.T, h *tollfree.Harness) {
		server := h.Prepare()
		registerFreight(server)
		h.Start(server)
		conn := h.Connect(tollfree.WithDefaultCallOptions(grpc.WaitForReady(true)))
		// The server says that it takes objects when it hears of the method.
		callFlat(t, conn)
		failFlat(t, conn)
		if !h.IsFake() && (conn.ObjectsCame() < 30 || server.ObjectsCame() < 30) {
			t.Errorf("%d objects have come back, and %d to the server", conn.ObjectsCame(), server.ObjectsCame())
		}
		// Clients that know no objects call the same service.
		plain := pb.NewFreightClient(conn)
		reply, err := plain.Unary(tollfree.TestContext(t), &pb.Cargo{Text: "plain", Numbers: []uint64{4}, Inner: &pb.Cargo{Number: 2}})
		tollfree.WantNoError(t, err)
		if reply.Text != "plain" || reply.Numbers[0] != 4 || reply.Inner.Number != 2 {
			t.Errorf("%v came back", reply)
		}
		// A call option, metadata or an interceptor needs more than a session: the call goes encoded.
		before := server.ObjectsCame()
		callFlat(t, conn, grpc.UseCompressor("gzip"))
		if server.ObjectsCame() != before {
			t.Error("an object came with a call option")
		}
	})
}

func TestObjectsGoEncodedElsewhere(t *testing.T) {
	tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
		// A server with an interceptor takes messages.
		server := h.Prepare(tollfree.UnaryInterceptor(func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if _, is := in.(*pb.Cargo); !is {
				t.Errorf("the interceptor gets %T", in)
			}
			return handler(ctx, in)
		}))
		registerFreight(server)
		h.Start(server)
		conn := h.Connect()
		callFlat(t, conn)
		if conn.ObjectsCame() != 0 || server.ObjectsCame() != 0 {
			t.Error("objects have passed an interceptor")
		}
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
		callFlat(t, conn)
	})
}

// An object that is not sound ends its call, and nothing else; one for a method that takes none, too.
func TestForgedObjects(t *testing.T) {
	tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
		server := h.Prepare()
		registerFreight(server)
		direct.RegisterTestServer(server, &directService{})
		h.Start(server)
		client, err := transport.Dial(tollfree.TestContext(t), h.Address(), transport.Config{})
		tollfree.WantNoError(t, err)
		defer client.Close()
		send := func(method string, object []byte) *status.Status {
			message := call.Message{Data: mem.BufferSlice{mem.SliceBuffer(object)}, Object: true}
			c, err := client.Start(tollfree.TestContext(t), &call.Start{Method: method, Message: &message, Last: true, TakesObjects: true})
			tollfree.WantNoError(t, err)
			for {
				message, err := c.Recv()
				if err != nil {
					break
				}
				message.Data.Free()
			}
			return c.Outcome().Status
		}
		good := cargo(t, 100, "text").Flat().Bytes()
		refused := 0
		for at := range good {
			bad := bytes.Clone(good)
			bad[at] ^= 0xff
			switch s := send(pb.Freight_Unary_FullMethodName, bad); s.Code() {
			case codes.OK:
			case codes.Internal:
				refused++
			default:
				t.Errorf("byte %d: %v", at, s)
			}
		}
		for n := range len(good) {
			if s := send(pb.Freight_Unary_FullMethodName, bytes.Clone(good[:n])); s.Code() != codes.Internal {
				t.Errorf("%d bytes: %v", n, s)
			}
		}
		if refused < 80 {
			t.Errorf("only %d of %d bytes matter", refused, len(good))
		}
		if s := send(direct.Test_Unary_FullMethodName, bytes.Clone(good)); s.Code() != codes.Internal || !strings.Contains(s.Message(), "nobody has asked for") {
			t.Errorf("a method without objects: %v", s)
		}
		if s := send(pb.Freight_Unary_FullMethodName, bytes.Clone(good)); s.Code() != codes.OK {
			t.Errorf("the session goes on: %v", s)
		}
	})
}

// A client whose schema of the method is another one sends no objects, also where the server takes some.
func TestOtherSchemasGoEncoded(t *testing.T) {
	tollfree.OverSharedMemory(t, func(t *testing.T, h *tollfree.Harness) {
		server := h.Prepare()
		registerFreight(server)
		h.Start(server)
		conn := h.Connect()
		callFlat(t, conn)
		before := server.ObjectsCame()
		table, err := schema.Compile([]protoreflect.FileDescriptor{structpb.File_google_protobuf_struct_proto})
		tollfree.WantNoError(t, err)
		in := cargo(t, 1, "text").Flat()
		other := tollfree.NewObjectMethod(pb.Freight_Unary_FullMethodName, in.Type(), flat.MustTable(string(table)).MustType("google.protobuf.Struct"))
		for range 10 {
			// The reply is no Struct; what it is does not matter.
			_, _ = tollfree.Direct(conn).InvokeObject(tollfree.TestContext(t), other, in, new(pb.Cargo), new(pb.Cargo))
		}
		if came := server.ObjectsCame(); before == 0 || came != before {
			t.Errorf("%d objects came before, and %d then", before, came)
		}
		callFlat(t, conn)
	})
}
