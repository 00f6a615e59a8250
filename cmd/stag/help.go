package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/man"
)

// helpTemplate has the examples first, then at most a few lines about the command.
// The manual page has the rest.
const helpTemplate = `{{if .HasExample}}Examples:
{{.Example}}

{{end}}Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} [command]{{end}}

{{.Long | trimTrailingWhitespaces}}
{{if .HasAvailableSubCommands}}
Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{if .HasAvailableLocalFlags}}
Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}{{if .HasAvailableInheritedFlags}}
Global Flags:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}{{if .HasAvailableSubCommands}}
"{{.CommandPath}} COMMAND --help" describes a command.
{{end}}{{with manualPage .}}
More: man {{.}}
{{end}}`

// addHelp gives the template to cmd and to all commands below it.
func addHelp(cmd *cobra.Command) {
	cobra.AddTemplateFunc("manualPage", func(c *cobra.Command) string {
		if c.Annotations[man.More] == "" {
			return ""
		}
		return man.Name(c)
	})
	cmd.SetHelpTemplate(helpTemplate)
}

// helpCommand is the one of cobra, but rejects the name of a command that does not exist.
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
			about.InitDefaultHelpFlag() // which Execute does for the command that it runs only
			return about.Help()
		},
	}
}
