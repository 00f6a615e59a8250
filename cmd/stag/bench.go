package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// errBenchMoved says where the benchmark is. The second command needs Go, and no checkout.
var errBenchMoved = errors.New(`bench: stag has no benchmark any more, it is a program of its own: ` +
	`run "make bench" or "go run ./test/bench" in a checkout, or "go run github.com/stag-rdma/stag/test/bench@latest" anywhere`)

// benchCommand only says where the benchmark is now. It takes any flag and any argument,
// because old scripts give them. Remove it with the next release.
func benchCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "bench",
		Short:              "Say where the benchmark is",
		Hidden:             true,
		DisableFlagParsing: true,
		Long:               `Says where the benchmark is, which is a program of its own, and exits with 2.`,
		Example:            `  stag bench`,
		ValidArgsFunction:  cobra.NoFileCompletions,
		RunE:               func(*cobra.Command, []string) error { return usageError{errBenchMoved} },
	}
}
