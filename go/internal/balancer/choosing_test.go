package balancer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func weighted(address string, weight uint32) Target { return Target{Address: address, Weight: weight} }

func prior(address string, priority uint32) Target {
	return Target{Address: address, Weight: 1, Priority: priority}
}

func TestRoundRobinTakesEachInTurn(t *testing.T) {
	w := newWorld(t, RoundRobin, nil, 1, numbered(4)...)
	want(t, "turns", w.choose(5), "0 1 2 3 0")
	w.set(Fails, "1")
	w.set(Waits, "2")
	want(t, "the neighbor of two that are out has no more", w.count(100), "0:50 3:50")
}

func TestWeightsDivideTheCallsOfRoundRobin(t *testing.T) {
	w := newWorld(t, RoundRobin, nil, 1, weighted("a", 5), weighted("b", 3), weighted("c", 2), weighted("d", 0))
	want(t, "counts", w.count(1000), "a:500 b:300 c:200")
	w.set(Fails, "a")
	w.count(1)
	want(t, "shares among those that are left", w.count(1000), "b:600 c:400")
}

func TestLocalitiesDivideTheCallsBeforeTheirEndpointsDo(t *testing.T) {
	at := func(address, name string, weight uint32) Target {
		return Target{Address: address, Weight: 1, Locality: &Locality{name, weight}}
	}
	w := newWorld(t, RoundRobin, nil, 1, at("a", "near", 3), at("b", "near", 3), at("c", "far", 1))
	want(t, "counts", w.count(800), "a:300 b:300 c:200")
}

// Calls that take their time: each endpoint has about as many under way as its weight says.
func TestLeastOutstandingKeepsLoadsBesideWeights(t *testing.T) {
	for seed, weights := range [][3]uint32{{1, 1, 1}, {4, 2, 1}, {1, 10, 10}} {
		w := newWorld(t, LeastOutstanding, nil, uint64(seed), weighted("0", weights[0]), weighted("1", weights[1]), weighted("2", weights[2]))
		var underWay []*server
		for range 20_000 {
			if len(underWay) < 30 {
				s, _ := w.pick("")
				s.calls++
				underWay = append(underWay, s)
				continue
			}
			i := w.rng.IntN(len(underWay))
			underWay[i].calls--
			underWay = slices.Delete(underWay, i, i+1)
		}
		sum := 0
		for _, m := range w.list.Members() {
			sum += m.Endpoint.chosen
		}
		for i, m := range w.list.Members() {
			expected := float64(sum) * float64(weights[i]) / float64(weights[0]+weights[1]+weights[2])
			if math.Abs(float64(m.Endpoint.chosen)-expected) > float64(sum)/20 {
				t.Errorf("weights %v: %d calls of %d at %d", weights, m.Endpoint.chosen, sum, i)
			}
		}
	}
}

func TestIdleEndpointsHaveTheirTurnsWhateverTheirWeights(t *testing.T) {
	w := newWorld(t, LeastOutstanding, nil, 1, weighted("a", 100), weighted("b", 1), weighted("c", 1))
	want(t, "counts", w.count(300), "a:100 b:100 c:100")
}

// Endpoints come and go at random: one that can be used is chosen within two rounds, by either policy.
func TestNobodyStarvesWhileOthersFlap(t *testing.T) {
	for _, policy := range []Policy{RoundRobin, LeastOutstanding} {
		for seed := range uint64(50) {
			w := newWorld(t, policy, nil, seed, numbered(6)...)
			unchosen := 0
			for range 2000 {
				w.set([]Reach{Ready, Fails, Waits}[w.rng.IntN(3)], fmt.Sprint(1+w.rng.IntN(5)))
				s, _ := w.pick("")
				if unchosen++; s.address == "0" {
					unchosen = 0
				}
				if unchosen > 12 || s.reach != Ready {
					t.Fatalf("seed %d: %s, %d others before", seed, s.address, unchosen)
				}
			}
		}
	}
}

func TestOneToAvoidIsChosenIfThereIsNoOther(t *testing.T) {
	for _, policy := range []Policy{RoundRobin, LeastOutstanding} {
		w := newWorld(t, policy, nil, 1, numbered(3)...)
		for range 30 {
			if s, _ := w.pick("1"); s.address == "1" {
				t.Fatal("the one to avoid was chosen")
			}
		}
		w.set(Fails, "0")
		w.set(Waits, "2")
		s, _ := w.pick("1")
		want(t, "the only one", s.address, "1")
	}
}

