package balancer

import (
	"fmt"
	"testing"
	"time"
)

func percentage() OutlierDetection {
	d := DefaultOutlierDetection()
	d.MaxEjectionPercent = 100
	rule := DefaultFailurePercentage()
	rule.MinimumHosts, rule.RequestVolume = 1, 1
	d.FailurePercentage = &rule
	return d
}

func rate() OutlierDetection {
	d := DefaultOutlierDetection()
	d.MaxEjectionPercent = 100
	rule := DefaultSuccessRate()
	d.SuccessRate = &rule
	return d
}

func consecutive() OutlierDetection {
	d := DefaultOutlierDetection()
	d.MaxEjectionPercent = 100
	rule := DefaultConsecutiveFailures()
	d.ConsecutiveFailures = &rule
	return d
}

func watched(t testing.TB, n int, d OutlierDetection) *world {
	return newWorld(t, RoundRobin, &d, 7, numbered(n)...)
}

func TestTheDefaultsAreThoseOfA50(t *testing.T) {
	d := DefaultOutlierDetection()
	want(t, "times", [3]time.Duration{d.Interval, d.BaseEjectionTime, d.MaxEjectionTime}, [3]time.Duration{10 * time.Second, 30 * time.Second, 300 * time.Second})
	want(t, "percent", d.MaxEjectionPercent, 10)
	want(t, "rate", DefaultSuccessRate(), SuccessRateEjection{StdevFactor: 1900, EnforcementPercentage: 100, MinimumHosts: 5, RequestVolume: 100})
	want(t, "percentage", DefaultFailurePercentage(), FailurePercentageEjection{Threshold: 85, EnforcementPercentage: 100, MinimumHosts: 5, RequestVolume: 50})
	for _, on := range []OutlierDetection{rate(), percentage(), consecutive()} {
		want(t, "on", on.On(), true)
	}
	want(t, "on without a rule", d.On(), false)
	w := watched(t, 1, d)
	if w.server("0").record != nil || w.list.Detecting() || w.list.Due(1<<62) {
		t.Error("calls are counted without a rule")
	}
}

// The time is the base time multiplied with the number of ejections, and the longest time at most; the number falls in each sweep that finds
// the endpoint in use.
func TestEjectionsLastAsA50Says(t *testing.T) {
	d := percentage()
	d.MaxEjectionTime = 70 * time.Second
	w := watched(t, 2, d)
	fails := map[int]bool{10: true, 50: true, 120: true, 210: true, 220: true}
	for second := 10; second <= 400; second += 10 {
		if fails[second] {
			w.end("0", 0, 9)
		}
		w.interval()
	}
	// For 30 s, for 60 s, for 90 s but no more than 70; the sweep at 200 makes three of it two, so the next is the third again.
	want(t, "history", w.history(), "10 ejected, 40 returned, 50 ejected, 110 returned, 120 ejected, 190 returned, 210 ejected, 280 returned")
	want(t, "event", w.events[2].Event, Event{"0", ByFailurePercentage, 60 * time.Second})
	// After 120 s in use nothing is left of three ejections.
	w.end("0", 0, 9)
	w.interval()
	want(t, "the next", w.events[len(w.events)-1].For, 30*time.Second)
}

func TestABaseTimeAboveTheLongestCounts(t *testing.T) {
	d := percentage()
	d.BaseEjectionTime, d.MaxEjectionTime = 40*time.Second, 20*time.Second
	w := watched(t, 1, d)
	w.end("0", 0, 1)
	for range 10 {
		w.interval()
	}
	want(t, "history", w.history(), "10 ejected, 50 returned")
}

// Who asks late finds what sweeps in time would have made of it.
func TestSweepsThatComeLateDecideAsThoseInTime(t *testing.T) {
	for late := 1; late < 40; late++ {
		inTime, tooLate := watched(t, 3, percentage()), watched(t, 3, percentage())
		both := []*world{inTime, tooLate}
		for _, w := range both {
			for range 3 {
				w.end("0", 0, 9)
				w.interval()
				w.now += 40 * time.Second
				w.sweep()
			}
			w.end("1", 0, 9)
		}
		for range late {
			inTime.interval()
		}
		tooLate.now += time.Duration(late)*10*time.Second + 3*time.Second
		tooLate.sweep()
		want(t, fmt.Sprint("ejected after ", late), tooLate.ejected(), inTime.ejected())
		// What is next shows the numbers of ejections.
		for _, w := range both {
			w.end("0", 0, 9)
			w.end("1", 0, 9)
			w.interval()
		}
		want(t, fmt.Sprint("next after ", late), tooLate.events[len(tooLate.events)-1].Event, inTime.events[len(inTime.events)-1].Event)
	}
}

func TestMoreThanTheThresholdHasToFail(t *testing.T) {
	for failures, ejected := range map[int]string{85: "", 86: "0"} {
		w := watched(t, 2, percentage())
		w.end("0", 100-failures, failures)
		w.interval()
		want(t, fmt.Sprint(failures), w.ejected(), ejected)
	}
}

