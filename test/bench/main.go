// Command bench compares stag with the kernel's TCP and with AF_XDP without a TCP.
//
//	go run ./test/bench --help
//
// bench is a program of its own. The plotting library, and the AF_XDP library that stag
// is compared with, are therefore not linked into the command stag.
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

// These are the exit codes: 1 if something failed, 2 if the command line is wrong.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func main() {
	// SIGPIPE is ignored so that a write to a closed pipe returns an error. The program
	// then ends as after Ctrl-C, and removes its namespaces first.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := command().ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(err))
}

// exitCode prints the error as one line on standard error and returns the exit code.
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