// priorities are two of priority 0, two of 1, one of 7, given in another order.
var priorities = []Target{prior("c", 1), prior("e", 7), prior("a", 0), prior("d", 1), prior("b", 0)}

func TestTheHighestPriorityThatCanBeUsedIs(t *testing.T) {
	for _, policy := range []Policy{RoundRobin, LeastOutstanding} {
		w := newWorld(t, policy, nil, 1, priorities...)
		want(t, "all", w.choose(3), "a b a")
		w.set(Fails, "a")
		want(t, "one is enough", w.choose(2), "b b")
		w.set(Waits, "b")
		want(t, "it may come", w.choose(1), "wait")
		w.set(Fails, "b")
		want(t, "the next", w.choose(3), "c d c")
		w.set(Fails, "c", "d")
		want(t, "the last", w.choose(1), "e")
		w.set(Ready, "b")
		want(t, "back at once", w.choose(2), "b b")
		w.set(Fails, "b", "e")
		want(t, "the first one's reason", w.choose(1), "failing a")
		w.set(Ready, "b")
		s, _ := w.pick("b")
		want(t, "a call stays with its priority", s.address, "b")
	}
}

func TestPickFirstGoesThroughTheList(t *testing.T) {
	w := newWorld(t, PickFirst, nil, 1, priorities...)
	want(t, "all", w.choose(2), "a a")
	w.set(Fails, "a")
	want(t, "the next", w.choose(1), "b")
	w.set(Waits, "b")
	want(t, "it may come", w.choose(1), "wait")
	s, _ := w.pick("b")
	want(t, "a call that was there does not wait for it", s.address, "c")
	w.set(Fails, "c", "d", "e")
	w.set(Waits, "a")
	_, why := w.pick("a")
	want(t, "no other", why, "wait")
	w.set(Ready, "a")
	s, _ = w.pick("a")
	want(t, "no other", s.address, "a")
	w = newWorld(t, PickFirst, nil, 1, prior("a", 0), Target{Address: "b", Weight: 1, Unhealthy: true})
	w.set(Waits, "a")
	_, why = w.pick("a")
	want(t, "the one to avoid may come", why, "wait")
}

func TestWhatItsSourceCallsUnhealthyIsNotChosen(t *testing.T) {
	sick := func(address string) Target { return Target{Address: address, Weight: 1, Unhealthy: true} }
	for _, policy := range []Policy{PickFirst, RoundRobin, LeastOutstanding} {
		w := newWorld(t, policy, nil, 1, sick("a"), prior("b", 0), prior("c", 1))
		want(t, "one healthy", w.choose(2), "b b")
		w.replace(sick("a"), sick("b"), prior("c", 1))
		want(t, "none of the first priority", w.choose(1), "c")
		w.replace(sick("a"))
		want(t, "none", w.choose(1), "failing")
	}
}

func TestWhatIsInBothListsStaysTheSame(t *testing.T) {
	w := newWorld(t, RoundRobin, nil, 1)
	want(t, "there is none yet", w.choose(1), "wait")
	w.replace(named("a b c")...)
	b := w.server("b")
	want(t, "first", w.choose(1), "a")
	want(t, "gone", strings.Join(w.replace(named("d b")...), " "), "a c")
	want(t, "the same", w.server("b"), b)
	want(t, "turns go on", w.choose(2), "b d")
	want(t, "gone", strings.Join(w.replace(), " "), "d b")
	want(t, "none", w.choose(1), "wait")
}

func TestAnAddressThatStandsThereTwiceIsTwoEndpoints(t *testing.T) {
	w := newWorld(t, RoundRobin, nil, 1, named("a a b")...)
	numbers := func() (all []int) {
		for _, m := range w.list.Members() {
			all = append(all, m.Endpoint.number)
		}
		return all
	}
	want(t, "made", fmt.Sprint(numbers()), "[0 1 2]")
	want(t, "gone", strings.Join(w.replace(named("b a")...), " "), "a")
	want(t, "kept", fmt.Sprint(numbers()), "[2 0]")
	w.replace(named("a a")...)
	want(t, "made anew", fmt.Sprint(numbers()), "[0 3]")
}

func TestAListOfWhichOneCannotBeMadeChangesNothing(t *testing.T) {
	w := newWorld(t, RoundRobin, nil, 1, named("a")...)
	bad := errors.New("no such address")
	_, err := w.list.Replace(named("b bad"), w.now, func(target *Target, _ *Record) (*server, error) {
		if target.Address == "bad" {
			return nil, bad
		}
		return new(server), nil
	})
	want(t, "error", err, bad)
	want(t, "the list", w.choose(2), "a a")
}