func TestEndpointsWithFewCallsAndFewEndpointsAreLeftAlone(t *testing.T) {
	d := percentage()
	d.FailurePercentage.MinimumHosts, d.FailurePercentage.RequestVolume = 3, 50
	for _, test := range []struct {
		calls   [3]int
		ejected string
	}{{[3]int{50, 50, 50}, "0"}, {[3]int{50, 50, 49}, ""}, {[3]int{49, 50, 50}, ""}} {
		w := watched(t, 3, d)
		w.end("0", 0, test.calls[0])
		w.end("1", test.calls[1], 0)
		w.end("2", test.calls[2], 0)
		w.interval()
		want(t, fmt.Sprint(test.calls), w.ejected(), test.ejected)
		// Calls of one interval don't count in the next.
		w.end("0", 0, 49)
		w.end("1", 49, 0)
		w.end("2", 49, 0)
		w.interval()
		want(t, fmt.Sprint("after ", test.calls), w.ejected(), test.ejected)
	}
}

func TestASuccessRateFarBelowTheOthersIsAnOutlier(t *testing.T) {
	// Rates of 100 % at four, and r at the fifth: the limit by a factor of 1.9 is 4 + 0.96 r, and r is below it as long as it is below 100.
	w := watched(t, 5, rate())
	for _, address := range []string{"0", "1", "2", "3"} {
		w.end(address, 100, 0)
	}
	w.end("4", 99, 1)
	w.interval()
	want(t, "ejected", w.ejected(), "4")
	want(t, "cause", w.events[0].Cause, BySuccessRate)
}

func TestRatesThatDifferLittleForTheirSpreadAreNone(t *testing.T) {
	w := watched(t, 6, rate())
	for i, failures := range []int{0, 0, 0, 50, 50, 50} {
		w.end(fmt.Sprint(i), 100-failures, failures)
	}
	w.interval()
	want(t, "spread", w.ejected(), "")
	// Equal rates, whose mean can't be computed exactly.
	for failures := 1; failures < 100; failures++ {
		w := watched(t, 7, rate())
		for i := range 7 {
			w.end(fmt.Sprint(i), 100, failures)
		}
		w.interval()
		want(t, fmt.Sprint("equal ", failures), w.ejected(), "")
	}
	// Four with enough calls are too few.
	w = watched(t, 5, rate())
	for _, address := range []string{"0", "1", "2"} {
		w.end(address, 100, 0)
	}
	w.end("3", 0, 100)
	w.end("4", 99, 0)
	w.interval()
	want(t, "few", w.ejected(), "")
}

func TestConsecutiveFailuresEjectBeforeTheNextCall(t *testing.T) {
	w := watched(t, 2, consecutive())
	w.end("0", 0, 4)
	w.end("0", 1, 4)
	want(t, "due", w.list.Due(w.now), false)
	w.end("0", 0, 1)
	want(t, "due after five since the last success", w.list.Due(w.now), true)
	want(t, "calls", w.count(20), "1:20")
	want(t, "ejected", w.ejected(), "0")
	// Calls that were under way fail as well: they prolong nothing, and do not count when it is back.
	w.end("0", 0, 4)
	for range 4 {
		w.interval()
	}
	want(t, "history", w.history(), "0 ejected, 30 returned")
	w.end("0", 0, 4)
	want(t, "due", w.list.Due(w.now), false)
}

func TestFailuresThatCouldEjectNobodyAreForgotten(t *testing.T) {
	d := consecutive()
	d.MaxEjectionPercent = 50
	w := watched(t, 2, d)
	w.end("1", 0, 5)
	w.sweep()
	// No other may be ejected now.
	w.end("0", 0, 5)
	w.sweep()
	want(t, "ejected", w.ejected(), "1")
	for range 3 {
		w.interval()
	}
	want(t, "ejected", w.ejected(), "")
	w.end("1", 0, 5)
	w.sweep()
	want(t, "the failures of the other are long past", w.ejected(), "1")
}

func TestAnIntervalOfNothingIsAShortOne(t *testing.T) {
	d := percentage()
	d.Interval = 0
	w := watched(t, 1, d)
	w.end("0", 0, 1)
	w.now += time.Second
	w.sweep()
	want(t, "ejected", w.ejected(), "0")
}

func TestAllMayBeEjectedWhereTheConfigSaysSoAndReturn(t *testing.T) {
	for _, d := range []OutlierDetection{consecutive(), percentage()} {
		w := watched(t, 3, d)
		for _, m := range w.list.Members() {
			m.Endpoint.fails = 100
		}
		w.count(30)
		w.interval()
		want(t, "ejected", w.ejected(), "0 1 2")
		want(t, "choice", w.choose(1), "failing")
		at, ok := w.list.Returns()
		if !ok || at <= w.now || at > w.now+10*time.Second {
			t.Errorf("they return at %v, %v", at, ok)
		}
		w.now += 30 * time.Second
		want(t, "calls", w.count(3), "0:1 1:1 2:1")
		_, ok = w.list.Returns()
		want(t, "return", ok, false)
	}
}

