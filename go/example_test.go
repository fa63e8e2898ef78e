package tollfree_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	tollfree "github.com/tollfree/tollfree/go"
	pb "github.com/tollfree/tollfree/go/internal/testproto"
)

type greeter struct{ pb.UnimplementedTestServer }

func (greeter) Unary(ctx context.Context, in *pb.Request) (*pb.Reply, error) {
	return &pb.Reply{Text: "Hello, " + in.Text + "!"}, nil
}

func (greeter) ServerStream(in *pb.Request, stream grpc.ServerStreamingServer[pb.Reply]) error {
	for i := range in.Count {
		if err := stream.Send(&pb.Reply{Count: i + 1}); err != nil {
			return err
		}
	}
	return nil
}

// socket is the address of an example, in a directory of its own.
func socket() (address string, remove func()) {
	directory, err := os.MkdirTemp("", "tollfree")
	if err != nil {
		log.Fatal(err)
	}
	return "shm://" + filepath.Join(directory, "greeter.sock"), func() { os.RemoveAll(directory) }
}

// serve has a server serve at address until stop is called: see the package's example.
func serve(server *tollfree.Server, address string) (stop func()) {
	listener, err := server.Listen(address)
	if err != nil {
		log.Fatal(err)
	}
	go server.ServeListener(listener)
	return server.GracefulStop
}

// greet has a server of the greeter's serve at address until stop is called.
func greet(address string, options ...tollfree.ServerOption) (stop func()) {
	server := tollfree.NewServer(options...)
	pb.RegisterTestServer(server, greeter{})
	return serve(server, address)
}

func Example() {
	address, remove := socket()
	defer remove()

	server := tollfree.NewServer()
	pb.RegisterTestServer(server, greeter{})
	listener, err := server.Listen(address)
	if err != nil {
		log.Fatal(err)
	}
	go server.ServeListener(listener)
	defer server.GracefulStop()

	conn, err := tollfree.NewClient(address)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	reply, err := pb.NewTestClient(conn).Unary(context.Background(), &pb.Request{Text: "world"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Text)
	// Output: Hello, world!
}

func ExampleClientConn_NewStream() {
	address, remove := socket()
	defer remove()
	defer greet(address)()
	conn, err := tollfree.NewClient(address)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	stream, err := pb.NewTestClient(conn).ServerStream(ctx, &pb.Request{Count: 3})
	if err != nil {
		log.Fatal(err)
	}
	for {
		reply, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(reply.Count)
	}
	// Output:
	// 1
	// 2
	// 3
}

// Two servers share a client's calls, and calls that fail with UNAVAILABLE are made again.
func ExampleWithEndpoint() {
	first, remove := socket()
	defer remove()
	second, remove := socket()
	defer remove()
	defer greet(first)()
	defer greet(second)()
	conn, err := tollfree.NewClient(first, tollfree.WithEndpoint(second), tollfree.WithDefaultServiceConfig(`{
		"loadBalancingConfig": [{"round_robin": {}}],
		"methodConfig": [{
			"name": [{"service": "tollfree.test.Test"}],
			"timeout": "2s",
			"waitForReady": true,
			"retryPolicy": {
				"maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.1s", "backoffMultiplier": 2,
				"retryableStatusCodes": ["UNAVAILABLE"]
			}
		}]
	}`))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	for range 2 {
		reply, err := pb.NewTestClient(conn).Unary(context.Background(), &pb.Request{Text: "both"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(reply.Text)
	}
	// Output:
	// Hello, both!
	// Hello, both!
}

// A handler decides by the user that the kernel names.
func ExampleAuthInfo() {
	address, remove := socket()
	defer remove()
	defer greet(address, tollfree.UnaryInterceptor(
		func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			caller, _ := peer.FromContext(ctx)
			process := caller.AuthInfo.(tollfree.AuthInfo)
			fmt.Println("the caller is this process:", process.PID == int32(os.Getpid()), process.UID == uint32(os.Geteuid()))
			return handler(ctx, request)
		}))()
	conn, err := tollfree.NewClient(address)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if _, err := pb.NewTestClient(conn).Unary(context.Background(), &pb.Request{}); err != nil {
		log.Fatal(err)
	}
	// Output: the caller is this process: true true
}

// Code that demands a *grpc.ClientConn gets one whose calls go through shared memory.
func ExampleUnaryOver() {
	address, remove := socket()
	defer remove()
	defer greet(address)()
	shared, err := tollfree.NewClient(address)
	if err != nil {
		log.Fatal(err)
	}
	defer shared.Close()
	conn, err := grpc.NewClient(shared.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(tollfree.UnaryOver(shared)), grpc.WithChainStreamInterceptor(tollfree.StreamOver(shared)))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	reply, err := pb.NewTestClient(conn).Unary(context.Background(), &pb.Request{Text: "old code"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Text)
	// Output: Hello, old code!
}

// grpc's health service is registered as it is.
func ExampleServer_RegisterService() {
	address, remove := socket()
	defer remove()
	server := tollfree.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	defer serve(server, address)()
	conn, err := tollfree.NewClient(address)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	reply, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
	fmt.Println(reply.GetStatus(), status.Code(err))
	// Output: SERVING OK
}

// Bytes go from one member of a pool to the other and back, and nobody copies them. The example needs a pool: `tollfree pool serve`.
func ExampleRepliesInPlace() {
	ctx := context.Background()
	pool, err := tollfree.JoinPool(ctx, "shm:///run/app/pool.sock")
	if err != nil {
		log.Fatal(err)
	}
	conn, err := tollfree.NewClient("shm:///run/app/greeter.sock", tollfree.WithPool(pool))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	buffer, err := pool.Buffer(1 << 20)
	if err != nil {
		log.Fatal(err)
	}
	copy(buffer.Bytes(), "a large picture")

	var payloads tollfree.Payloads
	reply, err := pb.NewTestClient(conn).Unary(ctx, &pb.Request{Data: buffer.Bytes()}, tollfree.RepliesInPlace(&payloads))
	if err != nil {
		log.Fatal(err)
	}
	buffer.Free()
	fmt.Println(len(reply.Data))
	payloads.Free()
}
