package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// verboseFlag is the flag of every command that says more, unless a command has
// one of its own by this name, as rping's -v of stag ping.
const verboseFlag = "verbose"

// addVerbose gives -v to cmd and to all below it. Once is for what is born and
// dies, twice for everything; the lines go to standard error.
func addVerbose(cmd *cobra.Command) {
	cmd.PersistentFlags().CountP(verboseFlag, "v", "print more, and log to standard error; -vv also logs debug messages")
	cmd.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		cmd.SetContext(withLogger(cmd.Context(), newLogger(cmd.ErrOrStderr(), verbosity(cmd))))
	}
}

// verbosity is how often -v was given.
func verbosity(cmd *cobra.Command) int {
	n, err := cmd.Flags().GetCount(verboseFlag)
	if err != nil {
		return 0 // the command has a -v of its own
	}
	return n
}

// newLogger writes to w what a verbosity of 1 or more asks for.
func newLogger(w io.Writer, verbosity int) *slog.Logger {
	level := slog.LevelInfo
	switch {
	case verbosity == 0:
		return slog.New(slog.DiscardHandler)
	case verbosity > 1:
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

type loggerKey struct{}

func withLogger(ctx context.Context, l *slog.Logger) context.Context {
	return context.WithValue(ctx, loggerKey{}, l)
}

// logger is the one for what runs under the context of a command. Without -v it
// drops everything.
func logger(ctx context.Context) *slog.Logger {
	if l, ok := ctx.Value(loggerKey{}).(*slog.Logger); ok {
		return l
	}
	return slog.New(slog.DiscardHandler)
}
