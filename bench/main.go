// Command bench runs a benchmark, with a binary of edge that is built from this tree:
//
//	go run . NAME [FLAG...]
//
// Without a name it lists the benchmarks.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) < 2 {
		if err := list(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // the benchmark gets it, too, and cleans up
	code, err := run(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	os.Exit(code)
}

// list prints the benchmarks.
func list() error {
	out, err := exec.Command("go", "list", "-f", `{{if eq .Name "main"}}{{.ImportPath}} {{.Doc}}{{end}}`, "./...").Output()
	if err != nil {
		return fmt.Errorf("go list, in the directory bench: %w", err)
	}
	fmt.Println("usage: go run . NAME [FLAG...]\n\nNAME -help lists the flags. NAME is one of:")
	for line := range strings.Lines(string(out)) {
		of, doc, _ := strings.Cut(line, " ")
		if name := path.Base(of); name != "bench" {
			fmt.Printf("\n%s\n    %s", name, strings.TrimPrefix(doc, "Command "+name+" "))
		}
	}
	return nil
}

// run builds edge and a benchmark, and runs it with args. It returns the exit status.
func run(name string, args []string) (int, error) {
	if _, err := os.Stat(filepath.Join(name, "main.go")); err != nil {
		return 1, fmt.Errorf("there is no benchmark %s: without a name, go run . lists them", name)
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, name)
	build := command("go", "build", "-o", filepath.Join(dir, "edge"), "./cmd/edge")
	build.Dir = ".."
	if err := errors.Join(build.Run(), command("go", "build", "-o", binary, "./"+name).Run()); err != nil {
		return 1, errors.New("cannot build edge and " + name)
	}
	if err := os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		return 1, err
	}
	err = command(binary, args...).Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}

func command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	return c
}
