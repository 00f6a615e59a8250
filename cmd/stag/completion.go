package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/doctor"
	"github.com/stag-rdma/stag/cmd/stag/internal/dump"
	"github.com/stag-rdma/stag/cmd/stag/internal/storage"
)

// shells are the shells for which there is a completion script.
var shells = []string{"bash", "zsh", "fish"}

func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a script that makes a shell complete stag's command line",
		Long: `Prints a script that makes a shell complete commands, flags, and names of network
interfaces. Bash needs the package bash-completion.`,
		Example: `  source <(stag completion bash)
  stag completion bash > /etc/bash_completion.d/stag
  stag completion zsh > "${fpath[1]}/_stag"
  stag completion fish > ~/.config/fish/completions/stag.fish`,
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(shells, args[0]) {
				return usageError{fmt.Errorf("completion: name one shell, bash, zsh or fish: see stag completion --help")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(out)
			}
			return cmd.Root().GenFishCompletion(out, true)
		},
	}
}

// values has the completion function for the values of a flag, by the name of the flag. A
// flag has the same values in every command.
var values = map[string]cobra.CompletionFunc{
	"dev":        completeInterface,
	"ib-dev":     completeInterface,
	"instance":   completeInstance,
	"interface":  completeInterface,
	"port-if":    completeInterface,
	"kind":       cobra.FixedCompletions(strings.Split(dump.KindNames(), ","), cobra.ShellCompDirectiveNoFileComp),
	"pid":        completeEngine,
	"vpd":        cobra.FixedCompletions(storage.PageNames(), cobra.ShellCompDirectiveNoFileComp),
	"block-size": cobra.FixedCompletions([]string{"512", "4096"}, cobra.ShellCompDirectiveNoFileComp),
	"driver":     cobra.FixedCompletions([]string{"nbd", "ublk"}, cobra.ShellCompDirectiveNoFileComp),
	"chunk":      cobra.FixedCompletions([]string{"2048", "4096"}, cobra.ShellCompDirectiveNoFileComp),
}

// completeValues registers values for the flags of cmd and of all commands below it.
func completeValues(cmd *cobra.Command) error {
	for name, offer := range values {
		if cmd.Flags().Lookup(name) == nil {
			continue
		}
		if err := cmd.RegisterFlagCompletionFunc(name, offer); err != nil {
			return err
		}
	}
	for _, below := range cmd.Commands() {
		if err := completeValues(below); err != nil {
			return err
		}
	}
	return nil
}

// completeInterface offers the interfaces that stag can use. Behind a comma it offers the
// next one of a list.
func completeInterface(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	names, err := doctor.Interfaces()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	if at := strings.LastIndexByte(word, ','); at >= 0 {
		for i := range names {
			names[i] = word[:at+1] + names[i]
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeOneInterface offers the interfaces for the first argument, and nothing for
// further arguments.
func completeOneInterface(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeInterface(cmd, args, word)
}
