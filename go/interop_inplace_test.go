//go:build interop

package tollfree

import (
	"bytes"
	"context"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"

	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

// fieldLen is the length of a field that goes by ref only since it lies in the pool.
const fieldLen = 10_000

// liesIn says whether bytes lie in memory of the pool that this process holds.
func liesIn(p *Pool, data []byte) bool {
	held, err := p.Hold(data)
	if err != nil {
		return false
	}
	held.Free()
	return true
}

// fieldIn is memory of a pool, full of a pattern.
func fieldIn(t *testing.T, member *Pool, n int) *PoolBuffer {
	t.Helper()
	buffer, err := member.Buffer(n)
	wantNoError(t, err)
	t.Cleanup(buffer.Free)
	for i := range buffer.Bytes() {
		buffer.Bytes()[i] = byte(i * 7)
	}
	return buffer
}

// onward is a service that sends back the requests' bytes, and counts those that it has read in the pool.
func onward(member *Pool, inPool *shared[int]) *testService {
	count := func(data []byte) {
		if liesIn(member, data) {
			inPool.set(inPool.get() + 1)
		}
	}
	return &testService{
		unary: func(_ context.Context, in *pb.Request) (*pb.Reply, error) {
			count(in.Data)
			return &pb.Reply{Text: in.Text, Data: in.Data}, nil
		},
		bidi: func(stream grpc.BidiStreamingServer[pb.Request, pb.Reply]) error {
			for {
				in, err := stream.Recv()
				if err == io.EOF {
					return nil
				}
				if err != nil {
					return err
				}
				count(in.Data)
				if err := stream.Send(&pb.Reply{Text: in.Text, Data: in.Data}); err != nil {
					return err
				}
			}
		},
	}
}

// With the stubs of protoc-gen-go-grpc, bytes that lie in the pool come back from a server as the same memory: nobody has copied them.
func TestBytesOfStockMessagesGoByRef(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		_, coordinator := rustPool(t)
		one, two := join(t, coordinator), join(t, coordinator)
		var inPool shared[int]
		h.newServer(0, onward(two, &inPool), UsePool(two), RequestsInPlace(pb.Test_Unary_FullMethodName, pb.Test_Bidi_FullMethodName))
		client := pb.NewTestClient(h.newConn(WithPool(one)))
		buffer := fieldIn(t, one, fieldLen)
		request := &pb.Request{Text: "text", Data: buffer.Bytes()}
		var payloads Payloads
		same := func(reply *pb.Reply, err error) bool {
			t.Helper()
			wantNoError(t, err)
			if reply.Text != "text" || !bytes.Equal(reply.Data, buffer.Bytes()) {
				t.Fatalf("another reply: %d bytes", len(reply.Data))
			}
			defer payloads.Free()
			return &reply.Data[0] == &buffer.Bytes()[0]
		}
		// A server that does not map the memory in time asks for the bytes.
		eventually(t, "the same memory comes back", func() bool {
			return same(client.Unary(testContext(t), request, RepliesInPlace(&payloads)))
		})
		for range 20 {
			before := inPool.get()
			if !same(client.Unary(testContext(t), request, RepliesInPlace(&payloads))) || inPool.get() != before+1 {
				t.Fatal("the bytes were copied")
			}
		}
		stream, err := client.Bidi(testContext(t), RepliesInPlace(&payloads))
		wantNoError(t, err)
		for range 20 {
			before := inPool.get()
			wantNoError(t, stream.Send(request))
			reply, err := stream.Recv()
			if !same(reply, err) || inPool.get() != before+1 {
				t.Fatal("the bytes of a stream were copied")
			}
		}
		wantNoError(t, stream.CloseSend())
		if _, err := stream.Recv(); err != io.EOF {
			t.Fatal(err)
		}
		// Without the option, a program has copies.
		reply, err := client.Unary(testContext(t), request)
		if same(reply, err) || liesIn(one, reply.Data) {
			t.Error("bytes lie in the pool that nobody keeps there")
		}
		// What does not lie in the pool is copied, with the option too.
		reply, err = client.Unary(testContext(t), &pb.Request{Text: "text", Data: bytes.Clone(buffer.Bytes())}, RepliesInPlace(&payloads))
		if same(reply, err) || liesIn(one, reply.Data) {
			t.Error("bytes that came by the ring are read in the pool")
		}
	})
}

// A program that keeps bytes of a request has them for as long as it likes.
func TestBytesAreKeptBeyondTheirCall(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		_, coordinator := rustPool(t)
		one, two := join(t, coordinator), join(t, coordinator)
		kept := make(chan *PoolBuffer, 1)
		service := &testService{unary: func(_ context.Context, in *pb.Request) (*pb.Reply, error) {
			if held, err := two.Hold(in.Data); err == nil {
				kept <- held
			}
			return &pb.Reply{}, nil
		}}
		h.newServer(0, service, UsePool(two), RequestsInPlace(pb.Test_Unary_FullMethodName))
		client := pb.NewTestClient(h.newConn(WithPool(one)))
		var held *PoolBuffer
		eventually(t, "bytes come by ref", func() bool {
			buffer := fieldIn(t, one, fieldLen)
			_, err := client.Unary(testContext(t), &pb.Request{Data: buffer.Bytes()})
			wantNoError(t, err)
			select {
			case held = <-kept:
				return true
			default:
				return false
			}
		})
		want := bytes.Clone(held.Bytes())
		// The memory is not used again meanwhile.
		for range 50 {
			other, err := one.Buffer(fieldLen)
			wantNoError(t, err)
			clear(other.Bytes())
			_, err = client.Unary(testContext(t), &pb.Request{Data: other.Bytes()})
			wantNoError(t, err)
			other.Free()
			select {
			case more := <-kept:
				more.Free()
			default:
			}
		}
		if !bytes.Equal(held.Bytes(), want) {
			t.Error("the bytes have changed")
		}
		held.Free()
	})
}

// Fields that Rust's stubs of level 2 send by ref are read where they lie, and a client without the pool gets the same bytes.
func TestBytesOfRustRepliesAreReadInPlace(t *testing.T) {
	withCarrier(t, shmCarrier, func(t *testing.T, h *harness) {
		server, coordinator := rustPool(t)
		member := join(t, coordinator)
		for _, options := range [][]DialOption{{WithPool(member)}, nil} {
			conn, err := NewClient(server, append(options, WithDefaultCallOptions(grpc.WaitForReady(true)))...)
			wantNoError(t, err)
			t.Cleanup(func() { conn.Close() })
			client := grpc_testing.NewTestServiceClient(conn)
			read := func() bool {
				var payloads Payloads
				defer payloads.Free()
				reply, err := client.UnaryCall(testContext(t), &grpc_testing.SimpleRequest{ResponseSize: 300_000, Payload: body(10)}, RepliesInPlace(&payloads))
				wantNoError(t, err)
				if !bytes.Equal(reply.GetPayload().GetBody(), make([]byte, 300_000)) {
					t.Fatalf("%d other bytes came", len(reply.GetPayload().GetBody()))
				}
				return liesIn(member, reply.GetPayload().GetBody())
			}
			if options != nil {
				eventually(t, "a field is read in the pool", read)
			} else if read() {
				t.Error("a client without a pool reads in it")
			}
		}
	})
}
