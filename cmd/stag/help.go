package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// helpCommand is cobra's, but a command that there is not is a mistake.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Say what a command does, and its flags",
		Long:  `Prints what --help of the command prints; without one, what stag --help does.`,
		Example: `  stag help show
  stag help perf write_bw`,
		Args: func(cmd *cobra.Command, args []string) error {
			if _, rest, err := cmd.Root().Find(args); err != nil || len(rest) > 0 {
				return usageError{fmt.Errorf("help: no command %q: see stag --help", strings.Join(args, " "))}
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			if about, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, below := range about.Commands() {
					if below.IsAvailableCommand() {
						names = append(names, below.Name()+"\t"+below.Short)
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, _, err := cmd.Root().Find(args)
			if err != nil {
				return usageError{err}
			}
			about.InitDefaultHelpFlag() // which Execute does for the command that it runs only
			return about.Help()
		},
	}
}
