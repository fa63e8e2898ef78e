package balancer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// server is what a test's client has made of an address.
type server struct {
	address string
	number  int // of those that were made
	record  *Record
	reach   Reach
	fails   int // of a hundred calls
	calls   uint32
	chosen  int // calls that it was chosen for
}

func (s *server) end(succeeds bool) {
	switch {
	case s.record == nil:
	case succeeds:
		s.record.Succeeded()
	default:
		s.record.Failed()
	}
}

// timed is an event and when it was.
type timed struct {
	at time.Duration
	Event
}

// world is servers that answer, fail, or are not there, and a client that chooses among them.
type world struct {
	t      testing.TB
	list   *List[*server]
	now    time.Duration
	rng    *rand.Rand
	events []timed
	made   int
}

const start = 1000 * time.Second

func newWorld(t testing.TB, policy Policy, detection *OutlierDetection, seed uint64, targets ...Target) *world {
	w := &world{t: t, list: New[*server](policy, detection, seed), now: start, rng: rand.New(rand.NewPCG(seed, 1))}
	if len(targets) > 0 {
		w.replace(targets...)
	}
	return w
}

// numbered are so many targets, "0", "1" and so on.
func numbered(n int) (targets []Target) {
	for i := range n {
		targets = append(targets, NewTarget(fmt.Sprint(i)))
	}
	return targets
}

func named(addresses string) (targets []Target) {
	for _, address := range strings.Fields(addresses) {
		targets = append(targets, NewTarget(address))
	}
	return targets
}

// replace gives the addresses of the servers that are in the list no more.
func (w *world) replace(targets ...Target) (addresses []string) {
	gone, err := w.list.Replace(targets, w.now, func(target *Target, record *Record) (*server, error) {
		w.made++
		return &server{address: target.Address, number: w.made - 1, record: record}, nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range gone {
		addresses = append(addresses, s.address)
	}
	return addresses
}

func (w *world) server(address string) *server {
	for _, m := range w.list.Members() {
		if m.Endpoint.address == address {
			return m.Endpoint
		}
	}
	w.t.Fatalf("%s is not in the list", address)
	return nil
}

func (w *world) set(reach Reach, addresses ...string) {
	for _, address := range addresses {
		w.server(address).reach = reach
	}
}

func (w *world) ejected() string {
	var all []string
	for _, m := range w.list.Members() {
		if m.Ejected() {
			all = append(all, m.Target.Address)
		}
	}
	return strings.Join(all, " ")
}

func (w *world) sweep() {
	if w.list.Due(w.now) {
		for _, e := range w.list.Sweep(w.now) {
			w.events = append(w.events, timed{w.now, e})
		}
	}
}

// pick gives the server that is chosen, not one to avoid; or nil and how that is: "wait", or "failing" with the address that fails first.
func (w *world) pick(avoid string) (*server, string) {
	w.sweep()
	choice := w.list.Pick(func(s *server) bool { return s.address == avoid }, func(s *server) Reach { return s.reach },
		func(s *server) uint32 { return s.calls })
	switch choice.Outcome {
	case Wait:
		return nil, "wait"
	case Failing:
		if choice.Place < 0 {
			return nil, "failing"
		}
		return nil, "failing " + w.list.Members()[choice.Place].Target.Address
	}
	s := w.list.Members()[choice.Place].Endpoint
	s.chosen++
	return s, ""
}

// choose gives addresses, or why there are none, of so many choices.
func (w *world) choose(n int) string {
	var all []string
	for range n {
		s, why := w.pick("")
		if s != nil {
			why = s.address
		}
		all = append(all, why)
	}
	return strings.Join(all, " ")
}

// call makes a call that ends at once; nil: nowhere.
func (w *world) call() (s *server, succeeds bool) {
	if s, _ = w.pick(""); s == nil {
		return nil, false
	}
	succeeds = w.rng.IntN(100) >= s.fails
	s.end(succeeds)
	return s, succeeds
}

// count says how often each address is called in so many calls.
func (w *world) count(n int) string {
	counts := map[string]int{}
	for range n {
		s, _ := w.call()
		if s == nil {
			s = &server{address: "none"}
		}
		counts[s.address]++
	}
	var all []string
	for address, count := range counts {
		all = append(all, fmt.Sprintf("%s:%d", address, count))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// end ends so many calls at a server, without a choice.
func (w *world) end(address string, successes, failures int) {
	s := w.server(address)
	for range successes {
		s.end(true)
	}
	for range failures {
		s.end(false)
	}
}

// interval lets the interval pass in which these calls have ended.
func (w *world) interval() {
	w.now += 10 * time.Second
	w.sweep()
}

// history is in which seconds since the beginning servers were ejected and returned.
func (w *world) history() string {
	var all []string
	for _, e := range w.events {
		what := "returned"
		if e.Cause != "" {
			what = "ejected"
		}
		all = append(all, fmt.Sprintf("%d %s", int((e.at-start)/time.Second), what))
	}
	return strings.Join(all, ", ")
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
