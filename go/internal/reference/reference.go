// Package reference runs the Rust implementation in tests: its program tollfree-interop, which serves gRPC's test services and
// calls them.
package reference

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// passedMin is how many of gRPC's cases a client has to pass: a client that runs none succeeds, too.
const passedMin = 15

func program(t testing.TB) string {
	t.Helper()
	path := os.Getenv("TOLLFREE_INTEROP")
	if path == "" {
		t.Fatal("TOLLFREE_INTEROP does not say where tollfree-interop is: run `make go`")
	}
	return path
}

// Serve has the reference serve at address until stop is called or the test ends, with further arguments. It may begin to listen
// after Serve has returned.
func Serve(t testing.TB, address string, more ...string) (stop func()) {
	t.Helper()
	return Start(t, append([]string{"serve", address}, more...)...)
}

// Start runs the reference's program with arguments until stop is called or the test ends.
func Start(t testing.TB, arguments ...string) (stop func()) {
	t.Helper()
	return start(t, nil, arguments...)
}

// StartAndRead does as Start does, and reads lines that the program prints.
func StartAndRead(t testing.TB, count int, arguments ...string) (lines []string, stop func()) {
	t.Helper()
	stop = start(t, func(output io.Reader) {
		for scanner := bufio.NewScanner(output); len(lines) < count && scanner.Scan(); {
			lines = append(lines, scanner.Text())
		}
	}, arguments...)
	return lines, stop
}

// start has read, unless it is nil, read what the program prints before start returns.
func start(t testing.TB, read func(output io.Reader), arguments ...string) (stop func()) {
	t.Helper()
	server := exec.Command(program(t), arguments...)
	server.Stderr = os.Stderr
	var output io.Reader
	if read != nil {
		var err error
		if output, err = server.StdoutPipe(); err != nil {
			t.Fatal(err)
		}
	}
	// The end of its input ends it.
	input, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = input.Close()
		if err := server.Wait(); err != nil {
			t.Errorf("the Rust server: %v", err)
		}
	})
	t.Cleanup(stop)
	if read != nil {
		read(output)
	}
	return stop
}

// Call has the reference's client run gRPC's cases, but for the named ones, against the server at address. Unless they are empty,
// pool is where a pool is coordinated by which it calls, and directory is where sockets lie to which its calls move over from TCP.
// A case that fails fails the test, and so does the time limit.
func Call(t testing.TB, address, pool, directory string, limit time.Duration, except ...string) {
	t.Helper()
	arguments := []string{address}
	if pool != "" {
		arguments = append(arguments, "--pool", pool)
	}
	runCases(t, arguments, directory, limit, except)
}

// CallVia does as Call by way of a gateway: with calls to target, which begin only when they go by a direct connection where direct is
// set.
func CallVia(t testing.TB, gateway, target string, direct bool, limit time.Duration, except ...string) {
	t.Helper()
	arguments := []string{gateway, "--via", target}
	if direct {
		arguments = append(arguments, "--direct")
	}
	runCases(t, arguments, "", limit, except)
}

func runCases(t testing.TB, arguments []string, directory string, limit time.Duration, except []string) {
	t.Helper()
	arguments = append([]string{"call"}, arguments...)
	for _, name := range except {
		arguments = append(arguments, "--except", name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out bytes.Buffer
	client := exec.CommandContext(ctx, program(t), arguments...)
	if directory != "" {
		client.Env = append(os.Environ(), "TOLLFREE_UPGRADE_DIRECTORY="+directory)
	}
	client.Stdout, client.Stderr = &out, &out
	if err := client.Run(); err != nil {
		t.Errorf("the Rust client: %v:\n%s", err, out.String())
	}
	if passed := strings.Count(out.String(), ": passed"); passed < passedMin {
		t.Errorf("%d cases have passed, where at least %d have to:\n%s", passed, passedMin, out.String())
	}
}

// Run runs the reference's program with arguments, which has to succeed and to say words.
func Run(t testing.TB, limit time.Duration, words string, arguments ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, program(t), arguments...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), words) {
		t.Errorf("the Rust program: %v, and not %q:\n%s", err, words, out)
	}
}

// StartToKill runs the reference's program with arguments until kill is called, which kills it and waits for its end, or the test ends.
func StartToKill(t testing.TB, arguments ...string) (kill func()) {
	t.Helper()
	run := exec.Command(program(t), arguments...)
	run.Stderr = os.Stderr
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = run.Process.Kill()
		_ = run.Wait()
	})
	t.Cleanup(kill)
	return kill
}

// A Conversation is with a run of the reference's program that prints lines, and waits for lines.
type Conversation struct {
	t     testing.TB
	input io.Writer
	lines chan string
}

// StartToTalk runs the reference's program with arguments, which has to end by itself before the test does.
func StartToTalk(t testing.TB, arguments ...string) *Conversation {
	t.Helper()
	run := exec.Command(program(t), arguments...)
	run.Stderr = os.Stderr
	output, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	input, err := run.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	c := &Conversation{t, input, make(chan string, 100)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			c.lines <- scanner.Text()
		}
		close(c.lines)
	}()
	t.Cleanup(func() {
		_ = input.Close()
		stop := time.AfterFunc(20*time.Second, func() { _ = run.Process.Kill() })
		<-ended
		if err := run.Wait(); err != nil {
			t.Errorf("the Rust program: %v", err)
		}
		stop.Stop()
	})
	return c
}

// Hear waits for a line, which has to be this one.
func (c *Conversation) Hear(line string) {
	c.t.Helper()
	select {
	case said := <-c.lines:
		if said != line {
			c.t.Fatalf("the Rust program prints %q, not %q", said, line)
		}
	case <-time.After(20 * time.Second):
		c.t.Fatalf("the Rust program does not print %q", line)
	}
}

// GoOn has the program go on, which waits for a line.
func (c *Conversation) GoOn() {
	c.t.Helper()
	if _, err := io.WriteString(c.input, "\n"); err != nil {
		c.t.Fatal(err)
	}
}
