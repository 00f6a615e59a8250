// Command ran reads the output of "go test -json" and prints it for a person. It
// requires that exactly the tests of test/testlist.txt ran. The run fails if a test is
// missing, was skipped, or is not in the list. ran must be started in the module's root.
// At the end ran repeats the last lines of each failed test, because a log may be cut in its
// middle.
//
//	go run ./test/ran test -count=1 ./...
//	go test -json ./... | go run ./test/ran
//	go test -json ./offload/... | go run ./test/ran -only offload/...
//	go run ./test/ran -update
//
// With "test", ran runs go test itself with the arguments after "test". It prints go
// test's output, with one line for each skipped test. It returns go test's exit code
// and ignores the list.
//
// With -only DIR[,DIR], the list counts only within these directories (DIR/... includes
// those below). Elsewhere tests may be skipped or missing, but must not fail. With
// -update, ran writes the list anew from the output of go test -list.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
)

const (
	module   = "github.com/stag-rdma/stag"
	listFile = "test/testlist.txt"
)

func main() {
	update := flag.Bool("update", false, "write "+listFile+" anew")
	only := flag.String("only", "", "comma list of directories whose tests count; empty means all")
	flag.Parse()
	if flag.Arg(0) == "test" {
		// go test also gets Ctrl-C and ends its tests. ran waits for that.
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
		os.Exit(goTest(flag.Args()[1:], os.Stdout, os.Stderr))
	}
	run := func() error { return check(os.Stdin, os.Stdout, *only) }
	if *update {
		run = rewrite
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "ran:", err)
		os.Exit(1)
	}
}

// check compares the run on r with the list.
func check(r io.Reader, w io.Writer, only string) error {
	content, err := os.ReadFile(listFile)
	if err != nil {
		return err
	}
	list, err := parseList(string(content))
	if err != nil {
		return fmt.Errorf("%s: %w", listFile, err)
	}
	p := printer{w: w}
	if err := p.follow(r); err != nil {
		return err
	}
	p.slowest(40)
	p.again()
	complaints := compare(list, p.seen, only)
	for _, c := range complaints {
		fmt.Fprintln(w, "ran:", c)
	}
	if len(complaints) > 0 {
		return fmt.Errorf("%d complaints about the tests that ran", len(complaints))
	}
	fmt.Fprintf(w, "ran: all %d tests that must run did, and none failed\n", list.count(only))
	return nil
}

// rewrite writes the list of all tests that go test finds.
func rewrite() error {
	cmd := exec.Command("go", "test", "-list", "^(Test|Fuzz|Example)", "-json", "./...")
	cmd.Stderr = os.Stderr
	out, failure := cmd.Output()
	list, err := listed(bytes.NewReader(out), os.Stderr)
	if err := errors.Join(failure, err); err != nil {
		return fmt.Errorf("list the tests, which must all build: %w", err)
	}
	fmt.Printf("ran: %d tests\n", len(list))
	return os.WriteFile(listFile, []byte(list.String()), 0o644)
}
