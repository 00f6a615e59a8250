package main

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/man"
)

// addHelp sets the help function of cmd and of all commands below it. The function does
// not use package text/template. That package finds methods by name, so that the linker
// would have to keep every exported method, and the program would be 5 MB larger.
func addHelp(cmd *cobra.Command) {
	cmd.SetHelpFunc(func(c *cobra.Command, _ []string) { fmt.Fprint(c.OutOrStdout(), helpText(c)) })
}

// helpText returns the text of --help: the examples, then at most a few lines about the
// command. The manual page has the rest.
func helpText(c *cobra.Command) string {
	var b strings.Builder
	if c.HasExample() {
		fmt.Fprintf(&b, "Examples:\n%s\n\n", c.Example)
	}
	b.WriteString("Usage:")
	if c.Runnable() {
		fmt.Fprintf(&b, "\n  %s", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n  %s [command]", c.CommandPath())
	}
	fmt.Fprintf(&b, "\n\n%s\n", trimmed(c.Long))
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nCommands:%s\n", commandLines(c))
	}
	if c.HasAvailableLocalFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s\n", trimmed(c.LocalFlags().FlagUsages()))
	}
	if c.HasAvailableInheritedFlags() {
		fmt.Fprintf(&b, "\nGlobal Flags:\n%s\n", trimmed(c.InheritedFlags().FlagUsages()))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\"%s COMMAND --help\" describes a command.\n", c.CommandPath())
	}
	if c.Annotations[man.More] != "" {
		fmt.Fprintf(&b, "\nMore: man %s\n", man.Name(c))
	}
	return b.String()
}

// commandLines returns a line for each command below c.
func commandLines(c *cobra.Command) string {
	var b strings.Builder
	for _, below := range c.Commands() {
		if below.IsAvailableCommand() {
			fmt.Fprintf(&b, "\n  %-*s %s", below.NamePadding(), below.Name(), below.Short)
		}
	}
	return b.String()
}

func trimmed(s string) string { return strings.TrimRightFunc(s, unicode.IsSpace) }

// helpCommand returns the command `stag help`. Unlike cobra's help command, it rejects
// the name of a command that does not exist.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Describe a command and its flags",
		Long: `Prints what --help of the command prints. Without a command it prints what
stag --help prints.`,
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
			about.InitDefaultHelpFlag() // Execute does this only for the command that it runs
			return about.Help()
		},
	}
}
