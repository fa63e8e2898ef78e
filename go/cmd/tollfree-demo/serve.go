package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	tollfree "github.com/tollfree/tollfree/go"
	"github.com/tollfree/tollfree/go/cmd/tollfree-demo/greeter"
)

// serve serves one service over both transports, and says so, until the input ends.
func serve(directory string) error {
	shared, http2 := tollfree.NewServer(), grpc.NewServer()
	for _, server := range []grpc.ServiceRegistrar{shared, http2} {
		greeter.RegisterGreeterServer(server, polite{})
	}
	socket, err := net.Listen("unix", filepath.Join(directory, transports[0].socket))
	if err != nil {
		return err
	}
	listener, err := shared.Listen("shm://" + filepath.Join(directory, transports[1].socket))
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- http2.Serve(socket) }()
	go func() { ended <- shared.ServeListener(listener) }()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	shared.GracefulStop()
	http2.GracefulStop()
	return errors.Join(<-ended, <-ended)
}

// polite greets, and says which process does.
type polite struct {
	greeter.UnimplementedGreeterServer
}

func reply(greeting string) *greeter.GreetReply {
	return &greeter.GreetReply{Greeting: greeting, ServerPid: uint32(os.Getpid())}
}

func nameOf(in *greeter.GreetRequest) (string, error) {
	if in.Name == "" {
		return "", status.Error(codes.InvalidArgument, "whom shall I greet? the name is empty")
	}
	return in.Name, nil
}

func (polite) Greet(_ context.Context, in *greeter.GreetRequest) (*greeter.GreetReply, error) {
	name, err := nameOf(in)
	if err != nil {
		return nil, err
	}
	return reply("Hello, " + name + "!"), nil
}

func (polite) GreetInManyTongues(in *greeter.GreetRequest, stream grpc.ServerStreamingServer[greeter.GreetReply]) error {
	name, err := nameOf(in)
	if err != nil {
		return err
	}
	for _, hello := range []string{"Hello", "Bonjour", "Hallo"} {
		if err := stream.Send(reply(hello + ", " + name + "!")); err != nil {
			return err
		}
	}
	return nil
}