// Servers fail in any order: of each priority's endpoints no more than the share are ejected at a time, or one.
func TestNeverMoreThanTheShareAreEjected(t *testing.T) {
	for seed := range uint64(60) {
		percent := []int{0, 1, 10, 34, 50, 99}[seed%6]
		d := percentage()
		d.MaxEjectionPercent = uint32(percent)
		d.SuccessRate, d.ConsecutiveFailures = rate().SuccessRate, consecutive().ConsecutiveFailures
		d.SuccessRate.RequestVolume = 5
		w := newWorld(t, RoundRobin, &d, seed)
		count := 2 + w.rng.IntN(9)
		w.replace(numbered(count)...)
		most := (percent*count + 99) / 100
		for range 3000 {
			if w.rng.IntN(50) == 0 {
				w.server(fmt.Sprint(w.rng.IntN(count))).fails = []int{0, 50, 90, 100}[w.rng.IntN(4)]
			}
			w.now += time.Duration(w.rng.Int64N(int64(time.Second / 4)))
			s, _ := w.call()
			ejected := 0
			for _, m := range w.list.Members() {
				if m.Ejected() {
					ejected++
				}
			}
			if s == nil && most != count || ejected > most {
				t.Fatalf("seed %d: %d of %d are ejected at %d %%", seed, ejected, count, percent)
			}
		}
		want(t, fmt.Sprint("any ejected by seed ", seed), len(w.events) > 0, percent > 0)
	}
}

// A server that fails and recovers by turns is ejected each time, and the times between grow up to the longest.
func TestOneThatFlapsIsEjectedForLongerAndLonger(t *testing.T) {
	w := watched(t, 3, consecutive())
	for i := range 14 {
		w.server("0").fails = 100
		for w.ejected() == "" {
			w.call()
		}
		since := w.now
		w.server("0").fails = 0
		for w.ejected() != "" {
			w.now += time.Second
			if _, succeeds := w.call(); !succeeds {
				t.Fatal("a call fails")
			}
		}
		want(t, fmt.Sprint("time ", i+1), w.now-since, min(time.Duration(i+1)*30*time.Second, 300*time.Second))
	}
}

func TestEnforcementEjectsInSoManyOfAHundredCases(t *testing.T) {
	enforced := func(percent uint32) (count int) {
		for seed := range uint64(1000) {
			d := percentage()
			d.FailurePercentage.EnforcementPercentage = percent
			w := newWorld(t, RoundRobin, &d, seed, NewTarget("0"))
			w.end("0", 0, 1)
			w.interval()
			count += len(w.ejected())
		}
		return count
	}
	want(t, "never", enforced(0), 0)
	want(t, "always", enforced(100), 1000)
	if third := enforced(33); third < 280 || third > 380 {
		t.Errorf("%d of 1000 at 33 %%", third)
	}
}

func TestAPriorityAllOfWhichIsEjectedFailsOverUntilItReturns(t *testing.T) {
	d := consecutive()
	d.ConsecutiveFailures.Threshold = 3
	w := newWorld(t, RoundRobin, &d, 1, priorities...)
	w.server("a").fails, w.server("b").fails = 100, 100
	want(t, "calls", w.count(6), "a:3 b:3")
	want(t, "the next", w.choose(2), "c d")
	want(t, "ejected", w.ejected(), "a b")
	w.now += 30 * time.Second
	want(t, "back", w.choose(2), "a b")
}

func TestTurnsAndIntervalsOfAPriorityGoOn(t *testing.T) {
	d := percentage()
	w := newWorld(t, RoundRobin, &d, 1, prior("a", 0), prior("c", 1), prior("d", 1))
	want(t, "first", w.choose(1), "a")
	w.set(Fails, "a")
	want(t, "next", w.choose(1), "c")
	w.end("c", 0, 1)
	w.now += 5 * time.Second
	w.replace(prior("c", 1), prior("d", 1))
	want(t, "turns go on", w.choose(1), "d")
	// The sweep is due where it was, and the next one too, though this one comes late.
	w.now += 8 * time.Second
	w.sweep()
	want(t, "ejected", w.ejected(), "c")
	w.now += 7*time.Second - 1
	want(t, "due early", w.list.Due(w.now), false)
	want(t, "due", w.list.Due(w.now+1), true)
}

func TestAnEjectionLastsAcrossListsAndEndsWithTheAddress(t *testing.T) {
	d := consecutive()
	d.MaxEjectionPercent = 50
	w := newWorld(t, RoundRobin, &d, 1, named("a b")...)
	w.server("a").fails = 100
	w.count(10)
	w.sweep()
	want(t, "ejected", w.ejected(), "a")
	late := w.server("a")
	w.replace(named("b a c")...)
	want(t, "ejected in the next list", w.ejected(), "a")
	w.replace(named("b c")...)
	// A call that was under way there ends; nobody minds.
	late.end(false)
	w.replace(named("b a c")...)
	want(t, "a new one", w.ejected(), "")
	w.now += 100 * time.Second
	w.sweep()
	want(t, "nobody has to return", w.history(), "0 ejected")
}
