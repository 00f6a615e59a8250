package main

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
)

// goTest runs go test with these arguments and returns its exit code. It writes go
// test's output to w and errw, with one line for each skipped test. With -json among
// the arguments, it writes the events unchanged to w.
func goTest(args []string, w, errw io.Writer) int {
	if has(args, "json") {
		cmd := exec.Command("go", append([]string{"test"}, args...)...)
		cmd.Stdout, cmd.Stderr = w, errw
		return code(cmd.Run(), errw)
	}
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = errw
	out, err := cmd.StdoutPipe()
	if err != nil {
		return code(err, errw)
	}
	if err := cmd.Start(); err != nil {
		return code(err, errw)
	}
	p := printer{w: w, verbose: has(args, "v")}
	err = p.follow(out)
	p.again()
	if p.skips > 0 {
		fmt.Fprintf(w, "%d tests and cases were skipped: the lines that begin with SKIP say why\n", p.skips)
	}
	return code(errors.Join(err, cmd.Wait()), errw)
}

// has reports whether a flag of go test is set.
func has(args []string, name string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		return slices.Contains([]string{"-" + name, "--" + name, "-" + name + "=true", "-test." + name}, a)
	})
}

// code returns the exit code of a command that ended with err. It prints an error that
// is no exit code.
func code(err error, errw io.Writer) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	}
	fmt.Fprintln(errw, "ran:", err)
	return 1
}
