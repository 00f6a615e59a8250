package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// verboseFlag is the flag with which every command prints more. A command may have a flag
// of its own with this name: stag ping has the -v of rping.
const verboseFlag = "verbose"

// addVerbose adds -v to cmd and to all commands below it. With one -v the command logs when
// connections, QPs and interfaces come and go. With two it logs everything. The log goes to
// standard error.
func addVerbose(cmd *cobra.Command) {
	cmd.PersistentFlags().CountP(verboseFlag, "v", "print more, and log to standard error; -vv also logs debug messages")
	cmd.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		cmd.SetContext(withLogger(cmd.Context(), newLogger(cmd.ErrOrStderr(), verbosity(cmd))))
	}
}

// verbosity returns how many times -v was given.
func verbosity(cmd *cobra.Command) int {
	n, err := cmd.Flags().GetCount(verboseFlag)
	if err != nil {
		return 0 // the command has a -v of its own
	}
	return n
}

// newLogger returns a logger to w for this verbosity. A verbosity of 0 logs nothing.
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

// logger returns the logger of a command's context. Without -v it logs nothing.
func logger(ctx context.Context) *slog.Logger {
	if l, ok := ctx.Value(loggerKey{}).(*slog.Logger); ok {
		return l
	}
	return slog.New(slog.DiscardHandler)
}
