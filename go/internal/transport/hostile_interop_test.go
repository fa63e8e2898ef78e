//go:build interop

package transport

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tollfree/tollfree/go/internal/call"
	"github.com/tollfree/tollfree/go/internal/reference"
)

// socketPath is a path for a socket, short enough for one.
func socketPath(t testing.TB) string {
	t.Helper()
	directory, err := os.MkdirTemp("", "tollfree")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
			t.Errorf("left in the socket's directory: %v, %v", left, err)
		}
		_ = os.RemoveAll(directory)
	})
	return directory + "/s.sock"
}

// victim is a server at a path, and an honest client of it.
func victim(t *testing.T) (path string, honest func()) {
	t.Helper()
	path = socketPath(t)
	counted(t)
	listener, err := Listen("shm://"+path, Config{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := listener.Serve(call.Service{Handler: echo}); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	client := dialed(t, listener.Address(), Config{})
	honest = func() {
		t.Helper()
		for _, n := range []int{0, 100, 20_000} {
			if outcome, got, err := unary(within(t), client, "/a.B/C", n); err != nil || len(got) != n {
				t.Fatalf("another session: %v, %v", err, outcome.Status)
			}
		}
	}
	honest()
	return path, honest
}

// namesPlace says whether an end's reason names one of the places that wants lists.
func namesPlace(reason, wants string) bool {
	return wants == "" || slices.ContainsFunc(strings.Split(wants, "|"), func(place string) bool {
		return strings.Contains(reason, "("+place+")")
	})
}

func TestGreetingsOfHostileClientsAreRefused(t *testing.T) {
	path, honest := victim(t)
	for _, lie := range reference.Lies(t, "greeting", 30) {
		// The program compares the reason.
		reference.Harm(t, "greeting", lie.Name, path)
	}
	honest()
	for seed := range 3 {
		reference.Harm(t, "random-greetings", strconv.Itoa(seed), path)
		honest()
	}
}

func TestLiesOfClientsEndTheirSessionAlone(t *testing.T) {
	path, honest := victim(t)
	for _, lie := range reference.Lies(t, "client", 35) {
		reason := reference.Harm(t, "client", lie.Name, path)
		// A server that can't trust the cursor has no room for its reason.
		if !namesPlace(reason, lie.Wants) && !strings.HasPrefix(lie.Name, "cursor") {
			t.Errorf("%s: %q names none of %s", lie.Name, reason, lie.Wants)
		}
		honest()
	}
}

func TestLiesOfServersEndTheirSession(t *testing.T) {
	path := socketPath(t)
	counted(t)
	for _, lie := range reference.Lies(t, "server", 35) {
		stop := reference.Beside(t, true, "server", lie.Name, path)
		client, err := Dial(within(t), "shm://"+path, Config{})
		if err != nil {
			t.Fatalf("%s: %v", lie.Name, err)
		}
		c, err := client.Start(within(t), &call.Start{Method: "/a.B/C", Message: message(2), Last: true})
		if err != nil {
			t.Fatalf("%s: %v", lie.Name, err)
		}
		select {
		case <-client.Done():
			if err := client.Err(); !namesPlace(err.Error(), lie.Wants) {
				t.Errorf("%s: %q names none of %s", lie.Name, err, lie.Wants)
			}
		case <-time.After(testTime):
			t.Errorf("%s: the session goes on", lie.Name)
		}
		if got := c.Outcome().Status.Code(); got != codes.Unavailable {
			t.Errorf("%s: the call ended with %v", lie.Name, got)
		}
		_ = client.Close()
		stop()
	}
}

func TestAnswersOfHostileServersAreErrors(t *testing.T) {
	path := socketPath(t)
	counted(t)
	for _, lie := range reference.Lies(t, "welcome", 15) {
		stop := reference.Beside(t, true, "welcome", lie.Name, path)
		// Some answer nothing, or not all.
		ctx, cancel := context.WithTimeout(within(t), time.Second)
		_, err := Dial(ctx, "shm://"+path, Config{})
		cancel()
		if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", lie.Name, err)
		}
		stop()
	}
}

// TestBytesThatAreRewrittenAreViolationsAtWorst has a client rewrite its ring while the server reads it.
func TestBytesThatAreRewrittenAreViolationsAtWorst(t *testing.T) {
	path, honest := victim(t)
	for seed := range 12 {
		if words := reference.Harm(t, "rewriting", strconv.Itoa(seed), path); words == "" || words == "0 words" {
			t.Errorf("nothing was rewritten")
		}
		honest()
	}
}

func TestRandomRecordsEndTheirSessionAtWorst(t *testing.T) {
	path, honest := victim(t)
	violations := 0
	for seed := range 25 {
		if strings.Contains(reference.Harm(t, "random-records", strconv.Itoa(seed), path), "broke the protocol") {
			violations++
		}
		honest()
	}
	if violations < 5 {
		t.Errorf("%d violations: the records are mostly right", violations)
	}
}

// TestAFloodCostsOthersTheirTurnAtMost has a client do without end what the protocol allows.
func TestAFloodCostsOthersTheirTurnAtMost(t *testing.T) {
	for _, lie := range reference.Lies(t, "flood", 4) {
		t.Run(lie.Name, func(t *testing.T) {
			path, _ := victim(t)
			stop := reference.Beside(t, false, "flood", lie.Name, path)
			client := dialed(t, "shm://"+path, Config{})
			var took []time.Duration
			for began := time.Now(); time.Since(began) < 400*time.Millisecond; {
				at := time.Now()
				if outcome, got, err := unary(within(t), client, "/a.B/C", 1); err != nil || len(got) != 1 {
					t.Fatalf("%v, %v", err, outcome.Status)
				}
				took = append(took, time.Since(at))
			}
			// A round may be a thousand messages.
			rounds, err := strconv.Atoi(stop())
			if err != nil || rounds < 3 {
				t.Errorf("no flood: %d rounds, %v", rounds, err)
			}
			slices.Sort(took)
			// The median: a single call may have to wait for a processor that is busy with something else.
			if usual := took[len(took)/2]; usual > 100*time.Millisecond {
				t.Errorf("calls beside the flood take %v", usual)
			}
		})
	}
}

// TestNuisancesHarmNobody has a client forge its waiting word and ring for nothing, and be answered all the same.
func TestNuisancesHarmNobody(t *testing.T) {
	path, honest := victim(t)
	reference.Harm(t, "restless", "0", path)
	honest()
}
