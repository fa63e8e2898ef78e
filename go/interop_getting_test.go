//go:build interop

package tollfree

import (
	"archive/zip"
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// gotVersion is the version by which a test's proxy has this module.
const gotVersion = "v0.0.1"

// modulePath is what go.mod says.
func modulePath(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(line, "module ")
}

// proxy makes a module proxy in a directory that has this module alone, as it is here.
func proxy(t *testing.T, path string) (directory string) {
	t.Helper()
	directory = t.TempDir()
	versions := filepath.Join(directory, filepath.FromSlash(path), "@v")
	if err := os.MkdirAll(versions, 0o700); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	files := zip.NewWriter(&archive)
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && name != "." {
			// A directory with a module of its own is left out, as by a proxy.
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				return fs.SkipDir
			}
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := files.Create(path + "@" + gotVersion + "/" + name)
		if err != nil {
			return err
		}
		_, err = file.Write(content)
		return err
	})
	if err != nil || files.Close() != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"list": []byte(gotVersion + "\n"), gotVersion + ".mod": mod, gotVersion + ".zip": archive.Bytes(),
		gotVersion + ".info": []byte(`{"Version": "` + gotVersion + `", "Time": "2026-01-01T00:00:00Z"}`),
	} {
		if err := os.WriteFile(filepath.Join(versions, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

// gotProgram is a client as README has it, of the service of gRPC's cases.
const gotProgram = `package main

import (
	"context"
	"fmt"
	"os"

	tollfree "MODULE"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
)

func main() {
	conn, err := tollfree.NewClient(os.Args[1])
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	request := &pb.SimpleRequest{ResponseSize: 7}
	reply, err := pb.NewTestServiceClient(conn).UnaryCall(context.Background(), request, grpc.WaitForReady(true))
	if err != nil {
		panic(err)
	}
	fmt.Println(len(reply.Payload.Body))
}
`

// In an empty directory, go get of the module and a few lines make a program that calls a server in Rust. What the module needs comes out of the cache in
// which it is for this test, too.
func TestAProgramGetsTheModule(t *testing.T) {
	path := modulePath(t)
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	downloads := filepath.Join(strings.TrimSpace(string(cache)), "cache", "download")
	directory := t.TempDir()
	// A module cache of its own: this version of the module is the test's.
	own := filepath.Join(t.TempDir(), "modules")
	environment := append(os.Environ(), "GOPROXY=file://"+proxy(t, path)+",file://"+downloads, "GOMODCACHE="+own, "GOFLAGS=-modcacherw", "GONOSUMDB=*",
		"GOSUMDB=off", "GOWORK=off", "CGO_ENABLED=0")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	run := func(arguments ...string) string {
		t.Helper()
		command := exec.CommandContext(ctx, arguments[0], arguments[1:]...)
		command.Dir, command.Env = directory, environment
		var said bytes.Buffer
		command.Stderr = &said
		out, err := command.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(arguments, " "), err, said.String())
		}
		return string(out)
	}
	run("go", "mod", "init", "example.com/first")
	run("go", "get", path+"@"+gotVersion)
	if err := os.WriteFile(filepath.Join(directory, "main.go"), []byte(strings.Replace(gotProgram, "MODULE", path, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	run("go", "build", "-trimpath", "-o", "first", ".")

	if got := run(filepath.Join(directory, "first"), rustServer(t)); got != "7\n" {
		t.Errorf("the program says %q", got)
	}
}
