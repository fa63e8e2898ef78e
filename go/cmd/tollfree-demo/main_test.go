package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain has this program be the demo's server where the demo starts it so.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "-serve" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheDemoMakesItsCallsOverBothTransports(t *testing.T) {
	var out bytes.Buffer
	if err := demo(&out, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for words, times := range map[string]int{"Hello, Ada!": 2, "Bonjour, Barbara!": 2, "InvalidArgument": 2, "p99": 2, "the kernel shows": 2} {
		if n := strings.Count(out.String(), words); n != times {
			t.Errorf("%q is there %d times, not %d:\n%s", words, n, times, out.String())
		}
	}
}
