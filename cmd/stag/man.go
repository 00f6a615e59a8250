package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/man"
	"github.com/stag-rdma/stag/cmd/stag/internal/version"
)

// manCommand returns a hidden command. `make man` and packagers of stag use it.
func manCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:    "man",
		Short:  "Write a manual page for each command",
		Hidden: true,
		Long: `Writes a manual page of section 8 for stag and for each of its commands. The date of
the pages is the month of the commit that stag was built from, so that every build
of a commit writes the same pages. If the build does not know its commit, the date
is the month of SOURCE_DATE_EPOCH, or else the present month.`,
		Example: `  stag man -o bin/man
  man bin/man/stag-doctor.8`,
		Args: atMost(0),

		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return usageError{fmt.Errorf("man: say where to, with --output DIR")}
			}
			v, err := version.Read()
			if err != nil {
				return fmt.Errorf("man: %w", err)
			}
			if err := man.Write(cmd.Root(), dir, v); err != nil {
				return fmt.Errorf("man: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&dir, "output", "o", "", "directory for the pages; the command makes it if it does not exist")
	return cmd
}
