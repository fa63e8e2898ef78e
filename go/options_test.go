package tollfree

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// methodsOf are the exported methods of a package's types, by the type's name.
func methodsOf(t *testing.T, directory string) (methods map[string][]string) {
	t.Helper()
	methods = map[string][]string{}
	for _, function := range functionsOf(t, directory) {
		if function.Recv == nil || !function.Name.IsExported() {
			continue
		}
		if of, is := function.Recv.List[0].Type.(*ast.StarExpr); is {
			if name, is := of.X.(*ast.Ident); is {
				methods[name.Name] = append(methods[name.Name], function.Name.Name)
			}
		}
	}
	return methods
}

// optionsOf are the exported functions of a package that give options, by their type's name.
func optionsOf(t *testing.T, directory string) (options map[string][]string) {
	t.Helper()
	options = map[string][]string{}
	for _, function := range functionsOf(t, directory) {
		if function.Recv != nil || !function.Name.IsExported() || function.Type.Results == nil || len(function.Type.Results.List) != 1 {
			continue
		}
		if kind, is := function.Type.Results.List[0].Type.(*ast.Ident); is && strings.HasSuffix(kind.Name, "Option") {
			options[kind.Name] = append(options[kind.Name], function.Name.Name)
		}
	}
	return options
}

// functionsOf are the functions and methods of a package.
func functionsOf(t *testing.T, directory string) (functions []*ast.FuncDecl) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(directory, "*.go"))
	wantNoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.SkipObjectResolution)
		wantNoError(t, err)
		for _, declared := range file.Decls {
			if function, is := declared.(*ast.FuncDecl); is {
				functions = append(functions, function)
			}
		}
	}
	return functions
}

// grpcDirectory is where the version of grpc-go that go.mod names lies, and guideText what the guide says.
func grpcDirectory(t *testing.T) string {
	t.Helper()
	found, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "google.golang.org/grpc").Output()
	wantNoError(t, err)
	return strings.TrimSpace(string(found))
}

func guideText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/guide/go.md")
	wantNoError(t, err)
	return string(text)
}

// What grpc-go's connections and servers can do, ours can do too, or the guide says that they can't.
func TestTheGuideNamesMethodsThatAreMissing(t *testing.T) {
	theirs, ours := methodsOf(t, grpcDirectory(t)), methodsOf(t, ".")
	rows := guideRows(t, guideText(t), "What differs from grpc-go")
	for _, kind := range []string{"ClientConn", "Server"} {
		if len(theirs[kind]) < 5 {
			t.Fatalf("grpc-go's %s has only %d methods", kind, len(theirs[kind]))
		}
		for _, name := range theirs[kind] {
			if has := slices.Contains(ours[kind], name); has == (rows[name] != "") {
				t.Errorf("%s.%s: this package has it: %v; the guide says %q", kind, name, has, rows[name])
			}
		}
	}
}

// guideRows are the rows of a table in the guide: the names in the first column, and what the last one says.
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
		if len(columns) < 4 {
			continue
		}
		for _, name := range quoted.FindAllStringSubmatch(columns[1], -1) {
			rows[name[1]] = strings.TrimSpace(columns[len(columns)-2])
		}
	}
	return rows
}

// The guide maps each option of the version of grpc-go that go.mod names, and no other. Where it says that a name is the same, this package has it.
func TestTheGuideMapsEachOptionOfGRPC(t *testing.T) {
	text := guideText(t)
	theirs, ours := optionsOf(t, grpcDirectory(t)), optionsOf(t, ".")
	for kind, title := range map[string]string{"CallOption": "Options of calls", "DialOption": "Options of clients", "ServerOption": "Options of servers"} {
		if len(theirs[kind]) < 10 {
			t.Fatalf("grpc-go has only %d functions that give a %s", len(theirs[kind]), kind)
		}
		rows, known, own := guideRows(t, text, title), map[string]bool{}, map[string]bool{}
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
