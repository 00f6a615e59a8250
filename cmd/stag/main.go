// Command stag is the tool of the stag software RNIC.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes: 1, something failed; 2, the command line is wrong.
const (
	exitFailed = 1
	exitUsage  = 2
)

// errFailed ends the program with exitFailed although all has been said.
var errFailed = errors.New("failed")

// usageError is a mistake on the command line.
type usageError struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(err))
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stag",
		Short: "A software RNIC: live TCP connections, moved from the kernel into AF_XDP",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usageError{fmt.Errorf("unknown command %q: see stag --help", args[0])}
		},
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.AddCommand(demoCommand())
	return cmd
}

// exitCode says on standard error what went wrong, in one line.
func exitCode(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFailed):
		return exitFailed
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "stag:", err)
		return exitUsage
	}
	fmt.Fprintln(os.Stderr, "stag:", err)
	return exitFailed
}

// atMost is cobra.MaximumNArgs with our exit code.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.MaximumNArgs(n)(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
