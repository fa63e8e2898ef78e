// Package spec reads the tables of spec/wire.md, for tests that compare code with them.
package spec

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Table gives the rows of the tables from a heading of wire.md to the section's end whose first header cell is name, the first row being the
// headers: cells without their backticks.
//
// Errors: there is no such table.
func Table(heading, name string) ([][]string, error) {
	_, here, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(here), "../../../spec/wire.md"))
	if err != nil {
		return nil, err
	}
	_, under, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		return nil, fmt.Errorf("wire.md has no heading %q", heading)
	}
	var rows [][]string
	inTable, wanted := false, false
	for line := range strings.Lines(under) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "## ") {
			break
		}
		if !strings.HasPrefix(line, "|") {
			inTable = false
			continue
		}
		cells := strings.Split(strings.ReplaceAll(strings.Trim(line, "|"), "`", ""), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if !inTable {
			inTable, wanted = true, cells[0] == name
			if wanted && rows != nil {
				continue
			}
		}
		if wanted && !strings.HasPrefix(cells[0], "--") {
			rows = append(rows, cells)
		}
	}
	if len(rows) < 2 {
		return nil, fmt.Errorf("wire.md has no table %q under %q", name, heading)
	}
	return rows, nil
}
