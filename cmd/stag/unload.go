package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/load"
)

func unloadCommand() *cobra.Command {
	var (
		w      load.What
		force  bool
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "unload IFACE | --instance NAME | --all",
		Short: "Undo stag load: detach the XDP program from an interface",
		Long: `Detaches the XDP program of stag load from an interface, or from all interfaces of
an instance, and removes the pinned objects. Restores the settings that stag load
--tune has changed, except those that were changed again since. If an interface was
renamed, moved to another network namespace or removed, give --instance instead.

The command refuses to unload while a process uses the interface. With --force it
unloads nevertheless, and the connections that were taken over are lost.`,
		Annotations: manual(unloadManual),
		Example: `  stag unload eth1
  stag unload --instance storage --force
  stag unload --all --json`,
		Args:              atMost(1),
		ValidArgsFunction: completeOneInterface,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				w.Link = args[0]
			}
			if err := checkUnload(cmd, w); err != nil {
				return usageError{fmt.Errorf("unload: %w", err)}
			}
			r, err := load.Unload(w, force)
			if err != nil {
				err = fmt.Errorf("unload: %w", err)
			}
			if asJSON {
				return errors.Join(err, writeJSON(cmd.OutOrStdout(), r))
			}
			return errors.Join(err, r.Print(cmd.OutOrStdout()))
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.Instance, "instance", "", "unload all interfaces of the instance with this name")
	f.BoolVar(&w.All, "all", false, "unload all instances")
	f.BoolVar(&force, "force", false, "unload even if a process uses the interface: its connections are lost")
	f.BoolVar(&asJSON, "json", false, "print what was done as JSON")
	return cmd
}

func checkUnload(cmd *cobra.Command, w load.What) error {
	named := cmd.Flags().Changed("instance")
	chosen := 0
	for _, is := range []bool{w.Link != "", named, w.All} {
		if is {
			chosen++
		}
	}
	if chosen != 1 {
		return errors.New("choose one: the name of an interface, --instance and a name, or --all: see stag unload --help")
	}
	if named {
		return load.CheckInstance(w.Instance)
	}
	return nil
}

// completeInstance offers the loaded instances.
func completeInstance(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return load.Names(), cobra.ShellCompDirectiveNoFileComp
}
