package tollfree

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// optionsOf are the exported functions of a package that give options, by their type's name.
func optionsOf(t *testing.T, directory string) (options map[string][]string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(directory, "*.go"))
	wantNoError(t, err)
	options = map[string][]string{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.SkipObjectResolution)
		wantNoError(t, err)
		for _, declared := range file.Decls {
			function, is := declared.(*ast.FuncDecl)
			if !is || function.Recv != nil || !function.Name.IsExported() || function.Type.Results == nil || len(function.Type.Results.List) != 1 {
				continue
			}
			if kind, is := function.Type.Results.List[0].Type.(*ast.Ident); is && strings.HasSuffix(kind.Name, "Option") {
				options[kind.Name] = append(options[kind.Name], function.Name.Name)
			}
		}
	}
	return options
}

// guideRows are the rows of a table in the guide: the names in the first column, and what the second one says.
func guideRows(t *testing.T, guide, title string) (rows map[string]string) {
	t.Helper()
	_, after, found := strings.Cut(guide, "\n## "+title+"\n")
	if !found {
		t.Fatalf("the guide has no section %q", title)
	}
	section, _, _ := strings.Cut(after, "\n## ")
	rows = map[string]string{}
	quoted := regexp.MustCompile("`([A-Za-z0-9]+)`")
	for line := range strings.Lines(section) {
		columns := strings.Split(line, "|")
		if len(columns) != 4 {
			continue
		}
		for _, name := range quoted.FindAllStringSubmatch(columns[1], -1) {
			rows[name[1]] = strings.TrimSpace(columns[2])
		}
	}
	return rows
}

// The guide maps each option of the version of grpc-go that go.mod names, and no other. Where it says that a name is the same, this package has it.
func TestTheGuideMapsEachOptionOfGRPC(t *testing.T) {
	found, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "google.golang.org/grpc").Output()
	wantNoError(t, err)
	text, err := os.ReadFile("../docs/guide/go.md")
	wantNoError(t, err)
	theirs, ours := optionsOf(t, strings.TrimSpace(string(found))), optionsOf(t, ".")
	for kind, title := range map[string]string{"CallOption": "Options of calls", "DialOption": "Options of clients", "ServerOption": "Options of servers"} {
		if len(theirs[kind]) < 10 {
			t.Fatalf("grpc-go has only %d functions that give a %s", len(theirs[kind]), kind)
		}
		rows, known, own := guideRows(t, string(text), title), map[string]bool{}, map[string]bool{}
		for _, name := range ours[kind] {
			own[name] = true
		}
		for _, name := range theirs[kind] {
			known[name] = true
			switch said, listed := rows[name]; {
			case !listed:
				t.Errorf("docs/guide/go.md does not say what becomes of %s", name)
			case kind != "CallOption" && strings.HasPrefix(said, "the same name") != own[name]:
				t.Errorf("docs/guide/go.md says of %s %q, and this package has the name: %v", name, said, own[name])
			}
		}
		for name := range rows {
			// Types of other packages' options are in the same column.
			if !known[name] && name != "grpc" {
				t.Errorf("docs/guide/go.md lists %s, which grpc-go does not have", name)
			}
		}
	}
}
