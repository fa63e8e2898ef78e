package session

import (
	"strings"
	"testing"

	"github.com/tollfree/tollfree/go/internal/spec"
	"github.com/tollfree/tollfree/go/internal/wire"
)

var phaseNames = map[string]Phase{
	"Asking": Asking, "Asked": Asked, "Talking": Talking, "Listening": Listening, "Hearing": Hearing, "Heard": Heard,
	"Conversing": Conversing, "Answering": Answering, "Over": Over,
}

var columns = []string{
	"?HEADERS", "?MESSAGE", "?HALF_CLOSE", "?TRAILERS", "?CANCEL", "!HEADERS", "!MESSAGE", "!HALF_CLOSE", "!TRAILERS", "!CANCEL",
}

// TestTransitionsAreTheDocuments compares every cell of section 9's tables, but for ended streams: what comes for one never
// reaches its state.
func TestTransitionsAreTheDocuments(t *testing.T) {
	cells := 0
	rows, err := spec.Table("## 9. Streams", "state")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[1:] {
		from, known := phaseNames[row[0]]
		if !known {
			t.Fatalf("a state %q", row[0])
		}
		if from == Over {
			continue
		}
		for at, cell := range row[1:] {
			name := rows[0][at+1]
			if name == "?CREDIT" {
				if cell != row[0] {
					t.Errorf("CREDIT leads from %s to %s", row[0], cell)
				}
				continue
			}
			event := Event(indexOf(t, name))
			state := State{phase: from}
			did := state.Do(event)
			want, may := phaseNames[cell]
			// A sender says HEADERS and more in one frame; the table has its whole messages begin with HEADERS.
			if did != may || may && state.phase != want || !did && state.phase != from {
				t.Errorf("%s in %s: did %v, now %d; the document says %s", name, row[0], did, state.phase, cell)
			}
			cells++
		}
	}
	if cells != 8*int(eventCount) {
		t.Errorf("%d cells were compared", cells)
	}
}

func indexOf(t *testing.T, name string) int {
	for i, column := range columns {
		if column == strings.TrimSpace(name) {
			return i
		}
	}
	t.Fatalf("an event %q", name)
	return 0
}

func TestChunksMakeWholeMessages(t *testing.T) {
	state := Opened(wire.Server)
	steps := []struct {
		first, last bool
		n, message  uint32
		want        bool
	}{
		{true, false, 3, 5, true},
		{true, true, 2, 2, false},
		{false, true, 3, 0, false},
		{false, false, 0, 0, false},
		{false, true, 1, 0, false},
		{false, false, 2, 0, false},
		{false, true, 2, 0, true},
		{false, true, 1, 0, false},
		{true, false, 0, 4, false},
		{true, true, 0, 0, true},
	}
	for i, step := range steps {
		if got := state.HeardChunk(step.first, step.last, step.n, step.message); got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
		if i == 0 && (state.Do(HeardHalfClose) || state.BetweenHeard() || state.HeardOK()) {
			t.Error("a stream may end within a message")
		}
	}
	if !state.Do(HeardHalfClose) {
		t.Error("a stream may not end between messages")
	}
}
