// Command stag is the tool of the stag software RNIC.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// These are the exit codes: 1 if something failed, 2 if the command line is wrong.
const (
	exitFailed = 1
	exitUsage  = 2
)

// errFailed ends the program with exitFailed and without a message: the command has
// already printed what failed.
var errFailed = errors.New("failed")

// parserTalk matches the prefix that package strconv adds to the error of a number.
var parserTalk = regexp.MustCompile(`strconv\.Parse[A-Z][a-z]*: parsing "[^"]*": `)

// usageError is a mistake on the command line.
type usageError struct{ error }

func main() {
	// The program cleans up before it ends, also when its terminal closes and when the
	// reader of its output has gone. SIGPIPE is ignored, so that Write returns an error
	// if the reader has gone.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	cmd := root()
	err := completeValues(cmd)
	if err == nil {
		err = cmd.ExecuteContext(ctx)
	}
	stop()
	os.Exit(exitCode(err))
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stag",
		Short: "A software RNIC: RDMA over live TCP connections, moved from the kernel into AF_XDP",
		Long: `stag is an RDMA NIC in software. It speaks iWARP over TCP connections. The kernel
opens each connection, and stag then moves it from the kernel into AF_XDP.
Applications use the Go package rdma. This command shows and tests stag, and checks
what a machine lacks for it.

The exit code is 0 if all went well, 1 if something failed, and 2 if the command
line is wrong.`,
		Example: `  stag doctor eth1
  stag demo
  stag help demo`,
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
	addVerbose(cmd)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd.HasParent() {
			err = fmt.Errorf("%s: %w", strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" "), err)
		}
		return usageError{fmt.Errorf("%s: see %s --help", parserTalk.ReplaceAllString(err.Error(), ""), cmd.CommandPath())}
	})
	addHelp(cmd)
	cmd.SetHelpCommand(helpCommand())
	cmd.AddCommand(doctorCommand(), demoCommand(), perfCommand(), benchCommand(), versionCommand(), completionCommand(), manCommand(), pingCommand(), showCommand(), metricsCommand(), loadCommand(), unloadCommand(), dumpCommand(), drainCommand(), echoCommand(), daemonCommand(), runCommand(), upgradeCommand(), iscsiCommand())
	return cmd
}

// exitCode prints the error to standard error in one line, and returns the exit code.
func exitCode(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFailed):
		return exitFailed
	case errors.As(err, &usage):
		complain(err)
		return exitUsage
	}
	complain(err)
	return exitFailed
}

// complain prints an error, even one of several lines, in one line.
func complain(err error) {
	fmt.Fprintln(os.Stderr, "stag:", strings.ReplaceAll(err.Error(), "\n", "; "))
}

// atMost accepts up to n arguments, none of them empty.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usageError{fmt.Errorf("%s: unexpected argument %q: see stag %s --help", cmd.Name(), args[n], cmd.Name())}
		}
		if slices.Contains(args, "") {
			return usageError{fmt.Errorf("%s: an argument is empty", cmd.Name())}
		}
		return nil
	}
}

// writeJSON writes v as indented JSON.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
