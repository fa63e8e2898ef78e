package outside

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// listed are the tests of docs/grpc-go.md, by their package below google.golang.org/grpc.
func listed(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/grpc-go.md")
	wantNoError(t, err)
	tests, count := map[string][]string{}, 0
	for _, row := range regexp.MustCompile("(?m)^- `([a-z]+)`: ((?:`\\w+`,?\\s+)+)").FindAllStringSubmatch(string(text), -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[2], -1) {
			tests[row[1]] = append(tests[row[1]], name[1])
			count++
		}
	}
	if count < 40 {
		t.Fatalf("%d tests are listed", count)
	}
	return tests
}

// patched is a copy of the module google.golang.org/grpc whose stub server is ours, and a go.mod that uses it.
func patched(t *testing.T) (modfile string) {
	t.Helper()
	directory := t.TempDir()
	out, err := exec.Command("go", "list", "-m", "-json", "google.golang.org/grpc").Output()
	wantNoError(t, err)
	var module struct{ Dir string }
	wantNoError(t, json.Unmarshal(out, &module))
	source := filepath.Join(directory, "grpc-go")
	wantNoError(t, os.CopyFS(source, os.DirFS(module.Dir)))
	ours, err := os.ReadFile("testdata/stubserver.go")
	wantNoError(t, err)
	wantNoError(t, os.WriteFile(filepath.Join(source, "internal/stubserver/stubserver.go"), ours, 0o600))
	mod, err := os.ReadFile("go.mod")
	wantNoError(t, err)
	here, err := filepath.Abs("..")
	wantNoError(t, err)
	changed := strings.Replace(string(mod), "=> ../", "=> "+here, 1) + "\nreplace google.golang.org/grpc => " + source + "\n"
	modfile = filepath.Join(directory, "go.mod")
	wantNoError(t, os.WriteFile(modfile, []byte(changed), 0o600))
	sums, err := os.ReadFile("go.sum")
	wantNoError(t, err)
	wantNoError(t, os.WriteFile(filepath.Join(directory, "go.sum"), sums, 0o600))
	return modfile
}

// TestTestsOfGRPCGo runs grpc-go's own end-to-end tests, as they are. Each has to pass, and to make calls through shared memory.
func TestTestsOfGRPCGo(t *testing.T) {
	modfile := patched(t)
	for name, tests := range listed(t) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			command := exec.CommandContext(ctx, "go", "test", "-modfile="+modfile, "-mod=mod", "-count=1", "-v", "-timeout=5m",
				fmt.Sprintf("-run=^Test$/^(%s)$", strings.Join(tests, "|")), "google.golang.org/grpc/"+name)
			// Its end says nothing new.
			out, _ := command.CombinedOutput()
			passed, calls := outcomes(string(out))
			for _, test := range tests {
				switch {
				case !passed[test]:
					t.Errorf("%s has not passed", test)
				case calls[test] == 0:
					t.Errorf("%s has made no call through shared memory", test)
				}
			}
			if t.Failed() {
				t.Logf("%s", out)
			}
		})
	}
}

// outcomes tells of each test whether it has passed, and how many calls it has made through shared memory.
func outcomes(out string) (passed map[string]bool, calls map[string]int) {
	passed, calls = map[string]bool{}, map[string]int{}
	current := ""
	began := regexp.MustCompile(`^=== (?:RUN|CONT|NAME)\s+Test/(\w+)`)
	ended := regexp.MustCompile(`^    --- PASS: Test/(\w+) `)
	made := regexp.MustCompile(`^(\d+) calls through shared memory$`)
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		if m := began.FindStringSubmatch(line); m != nil {
			current = m[1]
		} else if m := ended.FindStringSubmatch(line); m != nil {
			passed[m[1]] = true
		} else if m := made.FindStringSubmatch(line); m != nil {
			count, _ := strconv.Atoi(m[1])
			calls[current] += count
		}
	}
	return passed, calls
}
