package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/man"
	"github.com/stag-rdma/stag/cmd/stag/internal/version"
)

// manCommand is hidden. People who package stag use it, and make man.
func manCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:    "man",
		Short:  "Write a manual page for each command",
		Hidden: true,
		Long: `Writes a manual page of section 8 for stag and for each of its commands. The pages
have the month of the commit that stag was built from, so that every build of that
commit writes the same pages. If the build does not know its commit, the pages have
the month of SOURCE_DATE_EPOCH, or else this month.`,
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
	cmd.Flags().StringVarP(&dir, "output", "o", "", "directory for the pages, made if need be")
	return cmd
}
