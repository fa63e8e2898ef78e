//go:build interop

package transport

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	testing_pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/reference"
)

// rustServer is a server of the Rust implementation, until the test ends.
func rustServer(t *testing.T) (address string) {
	t.Helper()
	address = newName()
	reference.Serve(t, address)
	for until := time.Now().Add(testTime); ; {
		client, err := Dial(within(t), address, Config{})
		if err == nil {
			_ = client.Close()
			return address
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func encoded(t testing.TB, m proto.Message) *call.Message {
	bytes, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &call.Message{Data: mem.BufferSlice{mem.SliceBuffer(bytes)}}
}

func payload(n int) *testing_pb.Payload { return &testing_pb.Payload{Body: make([]byte, n)} }

const service = "/grpc.testing.TestService/"

// ask makes a call with one message each way.
func ask(ctx context.Context, t testing.TB, client call.Client, method string, request, reply proto.Message, header metadata.MD) (call.ClientCall, call.Outcome) {
	deadline, _ := ctx.Deadline()
	c, err := client.Start(ctx, &call.Start{Method: service + method, Header: header, Deadline: deadline, Message: encoded(t, request), Last: true})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Recv(); err == nil {
		if err := proto.Unmarshal(content(got), reply); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Recv(); err != io.EOF {
			t.Fatalf("a second answer, or %v", err)
		}
	}
	return c, c.Outcome()
}

func TestGoCallsRust(t *testing.T) {
	address := rustServer(t)
	counted(t)
	client := dialed(t, address, Config{Agent: "go-test/1"})
	if peer := client.Peer(); peer.PID == int32(os.Getpid()) || peer.Agent == "" {
		t.Errorf("%+v", peer)
	}
	for _, n := range []int{0, 1, 64, 8191, 8193, 40000, 271828, 1 << 20, 4_000_000} {
		var reply testing_pb.SimpleResponse
		request := &testing_pb.SimpleRequest{ResponseSize: int32(n), Payload: payload(n)}
		if _, outcome := ask(within(t), t, client, "UnaryCall", request, &reply, nil); outcome.Status.Code() != codes.OK || len(reply.GetPayload().GetBody()) != n {
			t.Fatalf("%d bytes: %v, %d came", n, outcome.Status, len(reply.GetPayload().GetBody()))
		}
	}
	for range 5000 {
		if _, outcome := ask(within(t), t, client, "EmptyCall", &testing_pb.Empty{}, &testing_pb.Empty{}, nil); outcome.Status.Code() != codes.OK {
			t.Fatal(outcome.Status)
		}
	}
	const initial, trailing = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
	said := metadata.MD{initial: {"there and back"}, trailing: {"\xab\xab\xab"}}
	request := &testing_pb.SimpleRequest{ResponseStatus: &testing_pb.EchoStatus{Code: 9, Message: "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n"}}
	c, outcome := ask(within(t), t, client, "UnaryCall", &testing_pb.SimpleRequest{}, &testing_pb.SimpleResponse{}, said)
	if header, _ := c.Header(); fmt.Sprint(header[initial]) != fmt.Sprint(said[initial]) || fmt.Sprint(outcome.Trailer[trailing]) != fmt.Sprint(said[trailing]) {
		t.Errorf("metadata %v and %v came back", header, outcome.Trailer)
	}
	if _, outcome := ask(within(t), t, client, "UnaryCall", request, &testing_pb.SimpleResponse{}, nil); outcome.Status.Code() != 9 || outcome.Status.Message() != request.ResponseStatus.Message {
		t.Errorf("%v", outcome.Status)
	}
	if _, outcome := ask(within(t), t, client, "UnimplementedCall", &testing_pb.Empty{}, &testing_pb.Empty{}, nil); outcome.Status.Code() != codes.Unimplemented {
		t.Errorf("%v", outcome.Status)
	}
}

func TestGoStreamsWithRust(t *testing.T) {
	client := dialed(t, rustServer(t), Config{})
	c, err := client.Start(within(t), &call.Start{Method: service + "FullDuplexCall"})
	if err != nil {
		t.Fatal(err)
	}
	sizes := make([]int32, 3000)
	for i := range sizes {
		sizes[i] = int32(i * 7919 % 3000)
		if i%500 == 0 {
			sizes[i] = 100_000
		}
	}
	go func() {
		for i, size := range sizes {
			request := &testing_pb.StreamingOutputCallRequest{
				ResponseParameters: []*testing_pb.ResponseParameters{{Size: size}}, Payload: payload(int(size) / 2),
			}
			if err := c.Send(*encoded(t, request), i == len(sizes)-1); err != nil {
				t.Errorf("message %d: %v", i, err)
				return
			}
		}
	}()
	for i, size := range sizes {
		got, err := c.Recv()
		if err != nil {
			t.Fatalf("message %d: %v, %v", i, err, c.Outcome().Status)
		}
		var reply testing_pb.StreamingOutputCallResponse
		if err := proto.Unmarshal(content(got), &reply); err != nil || len(reply.GetPayload().GetBody()) != int(size) {
			t.Fatalf("message %d: %v, %d bytes instead of %d", i, err, len(reply.GetPayload().GetBody()), size)
		}
	}
	if _, err := c.Recv(); err != io.EOF || c.Outcome().Status.Code() != codes.OK {
		t.Errorf("%v, %v", err, c.Outcome().Status)
	}
	ctx, cancel := context.WithTimeout(within(t), 20*time.Millisecond)
	defer cancel()
	slow := &testing_pb.StreamingOutputCallRequest{ResponseParameters: []*testing_pb.ResponseParameters{{Size: 1, IntervalUs: 10_000_000}}}
	deadline, _ := ctx.Deadline()
	c, err = client.Start(ctx, &call.Start{Method: service + "StreamingOutputCall", Deadline: deadline, Message: encoded(t, slow), Last: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Recv(); err != io.EOF || c.Outcome().Status.Code() != codes.DeadlineExceeded {
		t.Errorf("%v, %v", err, c.Outcome().Status)
	}
}

// testService serves gRPC's test service by bytes.
func testService(c call.ServerCall) {
	outcome := serveTest(c)
	if outcome != nil {
		_ = c.Finish(nil, nil, status.Convert(outcome), nil)
	}
}

func recvAs(c call.ServerCall, request proto.Message) error {
	got, err := c.Recv()
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(content(got), request); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

func sendAs(c call.ServerCall, reply proto.Message) error {
	bytes, err := proto.Marshal(reply)
	if err != nil {
		return err
	}
	return c.Send(call.Message{Data: mem.BufferSlice{mem.SliceBuffer(bytes)}})
}

func serveTest(c call.ServerCall) error {
	method, known := strings.CutPrefix(c.Method(), service)
	if !known {
		return status.Error(codes.Unimplemented, "no such service")
	}
	initial, trailer := metadata.MD{}, metadata.MD{}
	if values := c.Header()["x-grpc-test-echo-initial"]; values != nil {
		initial["x-grpc-test-echo-initial"] = values
	}
	if values := c.Header()["x-grpc-test-echo-trailing-bin"]; values != nil {
		trailer["x-grpc-test-echo-trailing-bin"] = values
	}
	finish := func(outcome *testing_pb.EchoStatus) error {
		return c.Finish(nil, nil, status.New(codes.Code(outcome.GetCode()), outcome.GetMessage()), trailer)
	}
	if err := c.SendHeader(initial); err != nil {
		return err
	}
	switch method {
	case "EmptyCall":
		if err := recvAs(c, &testing_pb.Empty{}); err != nil {
			return err
		}
		if err := sendAs(c, &testing_pb.Empty{}); err != nil {
			return err
		}
		return finish(nil)
	case "UnaryCall":
		var request testing_pb.SimpleRequest
		if err := recvAs(c, &request); err != nil {
			return err
		}
		if request.GetResponseStatus().GetCode() != 0 {
			return finish(request.ResponseStatus)
		}
		if err := sendAs(c, &testing_pb.SimpleResponse{Payload: payload(int(request.ResponseSize))}); err != nil {
			return err
		}
		return finish(nil)
	case "StreamingInputCall":
		sum := int32(0)
		for {
			var request testing_pb.StreamingInputCallRequest
			err := recvAs(c, &request)
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			sum += int32(len(request.GetPayload().GetBody()))
		}
		if err := sendAs(c, &testing_pb.StreamingInputCallResponse{AggregatedPayloadSize: sum}); err != nil {
			return err
		}
		return finish(nil)
	case "StreamingOutputCall", "FullDuplexCall":
		for {
			var request testing_pb.StreamingOutputCallRequest
			err := recvAs(c, &request)
			if err == io.EOF {
				return finish(nil)
			}
			if err != nil {
				return err
			}
			if request.GetResponseStatus().GetCode() != 0 {
				return finish(request.ResponseStatus)
			}
			for _, response := range request.ResponseParameters {
				time.Sleep(time.Duration(response.IntervalUs) * time.Microsecond)
				if err := sendAs(c, &testing_pb.StreamingOutputCallResponse{Payload: payload(int(response.Size))}); err != nil {
					return err
				}
			}
		}
	}
	return status.Error(codes.Unimplemented, "no such method")
}

// TestRustCallsGo has the reference's client run gRPC's cases against a server by bytes, but for the cases that need what only
// the API above has: compression, an identity, reports of load.
func TestRustCallsGo(t *testing.T) {
	for name, inline := range map[string]func(string) bool{
		"pooled": nil,
		"inline": func(method string) bool { return !strings.HasSuffix(method, "OutputCall") },
	} {
		t.Run(name, func(t *testing.T) {
			counted(t)
			listener, err := Listen(newName(), Config{})
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				if err := listener.Serve(call.Service{Handler: testService, Inline: inline}); err != nil {
					t.Error(err)
				}
			}()
			defer listener.Close()
			// concurrent_large_unary takes a debug build of the client half a minute of processor time, and has a minute.
			reference.Call(t, listener.Address(), "", "", 10*testTime, "concurrent_large_unary",
				"client_compressed_unary", "server_compressed_unary", "client_compressed_streaming", "server_compressed_streaming",
				"pick_first_unary", "orca_per_rpc", "orca_oob")
		})
	}
}
