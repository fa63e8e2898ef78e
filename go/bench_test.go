package tollfree

import (
	"context"
	"io"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/calltest"
	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

func benchmark(b *testing.B, options []ServerOption, run func(b *testing.B, client pb.TestClient)) {
	for _, c := range carriers {
		b.Run(c.name, func(b *testing.B) {
			h := newHarness(b, c)
			h.newServer(0, &testService{}, options...)
			run(b, pb.NewTestClient(h.newConn()))
		})
	}
}

func BenchmarkUnary64(b *testing.B) { benchmark(b, nil, unary64) }

func BenchmarkUnary64Inline(b *testing.B) {
	benchmark(b, []ServerOption{Inline(pb.Test_Unary_FullMethodName)}, unary64)
}

func unary64(b *testing.B, client pb.TestClient) {
	ctx, request := context.Background(), &pb.Request{Data: make([]byte, 60)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := client.Unary(ctx, request); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBidi64(b *testing.B) {
	benchmark(b, nil, func(b *testing.B, client pb.TestClient) {
		stream, err := client.Bidi(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		request := &pb.Request{Data: make([]byte, 60)}
		b.ReportAllocs()
		for b.Loop() {
			if err := stream.Send(request); err != nil {
				b.Fatal(err)
			}
			if _, err := stream.Recv(); err != nil {
				b.Fatal(err)
			}
		}
		if err := stream.CloseSend(); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkServerStream64(b *testing.B) {
	benchmark(b, nil, func(b *testing.B, client pb.TestClient) {
		b.ReportAllocs()
		stream, err := client.ServerStream(context.Background(), &pb.Request{Data: make([]byte, 60), Count: int32(b.N)})
		if err != nil {
			b.Fatal(err)
		}
		for range b.N {
			if _, err := stream.Recv(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkFloor is a call by bytes over the fake, without what is above the seam.
func BenchmarkFloor(b *testing.B) {
	network := &calltest.Network{}
	l, err := network.Listen("shm:///floor", calltest.Config{})
	if err != nil {
		b.Fatal(err)
	}
	go l.Serve(call.Service{
		Handler: func(c call.ServerCall) {
			message, _ := c.Recv()
			c.Finish(nil, &message, statusOK, nil)
		},
		Inline: func(string) bool { return true },
	})
	defer l.Close()
	ctx, data := context.Background(), mem.SliceBuffer(make([]byte, 64))
	client, err := network.Dial(ctx, "shm:///floor")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		started, err := client.Start(ctx, &call.Start{Method: "/a.B/C", Message: &call.Message{Data: mem.BufferSlice{data}}, Last: true})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := started.Recv(); err != nil {
			b.Fatal(err)
		}
		if _, err := started.Recv(); err != io.EOF {
			b.Fatal(err)
		}
	}
}
