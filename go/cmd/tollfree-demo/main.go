// Command tollfree-demo makes the same calls with the same stubs twice: by grpc-go over a Unix socket, and over shared memory. The server
// is another process.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	tollfree "github.com/tollfree/tollfree/go"
	"github.com/tollfree/tollfree/go/cmd/tollfree-demo/greeter"
)

func main() {
	serves := flag.String("serve", "", "be the server, at sockets in this directory, until the input ends")
	measure := flag.Duration("measure", 2*time.Second, "how long calls are timed over each transport")
	flag.Parse()
	var err error
	if *serves != "" {
		err = serve(*serves)
	} else {
		err = demo(os.Stdout, *measure)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tollfree-demo:", err)
		os.Exit(1)
	}
}

// A transport is one of the two ways to the server.
type transport struct {
	title string
	// socket is its name in the server's directory.
	socket  string
	connect func(path string) (grpc.ClientConnInterface, io.Closer, error)
}

var transports = []transport{
	{"grpc-go over a Unix socket", "http2.sock", func(path string) (grpc.ClientConnInterface, io.Closer, error) {
		conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		return conn, conn, err
	}},
	{"Tollfree over shared memory", "tollfree.sock", func(path string) (grpc.ClientConnInterface, io.Closer, error) {
		conn, err := tollfree.NewClient("shm://" + path)
		return conn, conn, err
	}},
}

// demo starts the server, and goes through both transports.
func demo(out io.Writer, measure time.Duration) (err error) {
	directory, err := os.MkdirTemp("", "tollfree-demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	server, stop, err := start(directory)
	if err != nil {
		return fmt.Errorf("the server: %w", err)
	}
	defer func() { err = errors.Join(err, stop()) }()
	fmt.Fprintf(out, "One greeter service, the stubs of protoc-gen-go-grpc, two transports.\nServer: process %d. Client: process %d.\n", server, os.Getpid())
	medians := make([]time.Duration, len(transports))
	for i, t := range transports {
		path := filepath.Join(directory, t.socket)
		fmt.Fprintf(out, "\n%d. %s\n   address  %s\n", i+1, t.title, path)
		conn, closer, err := t.connect(path)
		if err != nil {
			return err
		}
		medians[i], err = tour(out, greeter.NewGreeterClient(conn), measure)
		err = errors.Join(err, closer.Close())
		if err != nil {
			return fmt.Errorf("%s: %w", t.title, err)
		}
	}
	fmt.Fprintf(out, "\nThe median call over Tollfree took 1/%.1f of the time.\n", float64(medians[0])/float64(medians[1]))
	return nil
}

// start starts the server, and waits until it serves.
func start(directory string) (pid int, stop func() error, err error) {
	program, err := os.Executable()
	if err != nil {
		return 0, nil, err
	}
	server := exec.Command(program, "-serve", directory)
	server.Stderr = os.Stderr
	input, err := server.StdinPipe()
	if err != nil {
		return 0, nil, err
	}
	output, err := server.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := server.Start(); err != nil {
		return 0, nil, err
	}
	stop = func() error {
		_ = input.Close()
		return server.Wait()
	}
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		return 0, nil, errors.Join(err, stop())
	}
	return server.Process.Pid, stop, nil
}

// tour makes a few calls to look at, then many to time, and gives the median.
func tour(out io.Writer, client greeter.GreeterClient, measure time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, name := range []string{"Ada", "Grace", ""} {
		var from peer.Peer
		reply, err := client.Greet(ctx, &greeter.GreetRequest{Name: name}, grpc.Peer(&from))
		switch {
		case err == nil:
			fmt.Fprintf(out, "   Greet(%s) -> %s   (from process %d%s)\n", name, reply.Greeting, reply.ServerPid, identity(&from))
		case name == "":
			fmt.Fprintf(out, "   Greet() -> %s: %s\n", status.Code(err), status.Convert(err).Message())
		default:
			return 0, err
		}
	}
	stream, err := client.GreetInManyTongues(ctx, &greeter.GreetRequest{Name: "Barbara"})
	if err != nil {
		return 0, err
	}
	var greetings []string
	for {
		reply, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, err
		}
		greetings = append(greetings, reply.Greeting)
	}
	fmt.Fprintf(out, "   GreetInManyTongues(Barbara) -> %s\n", strings.Join(greetings, " "))
	return timed(ctx, out, client, measure)
}

// identity is what the kernel says of the server, where the transport passes that on.
func identity(from *peer.Peer) string {
	info, ok := from.AuthInfo.(tollfree.AuthInfo)
	if !ok {
		return ""
	}
	return fmt.Sprintf(", which the kernel shows as %d of user %d", info.PID, info.UID)
}
