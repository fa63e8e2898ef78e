//go:build interop

package transport

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/steps"
)

func init() {
	roles["server that dies"] = func(address string) error {
		dieAtStep()
		return serveUntilInputEnds(address)
	}
	roles["client that dies"] = func(address string) error {
		dieAtStep()
		return callUntilInputEnds(address)
	}
}

// dieAtStep kills this process when it passes the step that the detail names for so many times.
func dieAtStep() {
	var step steps.Step
	var left atomic.Int64
	count := int64(0)
	if _, err := fmt.Sscanf(os.Getenv(detailVariable), "%d %d", &step, &count); err != nil {
		panic(err)
	}
	left.Store(count)
	steps.Watch(func(passed steps.Step) {
		if passed == step && left.Add(-1) == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
}

// callUntilInputEnds makes short and long calls, and a stream now and then.
func callUntilInputEnds(address string) error {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	client, err := Dial(context.Background(), address, Config{})
	if err != nil {
		return err
	}
	ready()
	for i := 0; ; i++ {
		n := 64
		if i%8 == 0 {
			n = 100_000
		}
		if outcome, got, err := unary(context.Background(), client, "/pooled/echo", n); err != nil || len(got) != n {
			return fmt.Errorf("%v, %v", err, outcome.Status)
		}
		select {
		case <-ended:
			_ = client.Close()
			<-client.Done()
			return nil
		default:
		}
	}
}

// stepsOf are the steps that a role passes.
func stepsOf(server bool) (passed []steps.Step) {
	elsewhere := map[steps.Step]bool{}
	for _, step := range []steps.Step{steps.PathLocked, steps.Bound, steps.HelloReceived, steps.WelcomeSent} {
		elsewhere[step] = !server
	}
	for _, step := range []steps.Step{steps.Connected, steps.HelloSent, steps.WelcomeReceived} {
		elsewhere[step] = server
	}
	for step := steps.None + 1; step < steps.End; step++ {
		if !elsewhere[step] {
			passed = append(passed, step)
		}
	}
	return passed
}

// timesOf says after how many passes of a step a process is killed.
func timesOf(step steps.Step) []int {
	if step <= steps.RegionMapped || step == steps.AreaSent || step == steps.Closing {
		// It comes once in a session.
		return []int{1}
	}
	return []int{1, 2, 7}
}

func TestAServerKilledAtAnyStepHarmsNobody(t *testing.T) {
	_, honest := victim(t)
	address := "shm://" + socketPath(t)
	for _, step := range stepsOf(true) {
		for _, times := range timesOf(step) {
			server := play(t, "server that dies", address, fmt.Sprintf("%d %d", step, times))
			if server.line() == "ready" && step != steps.Closing {
				callUntilItDies(t, address)
			}
			if step == steps.Closing {
				// It closes the sessions that it has.
				if _, _, err := unary(within(t), dialed(t, address, Config{}), "/pooled/echo", 1); err != nil {
					t.Error(err)
				}
			}
			if !server.killed() {
				t.Errorf("step %d was not passed %d times", step, times)
			}
			// Its successor has the address, and serves.
			next, err := Listen(address, Config{})
			if err != nil {
				t.Fatalf("after step %d: %v", step, err)
			}
			go func() { _ = next.Serve(call.Service{Handler: echo}) }()
			client, err := Dial(within(t), address, Config{})
			if err != nil {
				t.Fatalf("after step %d: %v", step, err)
			}
			if _, got, err := unary(within(t), client, "/a.B/C", 10); err != nil || len(got) != 10 {
				t.Errorf("after step %d: %v", step, err)
			}
			_ = client.Close()
			<-client.Done()
			_ = next.Close()
			honest()
		}
	}
}

// callUntilItDies makes calls until one fails for want of its server.
func callUntilItDies(t *testing.T, address string) {
	t.Helper()
	client, err := Dial(within(t), address, Config{})
	if err != nil {
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%v", err)
		}
		return
	}
	defer func() {
		_ = client.Close()
		<-client.Done()
	}()
	for i := range 3000 {
		n := 64
		if i%8 == 0 {
			n = 100_000
		}
		outcome, got, err := unary(within(t), client, "/pooled/echo", n)
		if err != nil || len(got) != n {
			if status.Code(err) != codes.Unavailable && outcome.Status.Code() != codes.Unavailable {
				t.Errorf("call %d: %v, %v", i, err, outcome.Status)
			}
			return
		}
	}
}

func TestAClientKilledAtAnyStepHarmsNobody(t *testing.T) {
	path, honest := victim(t)
	for _, step := range stepsOf(false) {
		for _, times := range timesOf(step) {
			client := play(t, "client that dies", "shm://"+path, fmt.Sprintf("%d %d", step, times))
			for line := client.line(); line != "" && step != steps.Closing; {
				line = client.line()
			}
			// One that closes its session does so when its input ends.
			if !client.killed() {
				t.Errorf("step %d was not passed %d times", step, times)
			}
			honest()
		}
	}
}
