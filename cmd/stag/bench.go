package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// errBenchMoved says where the benchmark is. The last command needs Go, but no checkout.
var errBenchMoved = errors.New(`bench: the benchmark is a program of its own now: ` +
	`run "make bench" or "go run ./test/bench" in a checkout, or "go run github.com/stag-rdma/stag/test/bench@latest" anywhere`)

// benchCommand only says where the benchmark is now. It accepts any flag and any
// argument, because old scripts give them. Remove benchCommand with the next release.
func benchCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "bench",
		Short:              "Say where the benchmark is",
		Hidden:             true,
		DisableFlagParsing: true,
		Long:               `Says where the benchmark is, and exits with 2. The benchmark is a program of its own.`,
		Example:            `  stag bench`,
		ValidArgsFunction:  cobra.NoFileCompletions,
		RunE:               func(*cobra.Command, []string) error { return usageError{errBenchMoved} },
	}
}
