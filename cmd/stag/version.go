package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/version"
)

func versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version and commit of stag, and the versions of Go and the kernel",
		Long: `Prints the version of the module, the commit of the build, whether the build had
changes that are not in the commit, the version of Go, and the release of the
running kernel. With -v the command also prints the modules in the build. Put this
output at the beginning of a bug report.`,
		Example: `  stag version
  stag version -v
  stag version --json`,
		Args: atMost(0),

		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := version.Read()
			if err != nil {
				return fmt.Errorf("version: %w", err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), v)
			}
			return v.Print(cmd.OutOrStdout(), verbosity(cmd) > 0)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print the same as JSON, with the modules")
	return cmd
}
