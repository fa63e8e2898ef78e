package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"

	"google.golang.org/grpc"

	tollfree "github.com/tollfree/tollfree/go"
	"github.com/tollfree/tollfree/lab/bench/go/direct"
	"github.com/tollfree/tollfree/lab/bench/go/echo"
	"github.com/tollfree/tollfree/lab/bench/go/streams"
)

// fieldRoom is more than a message of one field needs around its bytes, and limitMin the limit of gRPC.
const (
	fieldRoom = 64
	limitMin  = 4 << 20
)

func limit(size int) int { return max(size+fieldRoom, limitMin) }

// service gives back the bytes that it gets.
type service struct{ echo.UnimplementedEchoServer }

func (service) Call(_ context.Context, in *echo.EchoRequest) (*echo.EchoReply, error) {
	return &echo.EchoReply{Body: in.Body}, nil
}

// directService is service, with the stubs of protoc-gen-go-tollfree.
type directService struct{ direct.UnimplementedEchoServer }

func (directService) Call(_ context.Context, in *direct.EchoRequest) (*direct.EchoReply, error) {
	return &direct.EchoReply{Body: in.Body}, nil
}

// Sides with one end in Go. The other one knows the service by the name that package echo has for it, which package direct has not.
const (
	goToRust = "go-to-rust"
	rustToGo = "rust-to-go"
)

// registerDirect registers directService by package echo's name.
func registerDirect(server *tollfree.Server) {
	desc := direct.Echo_ServiceDesc
	desc.ServiceName = echo.Echo_ServiceDesc.ServiceName
	tollfree.RegisterDirect(server, &desc, directService{}, tollfree.DirectUnary(echo.Echo_Call_FullMethodName, directService{}.Call))
}

// serve serves until the input ends, and says the address once it does.
func serve(o *order, directory string, ready func(address string), input io.Reader) error {
	if isGRPC(o.side) {
		network, at, prefix := "unix", filepath.Join(directory, "grpc-go.sock"), "unix:"
		if o.side == "grpc-go-tcp" {
			network, at, prefix = "tcp", "localhost:0", ""
		}
		listener, err := net.Listen(network, at)
		if err != nil {
			return err
		}
		server := grpc.NewServer(grpc.MaxRecvMsgSize(limit(o.size)))
		echo.RegisterEchoServer(server, service{})
		streams.RegisterStreamsServer(server, streamService{warmUp: o.warmUp})
		go func() {
			untilOver(input)
			server.Stop()
		}()
		ready(prefix + listener.Addr().String())
		return server.Serve(listener)
	}
	options := []tollfree.ServerOption{tollfree.MaxRecvMsgSize(limit(o.size))}
	switch o.side {
	case "go":
	case "go-inline":
		options = append(options, tollfree.Inline(echo.Echo_Call_FullMethodName))
	case "go-direct":
		options = append(options, tollfree.Inline(direct.Echo_Call_FullMethodName))
	case rustToGo:
		options = append(options, tollfree.Inline(echo.Echo_Call_FullMethodName))
	default:
		return fmt.Errorf("there is no side %q", o.side)
	}
	server := tollfree.NewServer(options...)
	if o.side == rustToGo {
		registerDirect(server)
	} else {
		echo.RegisterEchoServer(server, service{})
	}
	direct.RegisterEchoServer(server, directService{})
	streams.RegisterStreamsServer(server, streamService{warmUp: o.warmUp})
	address := "shm://" + filepath.Join(directory, "go.sock")
	listener, err := server.Listen(address)
	if err != nil {
		return err
	}
	go func() {
		untilOver(input)
		server.Stop()
	}()
	ready(address)
	return server.ServeListener(listener)
}