// Lists of random endpoints replace each other while calls are under way, which end at random. The list holds just what it was given, and
// each call is made at an endpoint of it.
func TestListsAreReplacedWhileCallsAreUnderWay(t *testing.T) {
	detection := consecutive()
	detection.MaxEjectionPercent = 50
	for seed := range uint64(100) {
		for _, policy := range []Policy{PickFirst, RoundRobin, LeastOutstanding} {
			w := newWorld(t, policy, &detection, seed)
			var underWay []*server
			for range 500 {
				w.now += time.Duration(w.rng.Int64N(int64(time.Second)))
				switch what := w.rng.IntN(10); {
				case what == 0:
					targets := make([]Target, w.rng.IntN(6))
					for i := range targets {
						targets[i] = Target{Address: fmt.Sprint(w.rng.IntN(8)), Weight: uint32(w.rng.IntN(4)), Priority: uint32(w.rng.IntN(2))}
					}
					w.replace(targets...)
					listed := map[Target]int{}
					for _, m := range w.list.Members() {
						listed[m.Target]++
					}
					for _, target := range targets {
						listed[target]--
					}
					for target, difference := range listed {
						if difference != 0 {
							t.Fatalf("seed %d: %v is %d times more in the list than given", seed, target, difference)
						}
					}
				case what < 5 && len(underWay) > 0:
					i := w.rng.IntN(len(underWay))
					s := underWay[i]
					underWay = slices.Delete(underWay, i, i+1)
					s.calls--
					s.end(w.rng.IntN(3) == 0)
				default:
					s, why := w.pick("")
					if s == nil {
						if (why == "wait") != (len(w.list.Members()) == 0) || why != "wait" && why != "failing" {
							t.Fatalf("seed %d: %s of %d", seed, why, len(w.list.Members()))
						}
						continue
					}
					s.calls++
					underWay = append(underWay, s)
				}
			}
		}
	}
}

func TestSharesOfLocalities(t *testing.T) {
	at := func(weight uint32, name string, of uint32) *Target {
		return &Target{Weight: weight, Locality: &Locality{name, of}}
	}
	plain := func(weight uint32) *Target { return &Target{Weight: weight} }
	sick := at(1, "x", 3)
	sick.Unhealthy = true
	for _, test := range []struct {
		targets []*Target
		want    string
	}{
		{nil, "[]"},
		{[]*Target{plain(3), plain(0), plain(math.MaxUint32)}, "[3 0 4294967295]"},
		{[]*Target{at(1, "x", 3), at(2, "x", 3), at(7, "y", 6), at(1, "z", 0)}, "[1 2 6 0]"},
		{[]*Target{at(1, "x", 1), at(2, "x", 1), at(1, "y", 1)}, "[333333 666667 1000000]"},
		// What gets no calls takes no part of its locality's weight.
		{[]*Target{sick, at(1, "x", 3)}, "[0 3]"},
	} {
		want(t, "shares", fmt.Sprint(shares(test.targets)), test.want)
	}
}

func TestSharesAreKeptInEveryRow(t *testing.T) {
	for _, shares := range [][3]uint32{{5, 1, 1}, {3, 2, 1}, {1, 1, 1}, {7, 3, 2}, {1000, 1, 999}} {
		var turn turn
		var counts, last [3]int
		round := int(shares[0] + shares[1] + shares[2])
		for number := range 10 * round {
			at := turn.nextByShare(3, func(at int) uint32 { return shares[at] })
			counts[at]++
			if waited := number - last[at]; waited > 2*((round+int(shares[at])-1)/int(shares[at]))+3 {
				t.Fatalf("%v: %d waited %d", shares, at, waited)
			}
			last[at] = number
		}
		for at, count := range counts {
			want(t, fmt.Sprint(shares), count, 10*int(shares[at]))
		}
	}
	var turn turn
	if turn.nextByShare(3, func(int) uint32 { return 0 }) >= 0 || turn.next(4, func(int) bool { return false }) >= 0 || turn.next(0, nil) >= 0 {
		t.Error("one was chosen of none")
	}
}

func TestChoosingAllocatesNothing(t *testing.T) {
	for _, policy := range []Policy{PickFirst, RoundRobin, LeastOutstanding} {
		w := newWorld(t, policy, nil, 1, weighted("a", 2), weighted("b", 1))
		look, load := func(s *server) Reach { return s.reach }, func(s *server) uint32 { return s.calls }
		if n := testing.AllocsPerRun(100, func() { w.list.Pick(nil, look, load) }); n > 0 {
			t.Errorf("policy %d: %v allocations", policy, n)
		}
	}
}
