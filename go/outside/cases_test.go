package outside

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	"google.golang.org/grpc/reflection"

	tollfree "github.com/tollfree/tollfree/go"
	"github.com/tollfree/tollfree/go/internal/reference"

	"google.golang.org/grpc/interop/grpc_testing"
)

var addresses atomic.Int64

func newAddress() string {
	return fmt.Sprintf("shm-abstract:tollfree-outside-%d-%d", os.Getpid(), addresses.Add(1))
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func wantNoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve serves grpc-go's interop service, with reflection, through shared memory and over TCP until the test ends.
func serve(t *testing.T) (memory, tcp string) {
	t.Helper()
	shared, plain := tollfree.NewServer(), grpc.NewServer()
	for _, server := range []reflection.GRPCServer{shared, plain} {
		grpc_testing.RegisterTestServiceServer(server, interop.NewTestServer())
		reflection.Register(server)
	}
	memory = newAddress()
	listener, err := shared.Listen(memory)
	wantNoError(t, err)
	socket, err := net.Listen("tcp", "localhost:0")
	wantNoError(t, err)
	served := make(chan error, 2)
	go func() { served <- shared.ServeListener(listener) }()
	go func() { served <- plain.Serve(socket) }()
	t.Cleanup(func() {
		shared.Stop()
		plain.Stop()
		for range 2 {
			wantNoError(t, <-served)
		}
	})
	return memory, socket.Addr().String()
}

// rust is a server of the Rust implementation, through shared memory and over TCP.
func rust(t *testing.T) (memory, tcp string) {
	t.Helper()
	directory, err := os.MkdirTemp("", "tollfree")
	wantNoError(t, err)
	t.Cleanup(func() { os.RemoveAll(directory) })
	memory, tcp = "shm://"+directory+"/rust.sock", freePort(t)
	reference.Serve(t, memory, "http://"+tcp)
	return memory, tcp
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	wantNoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// over connects through shared memory, plain by grpc-go over TCP.
func over(t *testing.T, address string) grpc.ClientConnInterface {
	t.Helper()
	conn, err := tollfree.NewClient(address, tollfree.WithDefaultCallOptions(grpc.WaitForReady(true)))
	wantNoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func plain(t *testing.T, address string) grpc.ClientConnInterface {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	wantNoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// moving is a connection of grpc-go over TCP whose calls would move to shared memory, if the server offered that.
func moving(t *testing.T, address string) grpc.ClientConnInterface {
	t.Helper()
	upgrade, err := tollfree.NewUpgrade(t.TempDir())
	wantNoError(t, err)
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithChainUnaryInterceptor(upgrade.Unary), grpc.WithChainStreamInterceptor(upgrade.Stream))
	wantNoError(t, err)
	t.Cleanup(func() {
		upgrade.Close()
		conn.Close()
	})
	return conn
}

// runCases runs grpc-go's own client of gRPC's cases. A case that fails ends the program, and says why.
func runCases(t *testing.T, conn grpc.ClientConnInterface) {
	client := grpc_testing.NewTestServiceClient(conn)
	for name, run := range map[string]func(context.Context, grpc_testing.TestServiceClient, ...grpc.CallOption){
		"empty_unary": interop.DoEmptyUnaryCall, "large_unary": interop.DoLargeUnaryCall, "client_streaming": interop.DoClientStreaming,
		"server_streaming": interop.DoServerStreaming, "ping_pong": interop.DoPingPong, "empty_stream": interop.DoEmptyStream,
		"timeout_on_sleeping_server": interop.DoTimeoutOnSleepingServer, "cancel_after_begin": interop.DoCancelAfterBegin,
		"cancel_after_first_response": interop.DoCancelAfterFirstResponse, "custom_metadata": interop.DoCustomMetadata,
		"status_code_and_message": interop.DoStatusCodeAndMessage, "special_status_message": interop.DoSpecialStatusMessage,
	} {
		t.Run(name, func(t *testing.T) {
			run(within(t), client)
			if !strings.HasPrefix(name, "cancel") && name != "timeout_on_sleeping_server" {
				run(within(t), client, grpc.UseCompressor(gzip.Name))
			}
		})
	}
	t.Run("unimplemented_service", func(t *testing.T) {
		interop.DoUnimplementedService(within(t), grpc_testing.NewUnimplementedServiceClient(conn))
	})
}

// TestEachPairing runs gRPC's cases with each client against each server.
func TestEachPairing(t *testing.T) {
	memory, tcp := serve(t)
	rustMemory, rustTCP := rust(t)
	for name, conn := range map[string]func(t *testing.T) grpc.ClientConnInterface{
		"Go to Go":             func(t *testing.T) grpc.ClientConnInterface { return over(t, memory) },
		"Go to Rust":           func(t *testing.T) grpc.ClientConnInterface { return over(t, rustMemory) },
		"Go to grpc-go, TCP":   func(t *testing.T) grpc.ClientConnInterface { return moving(t, tcp) },
		"Go to Rust, TCP":      func(t *testing.T) grpc.ClientConnInterface { return moving(t, rustTCP) },
		"grpc-go to Rust":      func(t *testing.T) grpc.ClientConnInterface { return plain(t, rustTCP) },
		"grpc-go to grpc-go":   func(t *testing.T) grpc.ClientConnInterface { return plain(t, tcp) },
		"grpc-go, gateway, Go": func(t *testing.T) grpc.ClientConnInterface { return plain(t, gateway(t)) },
	} {
		t.Run(name, func(t *testing.T) { runCases(t, conn(t)) })
	}
	// What grpc-go's server lacks, as docs/interop.md says, and what takes a debug build a minute.
	lacking := []string{
		"client_compressed_unary", "server_compressed_unary", "client_compressed_streaming", "server_compressed_streaming",
		"pick_first_unary", "orca_per_rpc", "orca_oob", "concurrent_large_unary",
	}
	t.Run("Rust to Go", func(t *testing.T) { reference.Call(t, memory, "", "", 5*time.Minute, lacking...) })
	t.Run("Rust to grpc-go, TCP", func(t *testing.T) { reference.Call(t, "http://"+tcp, "", "", 5*time.Minute, lacking...) })
}

// gateway is the address of a gateway with a server behind it that has attached.
func gateway(t *testing.T) (address string) {
	t.Helper()
	directory, err := os.MkdirTemp("", "tollfree")
	wantNoError(t, err)
	t.Cleanup(func() { os.RemoveAll(directory) })
	address = freePort(t)
	config := directory + "/gateway.toml"
	wantNoError(t, os.WriteFile(config, []byte("[listeners.world]\naddress = \""+address+"\"\n[backends]\nsocket = \"shm://"+directory+"/gateway.sock\"\n[groups.default]\n"), 0o600))
	stop := reference.Start(t, "gateway", config)
	server := tollfree.NewServer()
	grpc_testing.RegisterTestServiceServer(server, interop.NewTestServer())
	reflection.Register(server)
	attached := make(chan error, 1)
	go func() { attached <- server.Attach("shm://"+directory+"/gateway.sock", "default") }()
	t.Cleanup(func() {
		stop()
		server.Stop()
		<-attached
	})
	client := grpc_testing.NewTestServiceClient(plain(t, address))
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, err := client.EmptyCall(within(t), &grpc_testing.Empty{}, grpc.WaitForReady(true))
		if err == nil {
			return address
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}
