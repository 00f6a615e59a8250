// Command bench measures stag beside the kernel's TCP and AF_XDP alone.
//
//	go run ./test/bench --help
//
// It is a program of its own, so that the plotting library and the AF_XDP library that it
// measures stag against are not linked into the command stag.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Exit codes: 1, something failed; 2, the command line is wrong.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func main() {
	// A terminal that closes ends the program as Ctrl-C does: it removes its namespaces
	// first. A write to a pipe without a reader returns an error.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := command().ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(err))
}

// exitCode prints the error on one line of standard error, and returns the exit code.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "bench:", strings.ReplaceAll(err.Error(), "\n", "; "))
	if usage := (usageError{}); errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}
