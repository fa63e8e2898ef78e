package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"

	"github.com/tollfree/tollfree/examples/trace/relay"
	tollfree "github.com/tollfree/tollfree/go"
)

// clientName is the name of this process's own spans.
const clientName = "go-client"

// passThrough starts the services, makes a call through all of them, and ends them, so that they have exported their spans. It returns what
// the services say of themselves.
func passThrough(ctx context.Context, endpoint string, services []service) (passed []string, err error) {
	directory, err := os.MkdirTemp("", "tollfree-trace")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory)
	address := func(i int) string { return fmt.Sprintf("shm://%s/%d.sock", directory, i) }
	var running []*process
	defer func() {
		// The first one first: each has ended its calls before the next ends.
		for _, p := range slices.Backward(running) {
			err = errors.Join(err, p.stop())
		}
	}()
	for i, s := range slices.Backward(services) {
		arguments := []string{address(i)}
		if i+1 < len(services) {
			arguments = append(arguments, address(i+1))
		}
		p, err := start(ctx, s, arguments, endpoint)
		if err != nil {
			return nil, err
		}
		running = append(running, p)
	}
	return call(ctx, endpoint, address(0))
}

// call is the client.
func call(ctx context.Context, endpoint, address string) (passed []string, err error) {
	for name, value := range telemetryOf(clientName, endpoint) {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	flush, err := instrument(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, flush(ctx)) }()
	conn, err := tollfree.NewClient(address, tollfree.WithStatsHandler(otelgrpc.NewClientHandler()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	reply, err := relay.NewRelayClient(conn).Pass(ctx, &relay.PassRequest{})
	if err != nil {
		return nil, err
	}
	return reply.Passed, nil
}

// telemetryOf are variables of the environment that all of OpenTelemetry's libraries know.
func telemetryOf(name, endpoint string) map[string]string {
	return map[string]string{"OTEL_SERVICE_NAME": name, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
}

// A process is a service that runs.
type process struct {
	name    string
	command *exec.Cmd
	input   io.Closer
}

var errNotReady = errors.New("its output did not begin with \"ready\"")

// start starts a service, and waits until it serves.
func start(ctx context.Context, s service, arguments []string, endpoint string) (*process, error) {
	command := exec.CommandContext(ctx, s.command[0], append(slices.Clone(s.command[1:]), arguments...)...)
	command.Stderr = os.Stderr
	command.WaitDelay = time.Second
	command.Env = os.Environ()
	for name, value := range telemetryOf(s.name, endpoint) {
		command.Env = append(command.Env, name+"="+value)
	}
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("%s (%s) can't be started: %w", s.name, filepath.Base(s.command[0]), err)
	}
	p := &process{s.name, command, input}
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "ready\n" {
		return nil, fmt.Errorf("%s does not serve; what it says of that is above (%w)", s.name, errors.Join(err, p.stop(), errNotReady))
	}
	return p, nil
}

// stop has a service end, and waits for that.
func (p *process) stop() error {
	_ = p.input.Close()
	if err := p.command.Wait(); err != nil {
		return fmt.Errorf("%s ended badly: %w", p.name, err)
	}
	return nil
}
